// Methods of dict, list, tuple, range, numbers, cycler and loop.
#include <algorithm>
#include <cmath>

#include "jinja/builtins/functions.h"
#include "jinja/evaluation/loop.h"
#include "jinja/values/compare.h"
#include "jinja/values/iterate.h"
#include "jinja/values/operators.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"

namespace kvfork::jinja {
namespace {

Value dict_get(Call& c) {
  if (!is_hashable(c.args[0])) c.rt.fail("TypeError", fmt::format("unhashable type: '{}'", type_name(c.args[0])));
  if (const Value* found = c.self.as<Dict>().find(c.args[0])) return *found;
  return c.given(1) ? c.args[1] : Value::none();
}

template <View::Part kPart>
Value dict_view(Call& c) {
  return c.rt.view(c.self, kPart);
}

Value dict_copy(Call& c) {
  return c.self;
}

Value sequence_count(Call& c) {
  int64_t n = 0;
  Cursor cursor(c.rt, c.self);
  for (Value item; cursor.next(c.rt, item);) n += same_object(item, c.args[0]) || equals(item, c.args[0]);
  return Value::integer(n);
}

Value sequence_index(Call& c) {
  int64_t length = *length_of(c.rt, c.self);
  auto bound = [&](size_t i, int64_t otherwise) {
    int64_t at = c.integer(i, otherwise);
    return at < 0 ? std::max<int64_t>(0, at + length) : at;
  };
  int64_t start = bound(1, 0);
  int64_t stop = bound(2, length);
  Cursor cursor(c.rt, c.self);
  int64_t at = 0;
  for (Value item; cursor.next(c.rt, item) && at < stop; ++at) {
    if (at >= start && (same_object(item, c.args[0]) || equals(item, c.args[0]))) return Value::integer(at);
  }
  c.rt.fail("ValueError", fmt::format("{} is not in {}", to_repr(c.rt, c.args[0]), type_name(c.self)));
}

Value list_copy(Call& c) {
  return c.self;
}

Value bit_length(Call& c) {
  int64_t value = c.self.as_int();
  uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  return Value::integer(magnitude == 0 ? 0 : 64 - __builtin_clzll(magnitude));
}

Value bit_count(Call& c) {
  int64_t value = c.self.as_int();
  return Value::integer(
      __builtin_popcountll(value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value)));
}

Value conjugate(Call& c) {
  return c.self.is(Kind::Float) ? c.self : Value::integer(c.self.as_int());
}

Value is_integer(Call& c) {
  double value = c.self.as_real();
  return Value::boolean(std::isfinite(value) && value == std::floor(value));
}

Value cycler_next(Call& c) {
  auto& cycler = c.self.as<Cycler>();
  Value current = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return current;
}

Value cycler_reset(Call& c) {
  c.self.as<Cycler>().position = 0;
  return Value::none();
}

Value loop_cycle(Call& c) {
  if (c.raw.positional.empty()) c.rt.fail("TypeError", "no items for cycling given");
  return c.raw.positional[static_cast<size_t>(c.self.as<Loop>().index0) % c.raw.positional.size()];
}

Value loop_changed(Call& c) {
  auto& loop = c.self.as<Loop>();
  Value now = c.rt.tuple(c.raw.positional);
  if (!loop.last_changed.is_missing() && equals(loop.last_changed, now)) return Value::boolean(false);
  c.rt.add_depth(loop, now);
  loop.last_changed = now;
  return Value::boolean(true);
}

}  // namespace

std::span<const Function> dict_methods() {
  static const Function kMethods[] = {
      {"get", "key default? /", dict_get},
      {"keys", "", dict_view<View::Part::Keys>},
      {"values", "", dict_view<View::Part::Values>},
      {"items", "", dict_view<View::Part::Items>},
      {"copy", "", dict_copy},
  };
  return kMethods;
}

std::span<const Function> sequence_methods() {
  static const Function kMethods[] = {
      {"count", "value /", sequence_count},
      {"index", "value start? stop? /", sequence_index},
      {"copy", "", list_copy},
  };
  return kMethods;
}

std::span<const Function> number_methods() {
  static const Function kMethods[] = {
      {"bit_length", "", bit_length},
      {"bit_count", "", bit_count},
      {"conjugate", "", conjugate},
      {"is_integer", "", is_integer},
  };
  return kMethods;
}

std::span<const Function> object_methods() {
  static const Function kMethods[] = {
      {"next", "", cycler_next},
      {"reset", "", cycler_reset},
      {"cycle", "*", loop_cycle},
      {"changed", "*", loop_changed},
  };
  return kMethods;
}

}  // namespace kvfork::jinja
