// Macros, call blocks and what they pass.
#include "jinja/evaluation/evaluator.h"
#include "jinja/values/printing.h"

namespace kvfork::jinja {

Value Evaluator::make_macro(const Stmt& stmt, Frame& frame) {
  auto macro = std::make_unique<Macro>();
  macro->name = stmt.kind == StmtKind::Macro ? rt_.string(stmt.name) : Value::none();
  macro->stmt = &stmt;
  macro->evaluator = this;
  macro->frame = Ref<Frame>(&frame);
  Value value = Value::object(rt_.adopt(std::move(macro)));
  rt_.keep(value.as_object());
  return value;
}

void Evaluator::run_macro(const Stmt& stmt, Frame& frame) {
  variable(stmt.slot, frame) = make_macro(stmt, frame);
  export_names(stmt, frame);
}

void Evaluator::run_call_block(const Stmt& stmt, Frame& frame) {
  Value caller = make_macro(stmt, frame);
  Value result = eval_call(*stmt.value, frame, &caller);
  output_->append(to_str(rt_, result));
}

void Evaluator::run_generation(const Stmt& stmt, Frame& frame) {
  Value body = make_macro(stmt, frame);
  CallArgs none;
  Value text = call_macro(body.as<Macro>(), none);
  output_->append(text.text());
}

Value Evaluator::call_macro(const Macro& macro, CallArgs& args) {
  Runtime::Deeper deeper(rt_);
  const Stmt& stmt = *macro.stmt;
  Ref<Frame> frame = make_frame(stmt.function, macro.frame.get());
  size_t n_parameters = stmt.items.size();
  std::vector<bool> used(args.keywords.size());
  auto take = [&](const std::string& name) -> Value {
    for (size_t i = 0; i < args.keywords.size(); ++i) {
      if (!used[i] && args.keywords[i].first == name) {
        used[i] = true;
        return args.keywords[i].second;
      }
    }
    return Value();
  };

  bool found_caller = false;
  for (size_t i = 0; i < n_parameters; ++i) {
    const std::string& name = stmt.items[i]->name;
    if (name == "caller") found_caller = true;
    variable(stmt.items[i]->slot, *frame) = i < args.positional.size() ? args.positional[i] : take(name);
  }
  if (stmt.uses_caller && !found_caller) {
    Value caller = take("caller");
    if (caller.is_missing() || caller.is(Kind::None)) caller = rt_.undefined("No caller defined");
    variable(stmt.caller, *frame) = std::move(caller);
  }
  auto name_of = [&] { return macro.name.is(Kind::None) ? std::string("None") : repr_text(macro.name.text()); };
  auto rest = std::make_unique<Dict>();
  for (size_t i = 0; i < args.keywords.size(); ++i) {
    if (used[i]) continue;
    if (!stmt.uses_kwargs) {
      rt_.fail("TypeError",
               fmt::format("macro {} takes no keyword argument {}", name_of(), repr_text(args.keywords[i].first)));
    }
    rest->set(rt_.string(args.keywords[i].first), args.keywords[i].second);
  }
  if (stmt.uses_kwargs) variable(stmt.kwargs, *frame) = rt_.dict(std::move(rest));
  if (stmt.uses_varargs) {
    size_t from = std::min(n_parameters, args.positional.size());
    variable(stmt.varargs, *frame) =
        rt_.tuple({args.positional.begin() + static_cast<ptrdiff_t>(from), args.positional.end()});
  } else if (args.positional.size() > n_parameters) {
    rt_.fail("TypeError", fmt::format("macro {} takes not more than {} argument(s)", name_of(), n_parameters));
  }

  enter(stmt.function.scope, *frame);
  for (size_t i = 0; i < n_parameters; ++i) {
    Value& slot = variable(stmt.items[i]->slot, *frame);
    if (!slot.is_missing()) continue;
    size_t n_without = n_parameters - stmt.values.size();
    Value value = i >= n_without ? eval(*stmt.values[i - n_without], *frame)
                                 : rt_.undefined("parameter '" + stmt.items[i]->name + "' was not provided");
    variable(stmt.items[i]->slot, *frame) = std::move(value);
  }
  std::string text;
  run_captured(stmt.body, *frame, text);
  return rt_.string(std::move(text));
}

}  // namespace kvfork::jinja
