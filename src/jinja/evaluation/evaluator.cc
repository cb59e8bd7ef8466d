// Statements and variables of a rendering.
#include "jinja/evaluation/evaluator.h"

#include "jinja/values/operators.h"
#include "jinja/values/printing.h"

namespace kvfork::jinja {

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

}  // namespace kvfork::jinja
