// From a fixed part and a user's words to token ids: rendered by the chat template, tokenized as a whole.
//
// Immutable after construction; any thread may call the const methods.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvfork/boundary.h"
#include "kvfork/chat.h"
#include "kvfork/text.h"
#include "kvfork/tokenizer.h"

namespace kvfork {

/// What every request starts with: messages with tools, documents and variables, or plain text.
struct FixedPart {
  std::string messages_json = "[]";                       ///< a JSON list: the messages before each request's own
  std::string tools_json;                                 ///< a JSON list, or empty
  std::string documents_json;                             ///< a JSON list, or empty
  std::vector<std::pair<std::string, std::string>> vars;  ///< template variables, name and JSON text
  std::optional<std::string> now;       ///< the templates' clock; absent: the system's, read at each rendering
  std::optional<std::string> raw_text;  ///< plain text without a template; the rest is then not read
  EncodeOptions raw_encoding;           ///< how plain text is tokenized
  UserText user_text =
      UserText::AsTransformers;  ///< control tokens in messages, tools, documents, plain text and requests

  /// One system message.
  static FixedPart from_system_message(std::string_view text);
};

/// The list `more` after the list `list`, both JSON lists of messages, as they are written. Throws
/// Error{InvalidArgument} where one is no list.
std::string append_messages(std::string_view list, std::string_view more);

/// What a context was rendered from. Kept with it, so that a saved context serves requests by itself.
struct ContextOrigin {
  FixedPart fixed;
  BoundaryMode boundary = BoundaryMode::Message;
  std::string text;                            ///< as rendered
  std::string tokenizer;                       ///< fingerprint, as in Identity
  std::string chat_template;                   ///< fingerprint, as in Identity; empty for plain text
  std::optional<std::string> template_source;  ///< where it is not the one that the checkpoint itself chooses
};

/// Text as the model gets it.
struct Prompt {
  std::string text;
  std::vector<int32_t> ids;
  EncodeReport report;
  /// Control tokens that the messages, tools, documents or plain text hold and that were read as such; distinct.
  std::vector<std::string> control_tokens;
};

/// A conversation, rendered and tokenized as a whole. Throws as ChatTemplate::render and Tokenizer::encode.
Prompt encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template, const ChatRequest& request,
                   UserText user_text);

/// Plain text, all of it the user's. Throws as Tokenizer::encode.
Prompt encode_text(const Tokenizer& tokenizer, std::string text, EncodeOptions options, UserText user_text);

class Prompter {
 public:
  Prompter(std::shared_ptr<const Text> text, ChatTemplate chat_template, FixedPart fixed);

  /// The context under this boundary. Throws Error{Template, InvalidArgument, Limit}; Error{Boundary} when nothing
  /// is common to all requests.
  Prompt make_context(BoundaryMode mode) const;

  /// A whole request: the fixed part and one user message, with a generation prompt; for a raw fixed part, its text
  /// with `user_text` appended. Throws Error{Template, InvalidArgument, Limit}; ill-formed UTF-8 is
  /// InvalidArgument.
  Prompt make_request(std::string_view user_text) const;

  /// A whole request: the fixed part and these messages (a JSON list).
  Prompt make_request_from_messages(std::string_view messages_json) const;

  /// What to hand to Model::prefill with the ids of `context`, which make_context(mode) gave. The clock is kept
  /// only where the template reads it. Throws as make_context.
  std::shared_ptr<const ContextOrigin> make_origin(BoundaryMode mode, const Prompt& context) const;

  /// A prompter for requests to a context with an origin. Throws Error{InvalidArgument} for one without, or when
  /// `text` is not what the origin was rendered with, naming the field.
  static Prompter from_origin(std::shared_ptr<const Text> text, const std::shared_ptr<const ContextOrigin>& origin);

  /// Whether the templates' clock changes what is rendered. Throws as make_request.
  bool reads_clock() const;

  const Tokenizer& tokenizer() const noexcept { return text_->tokenizer(); }
  const FixedPart& fixed_part() const noexcept { return fixed_; }

 private:
  enum class Turn { FixedOnly, Assistant };
  std::string render(const std::string& messages_json, Turn turn) const;
  ChatRequest request_of(const std::string& messages_json, Turn turn) const;
  Prompt encode(const std::string& messages_json, Turn turn) const;
  Prompt encode_raw(std::string text) const;
  Prompt make_probe_context(bool ends_at_added_token) const;

  std::shared_ptr<const Text> text_;
  ChatTemplate template_;
  FixedPart fixed_;
};

}  // namespace kvfork
