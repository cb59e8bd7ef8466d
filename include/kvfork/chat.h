// Chat templates: from messages to the text that a model was trained on, as Transformers' apply_chat_template
// renders it.
//
// A ChatTemplate holds the templates that a checkpoint offers; a copy is cheap and shares them. Immutable after
// construction; every const method may be called from any thread. Templates are parsed at their first use.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvfork/tokenizer.h"

namespace kvfork {

/// What a checkpoint offers, as text of the files that are there. An empty template is one: it renders nothing.
struct TemplateSources {
  std::string subject;                             ///< what messages call it: a path
  std::optional<std::string> chat_template_jinja;  ///< the file; wins over the next two
  std::optional<std::string>
      tokenizer_config_json;  ///< chat_template (a string, or a list of {name, template}); special tokens
  std::optional<std::string>
      chat_template_json;  ///< the old file {"chat_template": ...}; used when there is nothing else
  std::optional<std::string>
      special_tokens_map_json;  ///< the old file; read where tokenizer_config has no added_tokens_decoder
  std::vector<std::pair<std::string, std::string>> additional;  ///< additional_chat_templates: name, template
  std::map<std::string, std::string>
      special_tokens;  ///< bos_token, eos_token, ... where there is no tokenizer_config
};

/// One conversation to render. JSON is read as Python reads it: NaN and infinities are numbers, and of repeated
/// keys the last value counts.
struct ChatRequest {
  std::string messages_json;                              ///< a JSON list with at least one message
  std::string tools_json;                                 ///< a JSON list of objects; "" or "null": none
  std::string documents_json;                             ///< a JSON list of objects; "" or "null": none
  std::vector<std::pair<std::string, std::string>> vars;  ///< further variables: name, JSON text
  bool add_generation_prompt = false;
  bool continue_final_message = false;  ///< end inside the last message; excludes add_generation_prompt
  std::optional<std::string> now;  ///< the templates' clock, "2031-01-05T06:07:08"; absent: the system's local time
};

/// Whether control tokens in a request's own words (the strings of messages, tools and documents) are read as such,
/// as Transformers reads them, or stay plain text, so that all control tokens are the template's.
enum class UserText { AsTransformers, Literal };

/// A rendering, and what it owes to the request's own words.
struct RenderedChat {
  std::string text;
  std::vector<std::string> control_tokens;  ///< in the request's own words; distinct, in order of first occurrence
  std::vector<ByteRange> literal_ranges;    ///< with UserText::Literal: for EncodeOptions, beside `text`
};

class ChatTemplate {
 public:
  /// No template: render throws.
  ChatTemplate();

  /// Throws Error{Corrupt} for JSON that is broken or of the wrong shape.
  static ChatTemplate from_sources(const TemplateSources& sources);

  /// Reads chat_template.jinja, additional_chat_templates/*.jinja, tokenizer_config.json and the old files where
  /// they exist. Throws Error{Corrupt, Io}.
  static ChatTemplate from_directory(const std::string& directory);

  bool empty() const noexcept;

  /// The names of the templates; the one without a name of its own is "default".
  std::vector<std::string> names() const;

  /// The same special tokens with one template: the named one of this checkpoint, or the file at that path; ""
  /// changes nothing. Throws Error{NotFound} listing the names, Error{Io}.
  ChatTemplate with_override(const std::string& name_or_file) const;

  /// The same special tokens with this template.
  ChatTemplate with_source(std::string source) const;

  /// The text to tokenize. Throws Error{Template} with line and column where the template fails, or with the text
  /// that it raises; Error{Limit} where it passes a bound on steps, depth, memory or output; Error{Unsupported}
  /// naming a tag that kvfork does not run; Error{InvalidArgument, Corrupt} for a malformed request.
  std::string render(const ChatRequest& request) const;

  /// The same text, with the control tokens of `tokenizer` that the request's own words hold. With
  /// UserText::Literal, where they hold any, the template runs once more with them marked; throws
  /// Error{Unsupported} where that changes the text, because the template looks at them. Throws as render.
  RenderedChat render(const ChatRequest& request, const Tokenizer& tokenizer, UserText user_text) const;

  enum class Tools { Absent, Given };
  /// The template that render would choose: with tools, one named "tool_use" where there is one. Throws as render.
  const std::string& source(Tools tools) const;

  /// Variables that every rendering sees: bos_token, eos_token, ... as JSON text.
  const std::map<std::string, std::string>& special_variables() const noexcept;

 private:
  struct State;
  explicit ChatTemplate(std::shared_ptr<const State> state);
  std::string render_with(const ChatRequest& request, const std::function<void(std::string&)>& on_text) const;
  std::shared_ptr<const State> state_;
};

}  // namespace kvfork
