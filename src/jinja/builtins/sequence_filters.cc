// Filters on sequences and mappings as a whole.
#include <algorithm>
#include <charconv>
#include <numeric>

#include "jinja/builtins/filters.h"
#include "jinja/builtins/functions.h"
#include "jinja/values/compare.h"
#include "jinja/values/iterate.h"
#include "jinja/values/operators.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"
#include "jinja/values/text.h"

namespace kvfork::jinja {

namespace {

Value length(Call& c) {
  return Value::integer(get_length(c.rt, c.self));
}

Value first(Call& c) {
  Cursor cursor(c.rt, c.self);
  Value item;
  return cursor.next(c.rt, item) ? item : c.rt.undefined("No first item, sequence was empty.");
}

bool is_reversible(const Value& value) {
  return is_iterable(value) && !value.is(Kind::Iterator) && !value.is(Kind::Loop);
}

std::vector<Value> reversed_items(Runtime& rt, const Value& value) {
  std::vector<Value> items = collect(rt, value);
  std::reverse(items.begin(), items.end());
  return items;
}

Value last(Call& c) {
  if (!is_reversible(c.self)) {
    c.rt.fail("TypeError", fmt::format("'{}' object is not reversible", type_name(c.self)));
  }
  std::vector<Value> items = collect(c.rt, c.self);
  return items.empty() ? c.rt.undefined("No last item, sequence was empty.") : items.back();
}

Value list(Call& c) {
  return c.rt.list(collect(c.rt, c.self));
}

// The items of a vector, once: what Python's reversed() and generator filters give.
struct OwnedItems : Iterator {
  OwnedItems(const char* name_in, std::vector<Value> items_in) : Iterator(name_in), items(std::move(items_in)) {}
  bool next(Runtime&, Value& item) override {
    if (position >= items.size()) return false;
    item = items[position++];
    return true;
  }
  std::vector<Value> items;
  size_t position = 0;
};

Value make_iterator(Runtime& rt, const char* name, std::vector<Value> items) {
  auto iterator = std::make_unique<OwnedItems>(name, std::move(items));
  for (const Value& item : iterator->items) rt.add_part(*iterator, item);
  size_t n_bytes = sizeof(OwnedItems) + iterator->items.capacity() * sizeof(Value);
  return Value::object(rt.adopt(std::move(iterator), n_bytes));
}

Value reverse(Call& c) {
  if (c.self.is(Kind::String)) {
    return slice(c.rt, c.self, Value(), Value(), Value::integer(-1));
  }
  if (is_reversible(c.self)) return make_iterator(c.rt, "reversed", reversed_items(c.rt, c.self));
  if (!is_iterable(c.self)) c.rt.fail("FilterArgumentError", "argument must be iterable");
  return c.rt.list(reversed_items(c.rt, c.self));
}

Value join(Call& c) {
  std::string separator = c.given(0) ? to_str(c.rt, c.args[0]) : "";
  AttributePath path(c.rt, c.args[1]);
  std::string out;
  Cursor cursor(c.rt, c.self);
  bool first_item = true;
  for (Value item; cursor.next(c.rt, item);) {
    if (!first_item) {
      c.rt.reserve(out.size() + separator.size());
      out += separator;
    }
    first_item = false;
    append_str(c.rt, out, path.get(c.rt, item));
  }
  return c.rt.string(std::move(out));
}

std::vector<Value> make_keys(Call& c, const std::vector<Value>& items, const Value& attribute, bool case_sensitive,
                             const Value& fallback = Value()) {
  AttributePath path(c.rt, attribute);
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    Value key = path.get(c.rt, item, fallback);
    keys.push_back(case_sensitive ? key : ignore_case(c.rt, key));
  }
  return keys;
}

Value sort(Call& c) {
  std::vector<Value> items = collect(c.rt, c.self);
  bool case_sensitive = c.truth(1, false);
  // Several attributes, separated by commas, make a key of several parts.
  std::vector<Value> attributes;
  if (c.given(2) && c.args[2].is(Kind::String)) {
    std::string_view rest = c.args[2].text();
    for (size_t comma = 0; comma != std::string_view::npos;
         rest.remove_prefix(comma == std::string_view::npos ? 0 : comma + 1)) {
      comma = rest.find(',');
      attributes.push_back(c.rt.string(rest.substr(0, comma)));
    }
  } else {
    attributes.push_back(c.given(2) ? c.args[2] : Value::none());
  }
  std::vector<std::vector<Value>> parts(items.size());
  for (const Value& attribute : attributes) {
    std::vector<Value> keys = make_keys(c, items, attribute, case_sensitive);
    for (size_t i = 0; i < items.size(); ++i) parts[i].push_back(std::move(keys[i]));
  }
  std::vector<Value> keys;
  for (auto& part : parts) keys.push_back(c.rt.list(std::move(part)));
  sort_by_keys(c.rt, items, keys, c.truth(0, false));
  return c.rt.list(std::move(items));
}

Value unique(Call& c) {
  std::vector<Value> items = collect(c.rt, c.self);
  std::vector<Value> keys = make_keys(c, items, c.args[1], c.truth(0, false));
  Dict seen;
  std::vector<Value> out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!is_hashable(keys[i])) c.rt.fail("TypeError", fmt::format("unhashable type: '{}'", type_name(keys[i])));
    if (seen.find(keys[i]) != nullptr) continue;
    seen.set(keys[i], Value::none());
    out.push_back(items[i]);
  }
  return make_iterator(c.rt, "generator", std::move(out));
}

