// The tests behind `is`.
#include <map>
#include <string>

#include "jinja/builtins/functions.h"
#include "jinja/values/compare.h"
#include "jinja/values/iterate.h"
#include "jinja/values/numbers.h"
#include "jinja/values/operators.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"
#include "jinja/values/text_operations.h"

namespace kvfork::jinja {
namespace {

Value is_defined(Call& c) {
  return Value::boolean(!c.self.is(Kind::Undefined));
}
Value is_undefined(Call& c) {
  return Value::boolean(c.self.is(Kind::Undefined));
}
Value is_none(Call& c) {
  return Value::boolean(c.self.is(Kind::None));
}
Value is_boolean(Call& c) {
  return Value::boolean(c.self.is(Kind::Bool));
}
Value is_true(Call& c) {
  return Value::boolean(c.self.is(Kind::Bool) && c.self.as_bool());
}
Value is_false(Call& c) {
  return Value::boolean(c.self.is(Kind::Bool) && !c.self.as_bool());
}
Value is_integer(Call& c) {
  return Value::boolean(c.self.is(Kind::Int) || c.self.is(Kind::BigInt));
}
Value is_float(Call& c) {
  return Value::boolean(c.self.is(Kind::Float));
}
Value is_number(Call& c) {
  return Value::boolean(c.self.is_number());
}
Value is_string(Call& c) {
  return Value::boolean(c.self.is(Kind::String));
}
Value is_mapping(Call& c) {
  return Value::boolean(c.self.is(Kind::Dict));
}
Value is_iterable_test(Call& c) {
  return Value::boolean(is_iterable(c.self));
}
Value is_callable_test(Call& c) {
  return Value::boolean(is_callable(c.self));
}
Value is_escaped(Call& c) {
  return Value::boolean(c.self.is(Kind::String) && c.self.as<String>().markup);
}
Value is_lower_test(Call& c) {
  return Value::boolean(has_case(to_str(c.rt, c.self), false));
}
Value is_upper_test(Call& c) {
  return Value::boolean(has_case(to_str(c.rt, c.self), true));
}

Value is_sequence(Call& c) {
  switch (c.self.kind()) {
    case Kind::String:
    case Kind::List:
    case Kind::Tuple:
    case Kind::Dict:
    case Kind::Range:
    case Kind::Undefined:
      break;
    default:
      return Value::boolean(false);
  }
  // An Undefined has a length and __getitem__; asking for the latter as an attribute works on the type.
  return Value::boolean(true);
}

Value remainder_is(Call& c, const Value& divisor, int64_t expected) {
  Value rest = binary(c.rt, ExprKind::Mod, c.self, divisor);
  return Value::boolean(equals(rest, Value::integer(expected)));
}

Value is_odd(Call& c) {
  return remainder_is(c, Value::integer(2), 1);
}
Value is_even(Call& c) {
  return remainder_is(c, Value::integer(2), 0);
}
Value is_divisible(Call& c) {
  return remainder_is(c, c.args[0], 0);
}
Value is_same(Call& c) {
  return Value::boolean(same_object(c.self, c.args[0]));
}
Value is_in(Call& c) {
  return Value::boolean(contains(c.rt, c.args[0], c.self));
}
Value is_equal(Call& c) {
  return Value::boolean(equals(c.self, c.args[0]));
}
Value is_unequal(Call& c) {
  return Value::boolean(!equals(c.self, c.args[0]));
}

template <Comparison kOp>
Value is_ordered(Call& c) {
  return Value::boolean(ordered(c.rt, c.self, c.args[0], kOp));
}

Value is_known(Call& c, const Function* (*look_up)(std::string_view)) {
  if (!is_hashable(c.self)) c.rt.fail("TypeError", fmt::format("unhashable type: '{}'", type_name(c.self)));
  return Value::boolean(c.self.is(Kind::String) && look_up(c.self.text()) != nullptr);
}
Value is_filter(Call& c) {
  return is_known(c, find_filter);
}
Value is_test(Call& c) {
  return is_known(c, find_test);
}

}  // namespace

const Function* find_test(std::string_view name) {
  static const Function kTests[] = {
      {"odd", "", is_odd},
      {"even", "", is_even},
      {"divisibleby", "num", is_divisible},
      {"defined", "", is_defined},
      {"undefined", "", is_undefined},
      {"filter", "", is_filter},
      {"test", "", is_test},
      {"none", "", is_none},
      {"boolean", "", is_boolean},
      {"false", "", is_false},
      {"true", "", is_true},
      {"integer", "", is_integer},
      {"float", "", is_float},
      {"lower", "", is_lower_test},
      {"upper", "", is_upper_test},
      {"string", "", is_string},
      {"mapping", "", is_mapping},
      {"number", "", is_number},
      {"sequence", "", is_sequence},
      {"iterable", "", is_iterable_test},
      {"callable", "", is_callable_test},
      {"sameas", "other", is_same},
      {"escaped", "", is_escaped},
      {"in", "seq", is_in},
      {"==", "b /", is_equal},
      {"eq", "b /", is_equal},
      {"equalto", "b /", is_equal},
      {"!=", "b /", is_unequal},
      {"ne", "b /", is_unequal},
      {">", "b /", is_ordered<Comparison::Greater>},
      {"gt", "b /", is_ordered<Comparison::Greater>},
      {"greaterthan", "b /", is_ordered<Comparison::Greater>},
      {">=", "b /", is_ordered<Comparison::GreaterEqual>},
      {"ge", "b /", is_ordered<Comparison::GreaterEqual>},
      {"<", "b /", is_ordered<Comparison::Less>},
      {"lt", "b /", is_ordered<Comparison::Less>},
      {"lessthan", "b /", is_ordered<Comparison::Less>},
      {"<=", "b /", is_ordered<Comparison::LessEqual>},
      {"le", "b /", is_ordered<Comparison::LessEqual>},
  };
  static const auto kIndex = [] {
    std::map<std::string_view, const Function*> out;
    for (const Function& function : kTests) out.emplace(function.name, &function);
    return out;
  }();
  auto found = kIndex.find(name);
  return found == kIndex.end() ? nullptr : found->second;
}

}  // namespace kvfork::jinja
