// Turns text or messages into token ids and reports control tokens that the user's text holds.

#include "kvfork/prompt.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json_text.h"
#include "base/utf8.h"

namespace kvfork {
namespace {

// Requests that begin in as many ways as text can meet what stands before it: a probe context is what all share.
constexpr const char* kProbes[] = {"Alpha", "7 z", " b", "\n\nc", "\u0301d", "\u4E2D", "'s", "<x", "."};

void expect_utf8(std::string_view text, const char* subject) {
  const size_t position = base::find_invalid_utf8(text);
  if (position != text.size())
    base::fail(ErrorCode::InvalidArgument, "{}: expected UTF-8, found byte 0x{:02X} at position {}", subject,
               static_cast<unsigned char>(text[position]), position);
}

// What stands between the brackets of a JSON list. The rest is checked by the template engine's reader, which reads
// JSON as Python does.
std::string_view inside_list(std::string_view list) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = list.find_first_not_of(kSpace);
  const size_t end = list.find_last_not_of(kSpace);
  if (begin == std::string_view::npos || begin == end || list[begin] != '[' || list[end] != ']')
    base::fail(ErrorCode::InvalidArgument, "messages: expected a JSON list of messages");
  const std::string_view inside = list.substr(begin + 1, end - begin - 1);
  return inside.find_first_not_of(kSpace) == std::string_view::npos ? std::string_view() : inside;
}

// A list of one message.
std::string one_message(const char* role, std::string_view text) {
  auto messages = base::JsonText::list();
  messages.push_back({{"role", role}, {"content", text}});
  return messages.text();
}

size_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(in_a - a.begin());
}

}  // namespace

FixedPart FixedPart::from_system_message(std::string_view text) {
  expect_utf8(text, "context");
  FixedPart fixed;
  fixed.messages_json = one_message("system", text);
  return fixed;
}

std::string append_messages(std::string_view list, std::string_view more) {
  const std::string_view first = inside_list(list);
  const std::string_view second = inside_list(more);
  std::string joined = "[" + std::string(first);
  if (!first.empty() && !second.empty()) joined += ',';
  return joined.append(second) + "]";
}

Prompt encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template, const ChatRequest& request,
                   UserText user_text) {
  return base::only_errors([&]() -> Prompt {
    RenderedChat rendered = chat_template.render(request, tokenizer, user_text);
    Prompt prompt;
    EncodeOptions options;
    options.literal_ranges = std::move(rendered.literal_ranges);
    prompt.ids = tokenizer.encode(rendered.text, options, prompt.report);
    prompt.text = std::move(rendered.text);
    if (user_text == UserText::AsTransformers) prompt.control_tokens = std::move(rendered.control_tokens);
    return prompt;
  });
}

Prompt encode_text(const Tokenizer& tokenizer, std::string text, EncodeOptions options, UserText user_text) {
  return base::only_errors([&]() -> Prompt {
    Prompt prompt;
    options.literal_special_tokens = options.literal_special_tokens || user_text == UserText::Literal;
    prompt.ids = tokenizer.encode(text, options, prompt.report);
    prompt.text = std::move(text);
    for (const EncodeReport::ControlToken& found : prompt.report.control_tokens) {
      std::string token(tokenizer.piece(found.id));
      if (std::find(prompt.control_tokens.begin(), prompt.control_tokens.end(), token) ==
          prompt.control_tokens.end())
        prompt.control_tokens.push_back(std::move(token));
    }
    return prompt;
  });
}

Prompter::Prompter(std::shared_ptr<const Text> text, ChatTemplate chat_template, FixedPart fixed)
    : text_(std::move(text)), template_(std::move(chat_template)), fixed_(std::move(fixed)) {
  if (fixed_.raw_text) {
    expect_utf8(*fixed_.raw_text, "context");
  } else {
    inside_list(fixed_.messages_json);
  }
}