template <bool kMax>
Value extreme(Call& c) {
  std::vector<Value> items = collect(c.rt, c.self);
  if (items.empty()) return c.rt.undefined("No aggregated item, sequence was empty.");
  std::vector<Value> keys = make_keys(c, items, c.args[1], c.truth(0, false));
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    if (kMax ? ordered(c.rt, keys[i], keys[best], Comparison::Greater) : is_less(c.rt, keys[i], keys[best]))
      best = i;
  }
  return items[best];
}

Value sum(Call& c) {
  Value total = c.given(1) ? c.args[1] : Value::integer(0);
  if (total.is(Kind::String)) c.rt.fail("TypeError", "sum() can't sum strings [use ''.join(seq) instead]");
  AttributePath path(c.rt, c.args[0]);
  Cursor cursor(c.rt, c.self);
  for (Value item; cursor.next(c.rt, item);) total = add(c.rt, total, path.get(c.rt, item));
  return total;
}

Value batch(Call& c) {
  std::vector<Value> rows, row;
  int64_t size = c.integer(0, 0);
  Cursor cursor(c.rt, c.self);
  for (Value item; cursor.next(c.rt, item);) {
    if (static_cast<int64_t>(row.size()) == size) rows.push_back(c.rt.list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    if (c.given_value(1) && static_cast<int64_t>(row.size()) < size) {
      c.rt.reserve(static_cast<size_t>(size) * sizeof(Value));
      row.resize(static_cast<size_t>(size), c.args[1]);
    }
    rows.push_back(c.rt.list(std::move(row)));
  }
  return make_iterator(c.rt, "generator", std::move(rows));
}

Value slices(Call& c) {
  std::vector<Value> items = collect(c.rt, c.self);
  int64_t n = c.integer(0, 0);
  if (n == 0) c.rt.fail("ZeroDivisionError", "integer division or modulo by zero");
  auto total = static_cast<int64_t>(items.size());
  std::vector<Value> columns;
  int64_t at = 0;
  for (int64_t i = 0; i < n; ++i) {
    c.rt.step();
    int64_t size = total / n + (i < total % n ? 1 : 0);
    std::vector<Value> column(items.begin() + at, items.begin() + at + size);
    at += size;
    if (c.given_value(1) && i >= total % n) column.push_back(c.args[1]);
    columns.push_back(c.rt.list(std::move(column)));
  }
  return make_iterator(c.rt, "generator", std::move(columns));
}

Value group_by(Call& c) {
  std::vector<Value> items = collect(c.rt, c.self);
  bool case_sensitive = c.truth(2, false);
  Value fallback = c.given(1) ? c.args[1] : Value();
  std::vector<Value> keys = make_keys(c, items, c.args[0], case_sensitive, fallback);
  sort_by_keys(c.rt, items, keys, false);
  AttributePath path(c.rt, c.args[0]);
  std::vector<Value> groups;
  for (size_t i = 0; i < items.size();) {
    size_t end = i + 1;
    while (end < items.size() && equals(keys[end], keys[i])) ++end;
    Value members =
        c.rt.list({items.begin() + static_cast<ptrdiff_t>(i), items.begin() + static_cast<ptrdiff_t>(end)});
    Value group = c.rt.pair(case_sensitive ? keys[i] : path.get(c.rt, items[i], fallback), members);
    group.as<List>().group = true;
    groups.push_back(group);
    i = end;
  }
  return c.rt.list(std::move(groups));
}

Value dict_sort(Call& c) {
  std::string_view by = c.text(1, "key");
  if (by != "key" && by != "value") {
    c.rt.fail("FilterArgumentError", "You can only sort by either \"key\" or \"value\"");
  }
  if (c.self.is(Kind::Undefined)) c.rt.fail_undefined(c.self);
  if (!c.self.is(Kind::Dict)) {
    c.rt.fail("AttributeError", fmt::format("'{}' object has no attribute 'items'", type_name(c.self)));
  }
  bool case_sensitive = c.truth(0, false);
  std::vector<Value> items, keys;
  for (const auto& [key, value] : c.self.as<Dict>().entries) {
    const Value& sort_key = by == "key" ? key : value;
    items.push_back(c.rt.pair(key, value));
    keys.push_back(case_sensitive ? sort_key : ignore_case(c.rt, sort_key));
  }
  sort_by_keys(c.rt, items, keys, c.truth(2, false));
  return c.rt.list(std::move(items));
}

Value items(Call& c) {
  if (c.self.is(Kind::Undefined)) return make_iterator(c.rt, "generator", {});
  if (!c.self.is(Kind::Dict)) c.rt.fail("TypeError", "Can only get item pairs from a mapping.");
  return make_iterator(c.rt, "generator", collect(c.rt, c.rt.view(c.self, View::Part::Items)));
}

Value default_value(Call& c) {
  bool replace = c.self.is(Kind::Undefined) || (c.truth(1, false) && !truthy(c.rt, c.self));
  if (!replace) return c.self;
  return c.given(0) ? c.args[0] : c.rt.string("");
}

Value attribute(Call& c) {
  Value found = find_attribute(c.rt, c.self, c.text(0, {}));
  return found.is_missing() ? c.rt.undefined_member(c.self, c.args[0]) : found;
}

Value random_item(Call& c) {
  if (get_length(c.rt, c.self) == 0) return c.rt.undefined("No random item, sequence was empty.");
  c.rt.fail("TemplateRuntimeError", "the filter 'random' is not supported: a rendering must not depend on chance");
}

}  // namespace

std::span<const Function> sequence_filters() {
  static const Function kFilters[] = {
      {"length", "", length},
      {"count", "", length},
      {"first", "", first},
      {"last", "", last},
      {"list", "", list},
      {"reverse", "", reverse},
      {"join", "d? attribute?", join},
      {"sort", "reverse? case_sensitive? attribute?", sort},
      {"unique", "case_sensitive? attribute?", unique},
      {"min", "case_sensitive? attribute?", extreme<false>},
      {"max", "case_sensitive? attribute?", extreme<true>},
      {"sum", "attribute? start?", sum},
      {"batch", "linecount fill_with?", batch},
      {"slice", "slices fill_with?", slices},
      {"groupby", "attribute default? case_sensitive?", group_by},
      {"dictsort", "case_sensitive? by? reverse?", dict_sort},
      {"items", "", items},
      {"default", "default_value? boolean?", default_value},
      {"d", "default_value? boolean?", default_value},
      {"attr", "name", attribute},
      {"random", "*", random_item},
  };
  return kFilters;
}

}  // namespace kvfork::jinja
