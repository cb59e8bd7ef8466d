#include "cli/fixed_part.h"

#include "cli/default_policy.h"

namespace kvfork::cli {

BoundaryMode parse_boundary_mode(const std::string& name) {
  if (name == "probe") return BoundaryMode::Probe;
  return name == "longest" ? BoundaryMode::Longest : BoundaryMode::Message;
}

void FixedPartFlags::add_to(CLI::App& app) {
  context_option = app.add_option("--context", context, "The fixed context, a system message (default: a support policy)");
  context_file_option = app.add_option("--context-file", context_file, "Read the context from a file, - for standard input");
  messages_option = app.add_option("--messages", messages_file, "JSON file with the messages that every request starts with");
  context_option->excludes(context_file_option)->excludes(messages_option);
  context_file_option->excludes(messages_option);
  CLI::Option* raw_option =
      app.add_flag("--raw", raw, "No template: context and prompt are plain text, one after the other (base models)");
  raw_option->excludes(messages_option);
  app.add_flag("--add-special-tokens", add_special_tokens, "With --raw: apply the tokenizer's post-processor, e.g. a BOS")
      ->needs(raw_option);
  app.add_option("--boundary", boundary,
                 "Where the context ends: message (after the fixed messages), probe (where requests begin to differ), longest "
                 "(as far as each request agrees)")
      ->check(CLI::IsMember({"message", "probe", "longest"}))
      ->capture_default_str();
  template_flags.add_to(app);
}

FixedPart FixedPartFlags::read() const {
  const ChatRequest request = template_flags.request();
  FixedPart fixed;
  if (*messages_option) {
    fixed.messages_json = read_text(messages_file);
  } else {
    const std::string text = *context_file_option ? read_text(context_file) : *context_option ? context : std::string(kDefaultPolicy);
    fixed = FixedPart::from_system_message(text);
    if (raw) fixed.raw_text = text;
  }
  fixed.tools_json = request.tools_json;
  fixed.documents_json = request.documents_json;
  fixed.vars = request.vars;
  fixed.now = request.now;
  fixed.raw_encoding.add_special_tokens = add_special_tokens;
  return fixed;
}

Prompter FixedPartFlags::make_prompter(std::shared_ptr<const Text> text) const {
  ChatTemplate chosen = template_flags.choose(text->chat_template());
  return Prompter(std::move(text), std::move(chosen), read());
}

}  // namespace kvfork::cli