Prompt Prompter::make_context(BoundaryMode mode) const {
  return base::only_errors([&]() -> Prompt {
    if (mode == BoundaryMode::Probe) return make_probe_context(true);
    if (fixed_.raw_text) return encode_raw(*fixed_.raw_text);
    if (mode == BoundaryMode::Message) return encode(fixed_.messages_json, Turn::FixedOnly);
    try {
      return encode(fixed_.messages_json, Turn::FixedOnly);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::Template) throw;
      return make_probe_context(false);  // a template that wants a user message: requests still share a prefix
    }
  });
}

Prompt Prompter::make_request(std::string_view user_text) const {
  return base::only_errors([&]() -> Prompt {
    expect_utf8(user_text, "prompt");
    if (fixed_.raw_text) return encode_raw(*fixed_.raw_text + std::string(user_text));
    return encode(append_messages(fixed_.messages_json, one_message("user", user_text)), Turn::Assistant);
  });
}

Prompt Prompter::make_request_from_messages(std::string_view messages_json) const {
  return base::only_errors([&]() -> Prompt {
    if (fixed_.raw_text)
      base::fail(ErrorCode::InvalidArgument, "messages: a raw context takes plain text, not messages");
    return encode(append_messages(fixed_.messages_json, messages_json), Turn::Assistant);
  });
}

// The longest token prefix that all probe requests share, cut back to its last added token: added tokens are taken
// out of the text before the model sees it, so nothing that follows can merge with one. Without an added token the
// cut stays where the probes part, one token earlier; each request is compared with the context anyway.
Prompt Prompter::make_probe_context(bool ends_at_added_token) const {
  Prompt first = make_request(kProbes[0]);
  size_t n = first.ids.size();
  for (const char* probe : kProbes) n = std::min(n, common_prefix(first.ids, make_request(probe).ids));
  if (ends_at_added_token) {
    size_t end = n;
    while (end > 0 && !tokenizer().is_added(first.ids[end - 1])) --end;
    // A lone token at the very start is a BOS: it says nothing about the context.
    n = end > 1 ? end : std::max<size_t>(n, 1) - 1;
  }
  if (n == 0)
    base::fail(
        ErrorCode::Boundary,
        "boundary: expected requests to share at least one token, found none; this template renders nothing fixed "
        "before the request");
  first.ids.resize(n);
  first.text = tokenizer().decode(first.ids, SpecialTokens::Keep);
  return first;
}

// Whether another time gives another text.
bool Prompter::reads_clock() const {
  return base::only_errors([&]() -> bool {
    if (fixed_.raw_text) return false;
    const auto render_at = [&](const char* now) {
      Prompter other = *this;
      other.fixed_.now = now;
      std::string text =
          other.render(append_messages(fixed_.messages_json, one_message("user", kProbes[0])), Turn::Assistant);
      try {
        text += other.render(fixed_.messages_json, Turn::FixedOnly);
      } catch (const Error&) {  // a template that wants a user message
      }
      return text;
    };
    return render_at("2001-02-03T04:05:06") != render_at("1987-10-29T17:48:37");
  });
}

std::string Prompter::render(const std::string& messages_json, Turn turn) const {
  return template_.render(request_of(messages_json, turn));
}

ChatRequest Prompter::request_of(const std::string& messages_json, Turn turn) const {
  ChatRequest request;
  request.messages_json = messages_json;
  request.tools_json = fixed_.tools_json;
  request.documents_json = fixed_.documents_json;
  request.vars = fixed_.vars;
  request.now = fixed_.now;
  request.add_generation_prompt = turn == Turn::Assistant;
  return request;
}

Prompt Prompter::encode(const std::string& messages_json, Turn turn) const {
  return encode_chat(tokenizer(), template_, request_of(messages_json, turn), fixed_.user_text);
}

Prompt Prompter::encode_raw(std::string text) const {
  return encode_text(tokenizer(), std::move(text), fixed_.raw_encoding, fixed_.user_text);
}

}  // namespace kvfork
