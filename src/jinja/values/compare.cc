// Python's equality and order.
#include "jinja/values/compare.h"

#include <algorithm>
#include <cmath>

#include "base/number.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"

namespace kvfork::jinja {
namespace {

std::partial_ordering compare_int_real(int64_t a, double b) {
  if (std::isnan(b)) return std::partial_ordering::unordered;
  if (b >= 9223372036854775808.0) return std::partial_ordering::less;
  if (b < -9223372036854775808.0) return std::partial_ordering::greater;
  double whole = std::trunc(b);
  auto whole_int = static_cast<int64_t>(whole);
  if (a != whole_int) return a <=> whole_int;
  return 0.0 <=> (b - whole);
}

std::partial_ordering compare_digits(const std::string& a, const std::string& b) {
  bool a_negative = a[0] == '-';
  bool b_negative = b[0] == '-';
  if (a_negative != b_negative) return a_negative ? std::partial_ordering::less : std::partial_ordering::greater;
  std::partial_ordering order = a.size() != b.size() ? a.size() <=> b.size() : a <=> b;
  return a_negative ? 0 <=> order : order;
}

std::partial_ordering reversed(std::partial_ordering order) {
  return 0 <=> order;
}

std::partial_ordering compare_big(const BigInt& a, const Value& b) {
  if (b.is(Kind::BigInt)) return compare_digits(a.digits, b.as<BigInt>().digits);
  double value = b.is(Kind::Float) ? b.as_real() : 0;
  if (std::isnan(value)) return std::partial_ordering::unordered;
  double own = *base::parse_double(a.digits);
  return b.is(Kind::Float) ? own <=> value : own <=> static_cast<double>(b.as_int());
}

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same_object(a[i], b[i]) && !equals(a[i], b[i])) return false;
  }
  return true;
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(key);
    if (other == nullptr || !(same_object(value, *other) || equals(value, *other))) return false;
  }
  return true;
}

bool equal_views(const View& a, const View& b) {
  if (a.part != b.part || a.part == View::Part::Values) return false;
  if (a.part == View::Part::Items) return equal_dicts(*a.dict, *b.dict);
  if (a.dict->entries.size() != b.dict->entries.size()) return false;
  return std::all_of(a.dict->entries.begin(), a.dict->entries.end(),
                     [&](const auto& entry) { return b.dict->find(entry.first) != nullptr; });
}

bool equal_ranges(const Range& a, const Range& b) {
  if (a.length != b.length) return false;
  if (a.length == 0) return true;
  return a.start == b.start && (a.length == 1 || a.step == b.step);
}

template <typename Order>
bool accept(Order order, Comparison op) {
  switch (op) {
    case Comparison::Less:
      return order < 0;
    case Comparison::LessEqual:
      return order <= 0;
    case Comparison::Greater:
      return order > 0;
    case Comparison::GreaterEqual:
      return order >= 0;
  }
  return false;
}

const char* sign_of(Comparison op) {
  static const char* const kSigns[] = {"<", "<=", ">", ">="};
  return kSigns[static_cast<size_t>(op)];
}

[[noreturn]] void fail_order(Runtime& rt, const Value& a, const Value& b, Comparison op) {
  for (const Value* side : {&a, &b}) {
    if (side->is(Kind::Undefined)) rt.fail_undefined(*side);
  }
  rt.fail("TypeError", fmt::format("'{}' not supported between instances of '{}' and '{}'", sign_of(op),
                                   type_name(a), type_name(b)));
}

bool ordered_items(Runtime& rt, const std::vector<Value>& a, const std::vector<Value>& b, Comparison op) {
  size_t n = std::min(a.size(), b.size());
  for (size_t i = 0; i < n; ++i) {
    if (same_object(a[i], b[i]) || equals(a[i], b[i])) continue;
    return ordered(rt, a[i], b[i], op);
  }
  return accept(a.size() <=> b.size(), op);
}

}  // namespace

std::optional<std::partial_ordering> compare_numbers(const Value& a, const Value& b) noexcept {
  if (!a.is_number() || !b.is_number()) return std::nullopt;
  if (a.is(Kind::BigInt)) return compare_big(a.as<BigInt>(), b);
  if (b.is(Kind::BigInt)) return reversed(compare_big(b.as<BigInt>(), a));
  if (a.is(Kind::Float)) {
    if (b.is(Kind::Float)) return a.as_real() <=> b.as_real();
    return reversed(compare_int_real(b.as_int(), a.as_real()));
  }
  if (b.is(Kind::Float)) return compare_int_real(a.as_int(), b.as_real());
  return a.as_int() <=> b.as_int();
}

bool same_object(const Value& a, const Value& b) noexcept {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::Missing:
    case Kind::None:
      return true;
    case Kind::Bool:
    case Kind::Int:
      return a.as_int() == b.as_int();
    case Kind::Float:
      return false;
    case Kind::String:
      return a.as_object() == b.as_object();
    default:
      return a.as_object() == b.as_object();
  }
}

bool equals(const Value& a, const Value& b) noexcept {
  if (auto order = compare_numbers(a, b)) return *order == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::Missing:
    case Kind::None:
    case Kind::Undefined:
      return true;
    case Kind::String:
      return a.text() == b.text();
    case Kind::List:
    case Kind::Tuple:
      return equal_items(a.as<List>().items, b.as<List>().items);
    case Kind::Dict:
      return equal_dicts(a.as<Dict>(), b.as<Dict>());
    case Kind::View:
      return equal_views(a.as<View>(), b.as<View>());
    case Kind::Range:
      return equal_ranges(a.as<Range>(), b.as<Range>());
    case Kind::Function:
      return a.as<BoundFunction>().function == b.as<BoundFunction>().function &&
             same_object(a.as<BoundFunction>().self, b.as<BoundFunction>().self);
    default:
      return a.as_object() == b.as_object();
  }
}

bool ordered(Runtime& rt, const Value& a, const Value& b, Comparison op) {
  if (auto order = compare_numbers(a, b)) return accept(*order, op);
  if (a.kind() != b.kind()) fail_order(rt, a, b, op);
  switch (a.kind()) {
    case Kind::String:
      return accept(a.text() <=> b.text(), op);
    case Kind::List:
    case Kind::Tuple:
      rt.step(std::min(a.as_object()->weight, b.as_object()->weight));
      return ordered_items(rt, a.as<List>().items, b.as<List>().items, op);
    default:
      fail_order(rt, a, b, op);
  }
}

}  // namespace kvfork::jinja
