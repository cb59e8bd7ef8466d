// The options of a fixed part, and what they say about a saved context.
#include "cli/fixed_part.h"

#include <fmt/format.h>

#include <map>

#include "cli/default_policy.h"
#include "cli/help.h"
#include "cli/json_object.h"
#include "kvfork/error.h"

namespace kvfork::cli {
namespace {

[[noreturn]] void refuse(const std::string& file, const std::string& field, const std::string& expected,
                         const std::string& found) {
  throw Error(ErrorCode::InvalidArgument,
              fmt::format("{}: {}: expected {} (as the options say), found {}", file, field,
                          expected.empty() ? "none" : expected, found.empty() ? "none" : found));
}

// The same JSON, whatever its spelling.
bool same_json(const std::string& a, const std::string& b) {
  const auto x = parse_value(a);
  const auto y = parse_value(b);
  return x.is_discarded() || y.is_discarded() ? a == b : x == y;
}

}  // namespace

BoundaryMode parse_boundary_mode(const std::string& name) {
  if (name == "probe") return BoundaryMode::Probe;
  return name == "longest" ? BoundaryMode::Longest : BoundaryMode::Message;
}

void FixedPartFlags::add_to(CLI::App& app, Load meaning) {
  context_option =
      app.add_option("--context", context,
                     "The text of the fixed part, a system message (default: a built-in support policy)")
          ->group(kFixedPartGroup)
          ->type_name("TEXT");
  context_file_option = app.add_option("--context-file", context_file,
                                       "Read the text of the fixed part from a file; - is standard input")
                            ->group(kFixedPartGroup)
                            ->type_name("FILE");
  messages_option =
      app.add_option("--messages", messages_file, "JSON file with the messages that every request starts with")
          ->group(kFixedPartGroup)
          ->type_name("FILE");
  context_option->excludes(context_file_option)->excludes(messages_option);
  context_file_option->excludes(messages_option);
  raw_option =
      app.add_flag("--raw", raw,
                   "Use no template: the model sees the context and the prompt as plain text, for base models")
          ->group(kFixedPartGroup);
  raw_option->excludes(messages_option);
  CLI::Option* special_option = app.add_flag("--add-special-tokens", add_special_tokens,
                                             "With --raw: add the special tokens of the tokenizer, such as a BOS")
                                    ->group(kFixedPartGroup)
                                    ->needs(raw_option);
  boundary_option = app.add_option("--boundary", boundary,
                                   "Where the cached context ends: after the fixed messages, where two probe "
                                   "requests begin to differ, or as far "
                                   "as each request agrees")
                        ->group(kFixedPartGroup)
                        ->check(CLI::IsMember({"message", "probe", "longest"}))
                        ->capture_default_str();
  template_flags.add_to(app);
  const bool replaces = meaning == Load::Replaces;
  load_option = app.add_option("--load", load,
                               replaces ? "Open a context that kvfork save wrote, in place of the options above"
                                        : "Continue this saved context with the messages or the text given")
                    ->group(kFixedPartGroup)
                    ->type_name("FILE");
  app.add_option("--parent", parent, "With --load: the file of the parent (default: kvfork looks beside the child)")
      ->group(kFixedPartGroup)
      ->type_name("FILE")
      ->needs(load_option);
  load_option->excludes(raw_option)->excludes(special_option);
  if (replaces)
    load_option->excludes(context_option)
        ->excludes(context_file_option)
        ->excludes(messages_option)
        ->excludes(boundary_option);
}

std::string FixedPartFlags::read_context_text() const {
  if (*context_file_option) return read_text(context_file);
  return *context_option ? context : std::string(kDefaultPolicy);
}

FixedPart FixedPartFlags::read() const {
  FixedPart fixed;
  if (*messages_option) {
    fixed.messages_json = read_text(messages_file);
  } else {
    const std::string text = read_context_text();
    if (text.find_first_not_of(" \t\r\n") == std::string::npos)
      print_warning(fmt::format("{}: the fixed part is {}", *context_file_option ? context_file : "--context",
                                text.empty() ? "empty" : "blank"));
    fixed = FixedPart::from_system_message(text);
    if (raw) fixed.raw_text = text;
  }
  template_flags.fill(fixed);
  fixed.raw_encoding.add_special_tokens = add_special_tokens;
  return fixed;
}

std::shared_ptr<const Context> FixedPartFlags::open_saved(const Model& model) const {
  auto saved = model.open_context(load, {.parent = parent});
  saved->check();
  if (saved->origin() == nullptr) return saved;
  const ContextOrigin& origin = *saved->origin();
  const ChatRequest asked = template_flags.request();
  if (!template_flags.tools_file.empty() && !same_json(asked.tools_json, origin.fixed.tools_json))
    refuse(load, "tools", asked.tools_json, origin.fixed.tools_json);
  if (!template_flags.documents_file.empty() && !same_json(asked.documents_json, origin.fixed.documents_json))
    refuse(load, "documents", asked.documents_json, origin.fixed.documents_json);
  const std::map<std::string, std::string> vars(origin.fixed.vars.begin(), origin.fixed.vars.end());
  for (const auto& [name, value] : asked.vars) {
    const auto found = vars.find(name);
    if (found == vars.end() || !same_json(found->second, value))
      refuse(load, "template variable " + name, value, found == vars.end() ? "" : found->second);
  }
  // A file without a clock was made by a template that reads none.
  if (!template_flags.now.empty() && origin.fixed.now && *origin.fixed.now != template_flags.now)
    refuse(load, "clock", template_flags.now, *origin.fixed.now);
  if (template_flags.literal_user_text && origin.fixed.user_text != UserText::Literal)
    refuse(load, "user text", "literal", "read as Transformers reads it");
  if (!template_flags.template_name.empty()) {
    const ChatTemplate& own = model.text().chat_template();
    const auto tools = origin.fixed.tools_json.empty() ? ChatTemplate::Tools::Absent : ChatTemplate::Tools::Given;
    const ChatTemplate used = origin.template_source ? own.with_source(*origin.template_source) : own;
    if (template_flags.choose(own).source(tools) != used.source(tools))
      refuse(load, "template", template_flags.template_name,
             origin.template_source ? "another" : "the checkpoint's own");
  }
  return saved;
}

FixedPart continue_fixed_part(const FixedPart& fixed, const FixedPart& more) {
  FixedPart result = fixed;
  if (result.raw_text) {
    if (!more.raw_text)
      throw Error(ErrorCode::InvalidArgument,
                  "messages: a context of plain text is continued with --context or --context-file");
    *result.raw_text += *more.raw_text;
    return result;
  }
  result.messages_json = append_messages(fixed.messages_json, more.messages_json);
  return result;
}

Prompter FixedPartFlags::make_prompter(std::shared_ptr<const Text> text) const {
  ChatTemplate chosen = template_flags.choose(text->chat_template());
  return Prompter(std::move(text), std::move(chosen), read());
}

}  // namespace kvfork::cli
