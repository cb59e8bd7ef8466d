// What the filter files share.
#include "jinja/builtins/filters.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "jinja/values/compare.h"
#include "jinja/values/operators.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"
#include "jinja/values/text.h"

namespace kvfork::jinja {

Value soft_text(Runtime& rt, const Value& value) {
  return value.is(Kind::String) ? value : rt.string(to_str(rt, value));
}

AttributePath::AttributePath(Runtime& rt, const Value& attribute) {
  if (attribute.is_missing() || attribute.is(Kind::None)) return;
  if (!attribute.is(Kind::String)) {
    parts_.push_back(attribute);
    return;
  }
  std::string_view rest = attribute.text();
  while (true) {
    size_t dot = std::min(rest.find('.'), rest.size());
    std::string_view part = rest.substr(0, dot);
    bool digits = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    int64_t number = 0;
    if (digits && std::from_chars(part.data(), part.data() + part.size(), number).ec == std::errc()) {
      parts_.push_back(Value::integer(number));
    } else {
      parts_.push_back(rt.string(part));
    }
    if (dot == rest.size()) return;
    rest.remove_prefix(dot + 1);
  }
}

Value AttributePath::get(Runtime& rt, const Value& item, const Value& fallback) const {
  Value at = item;
  for (const Value& part : parts_) {
    at = get_item(rt, at, part);
    if (at.is(Kind::Undefined) && !fallback.is_missing() && !fallback.is(Kind::None)) at = fallback;
  }
  return at;
}

Value ignore_case(Runtime& rt, const Value& value) {
  return value.is(Kind::String) ? text_like(rt, value, to_lower(value.text())) : value;
}

void sort_by_keys(Runtime& rt, std::vector<Value>& items, std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Python keeps equal items in place in both directions.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    rt.step();
    return reverse ? is_less(rt, keys[b], keys[a]) : is_less(rt, keys[a], keys[b]);
  });
  std::vector<Value> sorted_items, sorted_keys;
  for (size_t i : order) {
    sorted_items.push_back(items[i]);
    sorted_keys.push_back(keys[i]);
  }
  items = std::move(sorted_items);
  keys = std::move(sorted_keys);
}

}  // namespace kvfork::jinja
