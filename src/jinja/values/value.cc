// Dicts and hashes.
#include "jinja/values/value.h"

#include <cmath>
#include <functional>

#include "jinja/values/compare.h"
#include "jinja/values/text.h"

namespace kvfork::jinja {
namespace {

constexpr size_t kIndexFrom = 8;

size_t mix(size_t seed, size_t value) {
  return (seed ^ value) * 0x9E3779B97F4A7C15ull + 0x632BE59B;
}

}  // namespace

std::string_view Value::text() const noexcept {
  return as<String>().text;
}

size_t String::n_chars() const noexcept {
  if (n_chars_ == SIZE_MAX) n_chars_ = count_chars(text);
  return n_chars_;
}

bool is_hashable(const Value& key) noexcept {
  switch (key.kind()) {
    case Kind::List:
    case Kind::Dict:
      return false;
    case Kind::View:
      return key.as<View>().part == View::Part::Values;
    case Kind::Tuple:
      for (const Value& item : key.as<List>().items) {
        if (!is_hashable(item)) return false;
      }
      return true;
    default:
      return true;
  }
}

size_t hash_value(const Value& key) noexcept {
  switch (key.kind()) {
    case Kind::Bool:
    case Kind::Int:
      return std::hash<int64_t>()(key.as_int());
    case Kind::Float: {
      double value = key.as_real();
      if (value == std::floor(value) && std::fabs(value) < 9e18) {
        return std::hash<int64_t>()(static_cast<int64_t>(value));
      }
      return std::hash<double>()(value);
    }
    case Kind::BigInt:
      return 7;  // a float may equal it
    case Kind::String:
      return std::hash<std::string_view>()(key.text());
    case Kind::Tuple: {
      size_t seed = 1;
      for (const Value& item : key.as<List>().items) seed = mix(seed, hash_value(item));
      return seed;
    }
    case Kind::Missing:
    case Kind::None:
    case Kind::Undefined:
    case Kind::Range:
      return static_cast<size_t>(key.kind());
    default:
      return std::hash<const void*>()(key.as_object());
  }
}

size_t Dict::position(size_t hash, const Value& key) const {
  if (entries.size() <= kIndexFrom) {
    for (size_t i = 0; i < entries.size(); ++i) {
      if (equals(entries[i].first, key)) return i;
    }
    return entries.size();
  }
  auto [first, last] = index_.equal_range(hash);
  for (; first != last; ++first) {
    if (equals(entries[first->second].first, key)) return first->second;
  }
  return entries.size();
}

const Value* Dict::find(const Value& key) const {
  size_t at = position(entries.size() <= kIndexFrom ? 0 : hash_value(key), key);
  return at == entries.size() ? nullptr : &entries[at].second;
}

const Value* Dict::find(std::string_view key) const {
  if (entries.size() <= kIndexFrom) {
    for (const auto& [name, value] : entries) {
      if (name.is(Kind::String) && name.text() == key) return &value;
    }
    return nullptr;
  }
  auto [first, last] = index_.equal_range(std::hash<std::string_view>()(key));
  for (; first != last; ++first) {
    const auto& [name, value] = entries[first->second];
    if (name.is(Kind::String) && name.text() == key) return &value;
  }
  return nullptr;
}

void Dict::set(Value key, Value value) {
  size_t hash = hash_value(key);
  size_t at = position(hash, key);
  if (at < entries.size()) {
    entries[at].second = std::move(value);
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() == kIndexFrom + 1) {
    for (size_t i = 0; i < entries.size(); ++i) index_.emplace(hash_value(entries[i].first), i);
  } else if (entries.size() > kIndexFrom) {
    index_.emplace(hash, at);
  }
}

}  // namespace kvfork::jinja
