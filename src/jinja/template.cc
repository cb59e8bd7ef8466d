// From source and variables to rendered text.
#include "jinja/template.h"

#include <map>

#include "base/error.h"
#include "base/utf8.h"
#include "jinja/builtins/functions.h"
#include "jinja/conversation.h"
#include "jinja/evaluation/evaluator.h"
#include "jinja/syntax/lexer.h"
#include "jinja/syntax/parser.h"
#include "jinja/syntax/scope.h"
#include "jinja/values/json.h"

namespace kvfork::jinja {
namespace {

constexpr size_t kMaxSource = size_t{4} << 20;

}  // namespace

struct Template::State {
  std::string subject;
  std::string source;
  Parsed parsed;
  Scopes scopes;

  ~State() {
    // The tree refers to the constants, so it goes first.
    parsed.body.clear();
  }
};

Template::Template(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Template Template::parse(std::string_view source, std::string_view subject) {
  if (source.size() > kMaxSource) {
    base::fail(ErrorCode::Limit, "{}: expected a template of at most {} bytes, found {}", subject, kMaxSource,
               source.size());
  }
  size_t invalid = base::find_invalid_utf8(source);
  if (invalid != source.size()) {
    base::fail(ErrorCode::Corrupt, "{}: expected UTF-8, found other bytes at byte {}", subject, invalid);
  }
  auto state = std::make_unique<State>();
  state->subject = std::string(subject);
  state->source = normalize_source(source);
  state->parsed = jinja::parse(tokenize(state->source, subject), state->source, subject);
  state->scopes = analyze_scopes(state->parsed.body, state->source, subject);
  return Template(std::move(state));
}

Rendering Template::render(const RenderInput& input, const Limits& limits) const {
  Runtime rt(limits, state_->subject, state_->source, input.now);
  std::map<std::string_view, Value> given;
  for (const auto& [name, json] : input.variables) {
    const bool is_data = name == "messages" || name == "tools" || name == "documents";
    given[name] = read_json(rt, json, name, is_data ? input.on_text : TextHook());
  }
  Rendering rendering;
  if (input.check_conversation) {
    check_messages(given["messages"]);
    check_objects(given["tools"], "tools");
    check_objects(given["documents"], "documents");
  }
  if (!input.continue_tag.empty()) {
    given["messages"] = append_tag(rt, given["messages"], input.continue_tag, rendering.final_message);
  }
  std::vector<Value> context;
  context.reserve(state_->scopes.names.size());
  for (const std::string& name : state_->scopes.names) {
    auto found = given.find(name);
    if (found != given.end()) {
      context.push_back(found->second);
    } else if (const Function* global = find_global(name)) {
      context.push_back(rt.bound(*global, Value()));
    } else {
      context.emplace_back();
    }
  }
  Evaluator evaluator(rt, std::move(context));
  rendering.text = evaluator.run(state_->parsed.body, state_->scopes.root);
  if (base::find_invalid_utf8(rendering.text) != rendering.text.size()) {
    base::fail(ErrorCode::Template, "{}: the rendered text holds a lone surrogate, which has no UTF-8 form",
               state_->subject);
  }
  return rendering;
}

}  // namespace kvfork::jinja
