// Compares what a context was rendered from with the text side of the model at hand.

#include "prompt/context_origin.h"

#include "base/error.h"
#include "prompt/text_fingerprint.h"

namespace kvfork {
namespace prompt {
namespace {

bool has_tools(const FixedPart& fixed) {
  const size_t begin = fixed.tools_json.find_first_not_of(" \t\r\n");
  return begin != std::string::npos && fixed.tools_json.compare(begin, 4, "null") != 0;
}

}  // namespace

std::string chosen_source(const ChatTemplate& chat_template, const FixedPart& fixed) {
  try {
    return chat_template.source(has_tools(fixed) ? ChatTemplate::Tools::Given : ChatTemplate::Tools::Absent);
  } catch (const Error&) {
    return "";
  }
}

std::string fingerprint_origin_template(const Text& text, const ContextOrigin& origin) {
  if (origin.fixed.raw_text) return "";
  const std::string source =
      origin.template_source ? *origin.template_source : chosen_source(text.chat_template(), origin.fixed);
  return source.empty() ? "" : fingerprint_template(source, text.chat_template());
}

}  // namespace prompt

namespace {

void expect_same(const char* field, const std::string& expected, const std::string& found) {
  if (expected != found)
    base::fail(ErrorCode::InvalidArgument, "context: {}: expected {} (this model's), found {}", field, expected,
               found);
}

}  // namespace

const char* boundary_mode_name(BoundaryMode mode) noexcept {
  switch (mode) {
    case BoundaryMode::Message:
      return "message";
    case BoundaryMode::Probe:
      return "probe";
    case BoundaryMode::Longest:
      return "longest";
  }
  return "";
}

std::shared_ptr<const ContextOrigin> Prompter::make_origin(BoundaryMode mode, const Prompt& context) const {
  return base::only_errors([&]() -> std::shared_ptr<const ContextOrigin> {
    auto origin = std::make_shared<ContextOrigin>();
    origin->fixed = fixed_;
    origin->boundary = mode;
    origin->text = context.text;
    origin->tokenizer = text_->tokenizer_fingerprint();
    if (!reads_clock()) origin->fixed.now.reset();
    if (fixed_.raw_text) return origin;
    const std::string source = prompt::chosen_source(template_, fixed_);
    if (source != prompt::chosen_source(text_->chat_template(), fixed_)) origin->template_source = source;
    origin->chat_template = prompt::fingerprint_template(source, text_->chat_template());
    return origin;
  });
}

Prompter Prompter::from_origin(std::shared_ptr<const Text> text,
                               const std::shared_ptr<const ContextOrigin>& origin) {
  if (origin == nullptr)
    base::fail(
        ErrorCode::InvalidArgument,
        "context: it was made from token ids alone, so no request can be rendered for it; fork it and append ids");
  return base::only_errors([&]() -> Prompter {
    expect_same("tokenizer", text->tokenizer_fingerprint(), origin->tokenizer);
    expect_same("template", prompt::fingerprint_origin_template(*text, *origin), origin->chat_template);
    ChatTemplate chosen = origin->template_source ? text->chat_template().with_source(*origin->template_source)
                                                  : text->chat_template();
    return Prompter(std::move(text), std::move(chosen), origin->fixed);
  });
}

}  // namespace kvfork
