#include "jinja/evaluator.h"

#include "jinja/compare.h"
#include "jinja/operators.h"
#include "jinja/printing.h"

namespace kvfork::jinja {
namespace {

// The items of a loop that pass its test, tested as they are asked for.
struct TestedItems : Iterator {
  TestedItems(Evaluator& evaluator_in, const Stmt& stmt_in, Ref<Frame> frame_in, Cursor cursor_in)
      : Iterator("generator"),
        evaluator(evaluator_in),
        stmt(stmt_in),
        frame(std::move(frame_in)),
        cursor(std::move(cursor_in)) {}

  bool next(Runtime& rt, Value& item) override {
    if (!entered) evaluator.enter(stmt.test_function.scope, *frame);
    entered = true;
    for (Value candidate; cursor.next(rt, candidate);) {
      if (evaluator.passes_test(stmt, *frame, candidate, item)) return true;
    }
    return false;
  }

  Evaluator& evaluator;
  const Stmt& stmt;
  Ref<Frame> frame;
  Cursor cursor;
  bool entered = false;
};

}  // namespace

std::string Evaluator::run(const Body& body, const FunctionInfo& root) {
  Output output(rt_);
  output_ = &output;
  Ref<Frame> frame = make_frame(root, nullptr);
  enter(root.scope, *frame);
  run_body(body, *frame);
  output_ = nullptr;
  return output.take();
}

// --- Variables.

Ref<Frame> Evaluator::make_frame(const FunctionInfo& function, Frame* parent) {
  auto frame = std::make_unique<Frame>();
  frame->slots.resize(function.n_slots);
  frame->parent = Ref<Frame>(parent);
  size_t n_bytes = sizeof(Frame) + frame->slots.size() * sizeof(Value);
  return Ref<Frame>(rt_.adopt(std::move(frame), n_bytes));
}

Value& Evaluator::variable(SlotRef slot, Frame& frame) {
  Frame* at = &frame;
  for (uint16_t i = 0; i < slot.hops; ++i) at = at->parent.get();
  return at->slots[slot.index];
}

void Evaluator::enter(const ScopeInfo& scope, Frame& frame) {
  for (const Load& load : scope.loads) {
    switch (load.action) {
      case Load::Action::Resolve:
        frame.slots[load.slot] = context_[load.name];
        break;
      case Load::Action::Alias:
        frame.slots[load.slot] = Value(variable(load.source, frame));
        break;
      case Load::Action::Undefine:
        frame.slots[load.slot] = Value();
        break;
      case Load::Action::Parameter:
        break;
    }
  }
}

void Evaluator::leave(const ScopeInfo& scope, Frame& frame) {
  for (const Load& load : scope.loads) frame.slots[load.slot] = Value();
}

void Evaluator::export_names(const Stmt& stmt, Frame& frame) {
  for (const auto& [slot, name] : stmt.exported) context_[name] = variable(slot, frame);
}

void Evaluator::check_namespaces(const Expr& target, Frame& frame) {
  if (target.kind == ExprKind::NamespaceRef && !variable(target.slot, frame).is(Kind::Namespace)) {
    rt_.at(target.offset);
    rt_.fail("TemplateRuntimeError", "cannot assign attribute on non-namespace object");
  }
  for (const ExprPtr& item : target.items) check_namespaces(*item, frame);
}

void Evaluator::assign(const Expr& target, Value value, Frame& frame) {
  if (target.kind == ExprKind::Name) {
    variable(target.slot, frame) = std::move(value);
    return;
  }
  if (target.kind == ExprKind::NamespaceRef) {
    auto& space = variable(target.slot, frame).as<Namespace>();
    space.attributes->set(target.constant, std::move(value));
    return;
  }
  rt_.at(target.offset);
  if (!is_iterable(value)) {
    rt_.fail("TypeError", fmt::format("cannot unpack non-iterable {} object", type_name(value)));
  }
  std::vector<Value> items;
  Cursor cursor(rt_, std::move(value));
  size_t expected = target.items.size();
  for (Value item; cursor.next(rt_, item);) {
    if (items.size() == expected) {
      rt_.fail("ValueError", fmt::format("too many values to unpack (expected {})", expected));
    }
    items.push_back(item);
  }
  if (items.size() < expected) {
    rt_.fail("ValueError",
             fmt::format("not enough values to unpack (expected {}, got {})", expected, items.size()));
  }
  for (size_t i = 0; i < expected; ++i) assign(*target.items[i], std::move(items[i]), frame);
}

// --- Statements.

Evaluator::Flow Evaluator::run_body(const Body& body, Frame& frame) {
  Runtime::Deeper deeper(rt_);
  for (const StmtPtr& stmt : body) {
    Flow flow = run_stmt(*stmt, frame);
    if (flow != Flow::Normal) return flow;
  }
  return Flow::Normal;
}

Evaluator::Flow Evaluator::run_stmt(const Stmt& stmt, Frame& frame) {
  rt_.step();
  switch (stmt.kind) {
    case StmtKind::Output:
      for (const ExprPtr& item : stmt.items) write(*item, frame);
      return Flow::Normal;
    case StmtKind::Set:
      check_namespaces(*stmt.target, frame);
      assign(*stmt.target, eval(*stmt.value, frame), frame);
      export_names(stmt, frame);
      return Flow::Normal;
    case StmtKind::SetBlock:
      return run_set_block(stmt, frame);
    case StmtKind::For:
      return run_for(stmt, frame);
    case StmtKind::If:
      return run_if(stmt, frame);
    case StmtKind::Macro:
      run_macro(stmt, frame);
      return Flow::Normal;
    case StmtKind::CallBlock:
      run_call_block(stmt, frame);
      return Flow::Normal;
    case StmtKind::Generation:
      run_generation(stmt, frame);
      return Flow::Normal;
    case StmtKind::FilterBlock:
      return run_filter_block(stmt, frame);
    case StmtKind::With:
      return run_with(stmt, frame);
    case StmtKind::Scope:
      return run_scope(stmt, frame);
    case StmtKind::Block:
      run_block(stmt);
      return Flow::Normal;
    case StmtKind::Break:
      return Flow::Break;
    case StmtKind::Continue:
      return Flow::Continue;
  }
  return Flow::Normal;
}

void Evaluator::write(const Expr& expr, Frame& frame) {
  if (expr.kind == ExprKind::Const && expr.constant.is(Kind::String)) {
    output_->append(expr.constant.text());
    return;
  }
  Value value = eval(expr, frame);
  rt_.at(expr.offset);
  if (value.is(Kind::String)) {
    output_->append(value.text());
  } else {
    output_->append(to_str(rt_, value));
  }
}

Evaluator::Flow Evaluator::run_if(const Stmt& stmt, Frame& frame) {
  if (evaluate_test(*stmt.value, frame)) return run_body(stmt.body, frame);
  for (const StmtPtr& elif : stmt.elifs) {
    if (evaluate_test(*elif->value, frame)) return run_body(elif->body, frame);
  }
  return run_body(stmt.else_body, frame);
}

bool Evaluator::evaluate_test(const Expr& expr, Frame& frame) {
  return truthy(rt_, eval(expr, frame));
}

bool Evaluator::passes_test(const Stmt& loop, Frame& frame, const Value& item, Value& kept) {
  assign(*loop.test_target, item, frame);
  if (!evaluate_test(*loop.test, frame)) return false;
  kept = eval(*loop.test_target, frame);
  return true;
}

Value Evaluator::filtered(const Stmt& stmt, Frame& frame, Value iterable) {
  if (!stmt.test) return iterable;
  auto items =
      std::make_unique<TestedItems>(*this, stmt, make_frame(stmt.test_function, &frame), Cursor(rt_, iterable));
  rt_.add_part(*items, iterable);
  return Value::object(rt_.adopt(std::move(items)));
}

Ref<Loop> Evaluator::make_loop(const Stmt& stmt, Frame& frame, const Value& iterable, int64_t depth0) {
  auto loop = std::make_unique<Loop>(rt_, iterable);
  loop->depth0 = depth0;
  if (stmt.recursive) {
    loop->evaluator = this;
    loop->stmt = &stmt;
    loop->frame = Ref<Frame>(&frame);
  }
  return Ref<Loop>(rt_.adopt(std::move(loop)));
}

Evaluator::Flow Evaluator::run_for(const Stmt& stmt, Frame& frame) {
  Value iterable = eval(*stmt.value, frame);
  rt_.at(stmt.value->offset);
  if (stmt.recursive) {
    Value text = render_recursive(stmt, frame, iterable, 0);
    output_->append(text.text());
    return Flow::Normal;
  }
  iterable = filtered(stmt, frame, std::move(iterable));
  if (!stmt.uses_loop) return iterate(stmt, frame, iterable, nullptr);
  Ref<Loop> loop = make_loop(stmt, frame, iterable, 0);
  return iterate(stmt, frame, iterable, loop.get());
}

Value Evaluator::render_recursive(const Stmt& stmt, Frame& frame, const Value& iterable, int64_t depth0) {
  Runtime::Deeper deeper(rt_);
  Ref<Frame> own = make_frame(stmt.function, &frame);
  Ref<Loop> loop = make_loop(stmt, frame, filtered(stmt, frame, iterable), depth0);
  Output output(rt_);
  Output* outer = std::exchange(output_, &output);
  iterate(stmt, *own, loop->iterable, loop.get());
  output_ = outer;
  return rt_.string(output.take());
}

Value Evaluator::call_loop(const Loop& loop, CallArgs& args) {
  if (loop.stmt == nullptr) {
    rt_.fail("TypeError", "The loop must have the 'recursive' marker to be called recursively.");
  }
  const Value* iterable = args.positional.size() == 1 && args.keywords.empty()   ? args.positional.data()
                          : args.positional.empty() && args.keywords.size() == 1 ? args.find("iterable")
                                                                                 : nullptr;
  if (iterable == nullptr) rt_.fail("TypeError", "loop() takes one argument: what to iterate over");
  return render_recursive(*loop.stmt, *loop.frame, *iterable, loop.depth0 + 1);
}

// Runs the body for every item, then `else` when no pass ended normally (jinja2 marks a loop as run at a pass's
// end).
Evaluator::Flow Evaluator::iterate(const Stmt& stmt, Frame& frame, const Value& iterable, Loop* loop) {
  // The scope is left even by an exception: `loop` in a variable that the loop's own items can reach is a cycle.
  struct LeaveAtEnd {
    Evaluator& evaluator;
    const ScopeInfo& scope;
    Frame& frame;
    ~LeaveAtEnd() { evaluator.leave(scope, frame); }
  };
  bool completed = false;
  {
    LeaveAtEnd leave_at_end{*this, stmt.scope, frame};
    completed = run_items(stmt, frame, iterable, loop);
  }
  if (loop != nullptr && loop->refs > 1) loop->finish(rt_);
  if (completed || stmt.else_body.empty()) return Flow::Normal;
  enter(stmt.else_scope, frame);
  Flow flow = run_body(stmt.else_body, frame);
  leave(stmt.else_scope, frame);
  return flow;
}

// True when at least one pass of the body ran to its end.
bool Evaluator::run_items(const Stmt& stmt, Frame& frame, const Value& iterable, Loop* loop) {
  bool completed = false;
  if (loop != nullptr) variable(stmt.slot, frame) = Value();
  std::optional<Cursor> cursor;
  if (loop == nullptr) cursor.emplace(rt_, iterable);
  Value item;
  while (loop != nullptr ? loop->advance(rt_) : cursor->next(rt_, item)) {
    assign(*stmt.target, loop != nullptr ? loop->current : item, frame);
    if (loop != nullptr) variable(stmt.slot, frame) = Value::object(loop);
    enter(stmt.scope, frame);
    Flow flow = run_body(stmt.body, frame);
    if (flow == Flow::Break) break;
    if (flow == Flow::Normal) completed = true;
  }
  return completed;
}

Evaluator::Flow Evaluator::run_captured(const Body& body, Frame& frame, std::string& text) {
  Output output(rt_);
  Output* outer = std::exchange(output_, &output);
  Flow flow = run_body(body, frame);
  output_ = outer;
  text = output.take();
  return flow;
}

Evaluator::Flow Evaluator::run_set_block(const Stmt& stmt, Frame& frame) {
  enter(stmt.scope, frame);
  std::string text;
  Flow flow = run_captured(stmt.body, frame, text);
  if (flow != Flow::Normal) return flow;
  Value value = rt_.string(std::move(text));
  if (stmt.value) value = eval_filter(*stmt.value, frame, &value);
  check_namespaces(*stmt.target, frame);
  assign(*stmt.target, std::move(value), frame);
  export_names(stmt, frame);
  leave(stmt.scope, frame);
  return Flow::Normal;
}

Evaluator::Flow Evaluator::run_filter_block(const Stmt& stmt, Frame& frame) {
  enter(stmt.scope, frame);
  std::string text;
  Flow flow = run_captured(stmt.body, frame, text);
  if (flow != Flow::Normal) return flow;
  Value value = rt_.string(std::move(text));
  output_->append(to_str(rt_, eval_filter(*stmt.value, frame, &value)));
  leave(stmt.scope, frame);
  return Flow::Normal;
}

Evaluator::Flow Evaluator::run_with(const Stmt& stmt, Frame& frame) {
  enter(stmt.scope, frame);
  for (size_t i = 0; i < stmt.items.size(); ++i) assign(*stmt.items[i], eval(*stmt.values[i], frame), frame);
  Flow flow = run_body(stmt.body, frame);
  leave(stmt.scope, frame);
  return flow;
}

Evaluator::Flow Evaluator::run_scope(const Stmt& stmt, Frame& frame) {
  enter(stmt.scope, frame);
  Flow flow = run_body(stmt.body, frame);
  leave(stmt.scope, frame);
  return flow;
}

void Evaluator::run_block(const Stmt& stmt) {
  Ref<Frame> frame = make_frame(stmt.function, nullptr);
  enter(stmt.function.scope, *frame);
  run_body(stmt.body, *frame);
}

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

// --- Expressions.

Value Evaluator::eval(const Expr& expr, Frame& frame) {
  Runtime::Deeper deeper(rt_);
  rt_.step();
  switch (expr.kind) {
    case ExprKind::Const:
      return expr.constant;
    case ExprKind::Name:
      return eval_name(expr, frame);
    case ExprKind::NamespaceRef:
      return Value();
    case ExprKind::Tuple:
      return rt_.tuple(eval_items(expr.items, frame));
    case ExprKind::List:
      return rt_.list(eval_items(expr.items, frame));
    case ExprKind::Dict:
      return eval_dict(expr, frame);
    case ExprKind::Attribute: {
      Value object = eval(*expr.a, frame);
      rt_.at(expr.offset);
      return get_attribute(rt_, object, expr.name, expr.constant);
    }
    case ExprKind::Item:
      return eval_item(expr, frame);
    case ExprKind::Slice:
      return Value();
    case ExprKind::Call:
      return eval_call(expr, frame, nullptr);
    case ExprKind::Filter:
    case ExprKind::Test:
      return eval_filter(expr, frame, nullptr);
    case ExprKind::Not:
      return Value::boolean(!evaluate_test(*expr.a, frame));
    case ExprKind::Neg:
    case ExprKind::Pos: {
      Value operand = eval(*expr.a, frame);
      rt_.at(expr.offset);
      return expr.kind == ExprKind::Neg ? negate(rt_, operand) : positive(rt_, operand);
    }
    case ExprKind::And: {
      Value left = eval(*expr.a, frame);
      return truthy(rt_, left) ? eval(*expr.b, frame) : left;
    }
    case ExprKind::Or: {
      Value left = eval(*expr.a, frame);
      return truthy(rt_, left) ? left : eval(*expr.b, frame);
    }
    case ExprKind::Concat:
      return eval_concat(expr, frame);
    case ExprKind::Compare:
      return eval_compare(expr, frame);
    case ExprKind::Conditional:
      if (evaluate_test(*expr.a, frame)) return eval(*expr.b, frame);
      if (expr.c) return eval(*expr.c, frame);
      return rt_.undefined("the inline if-expression evaluated to false and no else section was defined.");
    default: {
      Value left = eval(*expr.a, frame);
      Value right = eval(*expr.b, frame);
      rt_.at(expr.offset);
      return binary(rt_, expr.kind, left, right);
    }
  }
}

Value Evaluator::eval_name(const Expr& expr, Frame& frame) {
  const Value& value = variable(expr.slot, frame);
  if (!value.is_missing()) return value;
  return rt_.undefined_name(expr.name);
}

std::vector<Value> Evaluator::eval_items(const std::vector<ExprPtr>& items, Frame& frame) {
  std::vector<Value> values;
  values.reserve(items.size());
  for (const ExprPtr& item : items) values.push_back(eval(*item, frame));
  return values;
}

Value Evaluator::eval_dict(const Expr& expr, Frame& frame) {
  auto dict = std::make_unique<Dict>();
  for (size_t i = 0; i + 1 < expr.items.size(); i += 2) {
    Value key = eval(*expr.items[i], frame);
    Value value = eval(*expr.items[i + 1], frame);
    rt_.at(expr.items[i]->offset);
    if (!is_hashable(key)) rt_.fail("TypeError", fmt::format("unhashable type: '{}'", type_name(key)));
    dict->set(std::move(key), std::move(value));
  }
  return rt_.dict(std::move(dict));
}

Value Evaluator::eval_concat(const Expr& expr, Frame& frame) {
  std::string text;
  std::vector<Value> parts = eval_items(expr.items, frame);
  rt_.at(expr.offset);
  for (const Value& part : parts) append_str(rt_, text, part);
  return rt_.string(std::move(text));
}

bool Evaluator::compare(CompareOp op, const Value& a, const Value& b) {
  if (a.is_object() && b.is_object()) rt_.step(std::min(a.as_object()->weight, b.as_object()->weight) / 4);
  switch (op) {
    case CompareOp::Eq:
      return equals(a, b);
    case CompareOp::Ne:
      return !equals(a, b);
    case CompareOp::Lt:
      return ordered(rt_, a, b, Comparison::Less);
    case CompareOp::Le:
      return ordered(rt_, a, b, Comparison::LessEqual);
    case CompareOp::Gt:
      return ordered(rt_, a, b, Comparison::Greater);
    case CompareOp::Ge:
      return ordered(rt_, a, b, Comparison::GreaterEqual);
    case CompareOp::In:
      return contains(rt_, b, a);
    case CompareOp::NotIn:
      return !contains(rt_, b, a);
  }
  return false;
}

Value Evaluator::eval_compare(const Expr& expr, Frame& frame) {
  Value left = eval(*expr.a, frame);
  for (size_t i = 0; i < expr.items.size(); ++i) {
    Value right = eval(*expr.items[i], frame);
    rt_.at(expr.offset);
    if (!compare(expr.ops[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::eval_item(const Expr& expr, Frame& frame) {
  Value object = eval(*expr.a, frame);
  if (expr.b->kind != ExprKind::Slice) {
    Value key = eval(*expr.b, frame);
    rt_.at(expr.offset);
    return get_item(rt_, object, key);
  }
  const Expr& bounds = *expr.b;
  Value start = bounds.a ? eval(*bounds.a, frame) : Value();
  Value stop = bounds.b ? eval(*bounds.b, frame) : Value();
  Value step = bounds.c ? eval(*bounds.c, frame) : Value();
  rt_.at(expr.offset);
  // Among constants jinja2 takes the lookup that forgives, not Python's slice.
  if (expr.folds && !can_slice(object, start, stop, step)) return rt_.undefined("the slice is undefined");
  return slice(rt_, object, start, stop, step);
}

void Evaluator::eval_arguments(const CallSyntax& syntax, Frame& frame, CallArgs& args, const Value* caller) {
  args.positional = eval_items(syntax.positional, frame);
  for (const auto& [name, expr] : syntax.keywords) args.keywords.emplace_back(name, eval(*expr, frame));
  if (caller != nullptr) args.keywords.emplace_back("caller", *caller);
  if (syntax.star) {
    Cursor cursor(rt_, eval(*syntax.star, frame));
    for (Value item; cursor.next(rt_, item);) args.positional.push_back(item);
  }
  if (!syntax.double_star) return;
  Value mapping = eval(*syntax.double_star, frame);
  if (!mapping.is(Kind::Dict)) rt_.fail("TypeError", "argument after ** must be a mapping");
  for (const auto& [key, value] : mapping.as<Dict>().entries) {
    if (!key.is(Kind::String)) rt_.fail("TypeError", "keywords must be strings");
    if (args.find(key.text()) != nullptr) {
      rt_.fail("TypeError", fmt::format("got multiple values for keyword argument '{}'", key.text()));
    }
    args.keywords.emplace_back(std::string(key.text()), value);
  }
}

Value Evaluator::eval_call(const Expr& expr, Frame& frame, const Value* caller) {
  Value callee = eval(*expr.a, frame);
  CallArgs args;
  eval_arguments(*expr.args, frame, args, caller);
  rt_.at(expr.offset);
  return call_value(rt_, callee, args);
}

Value Evaluator::eval_filter(const Expr& expr, Frame& frame, const Value* operand) {
  // A chain of filters on a block's text ends in a null operand, which stands for that text.
  Value self =
      expr.a ? (operand != nullptr ? eval_filter(*expr.a, frame, operand) : eval(*expr.a, frame)) : *operand;
  CallArgs args;
  if (!expr.args->empty()) eval_arguments(*expr.args, frame, args);
  rt_.at(expr.offset);
  if (expr.function == nullptr) {
    rt_.fail("TemplateRuntimeError",
             fmt::format("No {} named '{}' found.", expr.kind == ExprKind::Filter ? "filter" : "test", expr.name));
  }
  return invoke(rt_, *expr.function, self, args);
}

}  // namespace kvfork::jinja
