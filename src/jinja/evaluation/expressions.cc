// Expressions, one function for each kind that needs more than a line.
#include "jinja/evaluation/evaluator.h"
#include "jinja/values/compare.h"
#include "jinja/values/operators.h"
#include "jinja/values/printing.h"

namespace kvfork::jinja {

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

bool Evaluator::evaluate_test(const Expr& expr, Frame& frame) {
  return truthy(rt_, eval(expr, frame));
}

}  // namespace kvfork::jinja
