// Token strings and their ids: an arena of strings, a hash table and an index by id.
//
// Thread rule: const methods may be called from any thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvfork::tokenizer {

/// Hash of a byte string; fast for the short strings that tokens are.
inline uint64_t hash_bytes(std::string_view s) noexcept {
  constexpr uint64_t kMul = 0x9E3779B97F4A7C15u;
  const char* p = s.data();
  size_t n = s.size();
  uint64_t h = n * kMul;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    h = (h ^ word) * kMul;
    h ^= h >> 32;
  }
  uint64_t tail = 0;
  if (n >= 4) {
    uint32_t low, high;
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + n - 4, 4);
    tail = uint64_t{high} << 32 | low;
  } else if (n > 0) {
    tail = static_cast<unsigned char>(p[0]) | static_cast<unsigned char>(p[n / 2]) << 8 |
           uint64_t{static_cast<unsigned char>(p[n - 1])} << 16;
  }
  h = (h ^ tail) * kMul;
  return h ^ (h >> 29);
}

/// Byte string -> id, for keys whose bytes outlive the table. A later insert of the same key wins.
class StringTable {
 public:
  void reserve(size_t n_keys);
  /// Returns the id that the key had before, if any.
  std::optional<int32_t> insert(std::string_view key, int32_t id);
  /// The id, or -1.
  int32_t find(std::string_view key) const noexcept { return find(key, hash_bytes(key)); }
  /// The same with hash_bytes(key) known.
  int32_t find(std::string_view key, uint64_t hash) const noexcept {
    if (slots_.empty()) return -1;
    const auto tag = static_cast<uint32_t>(hash >> 32);
    for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.id < 0) return -1;
      if (slot.tag == tag && std::string_view(slot.data, slot.size) == key) {
        return slot.id;
      }
    }
  }
  /// Hints that a key with this hash is looked up soon.
  /// Inlined: GCC drops calls to a function that does nothing but prefetch.
  [[gnu::always_inline]] void prefetch(uint64_t hash) const noexcept {
    __builtin_prefetch(slots_.data() + (hash & mask_));
  }
  size_t size() const noexcept { return size_; }

 private:
  struct Slot {
    const char* data = nullptr;
    uint32_t size = 0;
    uint32_t tag = 0;
    int32_t id = -1;
  };
  std::vector<Slot> slots_;
  size_t mask_ = 0;
  size_t size_ = 0;
};

class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;
  Vocabulary(Vocabulary&&) noexcept = default;
  Vocabulary& operator=(Vocabulary&&) noexcept = default;

  /// Takes `entries` (token, id). Throws Error{Corrupt} naming `subject` for an id that is negative, too large for
  /// the number of tokens, or given to two tokens. A token that occurs twice has its last id; the earlier id then
  /// has no token, unless `duplicates` is Keep.
  enum class Duplicates { Replace, Keep };
  void build(const std::vector<std::pair<std::string_view, int64_t>>& entries, std::string_view subject,
             Duplicates duplicates = Duplicates::Replace);

  int32_t find(std::string_view token) const noexcept { return table_.find(token); }
  const StringTable& table() const noexcept { return table_; }
  bool has(int32_t id) const noexcept {
    return id >= 0 && static_cast<size_t>(id) < by_id_.size() && by_id_[static_cast<size_t>(id)].size != kNone;
  }
  /// Requires has(id).
  std::string_view token(int32_t id) const noexcept {
    const Entry& e = by_id_[static_cast<size_t>(id)];
    return {arena_.data() + e.offset, e.size};
  }
  /// Number of distinct tokens.
  size_t size() const noexcept { return table_.size(); }
  /// One more than the largest id.
  int32_t id_limit() const noexcept { return static_cast<int32_t>(by_id_.size()); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Entry {
    uint32_t offset = 0;
    uint32_t size = kNone;
  };
  std::vector<char> arena_;
  StringTable table_;
  std::vector<Entry> by_id_;
};

}  // namespace kvfork::tokenizer
