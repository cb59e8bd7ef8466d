// Walking over whatever Python iterates.
#include "jinja/values/iterate.h"

#include "jinja/evaluation/loop.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"
#include "jinja/values/text.h"

namespace kvfork::jinja {

Cursor::Cursor(Runtime& rt, Value iterable) : source_(std::move(iterable)) {
  if (!is_iterable(source_)) rt.fail("TypeError", fmt::format("'{}' object is not iterable", type_name(source_)));
}

bool Cursor::next(Runtime& rt, Value& item) {
  rt.step();
  switch (source_.kind()) {
    case Kind::List:
    case Kind::Tuple: {
      const auto& items = source_.as<List>().items;
      if (position_ >= items.size()) return false;
      item = items[position_++];
      return true;
    }
    case Kind::Dict: {
      const auto& entries = source_.as<Dict>().entries;
      if (position_ >= entries.size()) return false;
      item = entries[position_++].first;
      return true;
    }
    case Kind::View: {
      const auto& view = source_.as<View>();
      if (position_ >= view.dict->entries.size()) return false;
      const auto& [key, value] = view.dict->entries[position_++];
      item = view.part == View::Part::Keys ? key : view.part == View::Part::Values ? value : rt.pair(key, value);
      return true;
    }
    case Kind::Range: {
      const auto& range = source_.as<Range>();
      if (position_ >= static_cast<size_t>(range.length)) return false;
      item = Value::integer(range.at(static_cast<int64_t>(position_++)));
      return true;
    }
    case Kind::String: {
      const auto& string = source_.as<String>();
      if (position_ >= string.text.size()) return false;
      size_t start = position_;
      next_char(string.text, position_);
      item = rt.string(string.text.substr(start, position_ - start));
      return true;
    }
    case Kind::Iterator: {
      Runtime::Deeper deeper(rt);
      return source_.as<Iterator>().next(rt, item);
    }
    case Kind::Loop: {
      auto& loop = source_.as<Loop>();
      if (!loop.advance(rt)) return false;
      item = rt.pair(loop.current, source_);
      return true;
    }
    default:
      return false;
  }
}

bool is_iterable(const Value& value) noexcept {
  switch (value.kind()) {
    case Kind::List:
    case Kind::Tuple:
    case Kind::Dict:
    case Kind::View:
    case Kind::Range:
    case Kind::String:
    case Kind::Iterator:
    case Kind::Undefined:
    case Kind::Loop:
      return true;
    default:
      return false;
  }
}

std::optional<int64_t> length_of(Runtime& rt, const Value& value) {
  switch (value.kind()) {
    case Kind::List:
    case Kind::Tuple:
      return static_cast<int64_t>(value.as<List>().items.size());
    case Kind::Dict:
      return static_cast<int64_t>(value.as<Dict>().entries.size());
    case Kind::View:
      return static_cast<int64_t>(value.as<View>().dict->entries.size());
    case Kind::Range:
      return value.as<Range>().length;
    case Kind::String:
      return static_cast<int64_t>(value.as<String>().n_chars());
    case Kind::Undefined:
      return 0;
    case Kind::Loop:
      return value.as<Loop>().length(rt);
    default:
      return std::nullopt;
  }
}

int64_t get_length(Runtime& rt, const Value& value) {
  if (auto length = length_of(rt, value)) return *length;
  rt.fail("TypeError", fmt::format("object of type '{}' has no len()", type_name(value)));
}

std::vector<Value> collect(Runtime& rt, const Value& iterable) {
  if (iterable.is(Kind::List) || iterable.is(Kind::Tuple)) {
    rt.step(1 + iterable.as<List>().items.size() / 4);
    rt.reserve(iterable.as<List>().items.size() * sizeof(Value));
    return iterable.as<List>().items;
  }
  std::vector<Value> items;
  Cursor cursor(rt, iterable);
  for (Value item; cursor.next(rt, item);) {
    rt.reserve(items.size() * sizeof(Value));
    items.push_back(item);
  }
  return items;
}

}  // namespace kvfork::jinja
