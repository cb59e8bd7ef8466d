// Tokens and ids.
#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace kvfork::tokenizer {

void StringTable::reserve(size_t n_keys) {
  slots_.assign(std::bit_ceil(n_keys * 2 + 8), Slot{});
  mask_ = slots_.size() - 1;
  size_ = 0;
}

std::optional<int32_t> StringTable::insert(std::string_view key, int32_t id) {
  const uint64_t hash = hash_bytes(key);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  size_t i = hash & mask_;
  for (; slots_[i].id >= 0; i = (i + 1) & mask_) {
    Slot& slot = slots_[i];
    if (slot.tag == tag && std::string_view(slot.data, slot.size) == key) {
      return std::exchange(slot.id, id);
    }
  }
  slots_[i] = {key.data(), static_cast<uint32_t>(key.size()), tag, id};
  ++size_;
  return std::nullopt;
}

void Vocabulary::build(const std::vector<std::pair<std::string_view, int64_t>>& entries, std::string_view subject,
                       Duplicates duplicates) {
  size_t n_bytes = 0;
  int64_t max_id = -1;
  // Models leave gaps between ids, but an index by id must stay in proportion to the file.
  const auto limit = static_cast<int64_t>(entries.size() * 8 + (size_t{1} << 20));
  for (const auto& [token, id] : entries) {
    if (id < 0 || id > limit) {
      base::fail(ErrorCode::Corrupt, "{}: expected token ids from 0 to {} for {} tokens, found {} for \"{}\"",
                 subject, limit, entries.size(), id, token);
    }
    n_bytes += token.size();
    max_id = std::max(max_id, id);
  }
  if (n_bytes >= UINT32_MAX) base::fail(ErrorCode::Limit, "{}: the vocabulary's strings exceed 4 GiB", subject);
  arena_.clear();
  arena_.reserve(n_bytes + 1);
  table_.reserve(entries.size());
  by_id_.assign(static_cast<size_t>(max_id + 1), Entry{});
  for (const auto& [token, id] : entries) {
    const auto offset = static_cast<uint32_t>(arena_.size());
    arena_.insert(arena_.end(), token.begin(), token.end());
    const std::string_view stored(arena_.data() + offset, token.size());
    const auto previous = table_.insert(stored, static_cast<int32_t>(id));
    if (previous && duplicates == Duplicates::Replace) {
      by_id_[static_cast<size_t>(*previous)] = Entry{};
    }
    Entry& entry = by_id_[static_cast<size_t>(id)];
    if (entry.size != kNone) {
      base::fail(ErrorCode::Corrupt, "{}: expected one token per id, found id {} for \"{}\" and for \"{}\"",
                 subject, id, std::string_view(arena_.data() + entry.offset, entry.size), token);
    }
    entry = {offset, static_cast<uint32_t>(token.size())};
  }
}

}  // namespace kvfork::tokenizer
