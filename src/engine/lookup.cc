// Finds the last place where the latest tokens came before, to guess what follows.

#include "engine/lookup.h"

#include <algorithm>
#include <bit>

namespace kvfork::engine {
namespace {

constexpr size_t kShortest = 2;  // ids that must agree, at least
constexpr size_t kLongest = 3;
constexpr size_t kLongestPause = 64;

size_t hash_of(size_t n_gram, const int32_t* last) {
  uint64_t hash = n_gram;
  for (size_t i = 0; i < n_gram; ++i)
    hash = (hash ^ static_cast<uint32_t>(last[-static_cast<ptrdiff_t>(i)])) * 0x9E3779B97F4A7C15u;
  return hash >> 24;
}

}  // namespace

Lookup::Lookup(std::span<const int32_t> shared_ids, std::span<const int32_t> own_ids, size_t max_new_tokens) {
  const size_t n_most = shared_ids.size() + own_ids.size() + max_new_tokens;
  ids_.reserve(n_most);
  for (auto& places : places_) places.resize(std::bit_ceil(2 * n_most));
  for (const int32_t id : shared_ids) add(id);
  for (const int32_t id : own_ids) add(id);
}

uint32_t Lookup::slot(size_t n_gram, const int32_t* last) const {
  const auto& places = places_[n_gram - kShortest];
  return places[hash_of(n_gram, last) & (places.size() - 1)];
}

uint32_t& Lookup::slot(size_t n_gram, const int32_t* last) {
  auto& places = places_[n_gram - kShortest];
  return places[hash_of(n_gram, last) & (places.size() - 1)];
}

void Lookup::add(int32_t id) {
  for (size_t n = kShortest; n <= std::min(kLongest, ids_.size()); ++n)
    slot(n, &ids_.back()) = static_cast<uint32_t>(ids_.size());
  ids_.push_back(id);
}

// The index of what came after the last n_gram ids when they last came; 0 where they did not.
size_t Lookup::find(size_t n_gram) const {
  if (ids_.size() <= n_gram) return 0;
  const size_t next = slot(n_gram, &ids_.back());
  const bool is_same = next >= n_gram && std::equal(ids_.end() - static_cast<ptrdiff_t>(n_gram), ids_.end(),
                                                    ids_.begin() + static_cast<ptrdiff_t>(next - n_gram));
  return is_same ? next : 0;
}

std::span<const int32_t> Lookup::draft(size_t at_most) {
  if (n_pauses_left_ > 0) {
    --n_pauses_left_;
    return {};
  }
  size_t next = 0;
  for (size_t n = kLongest; n >= kShortest && next == 0; --n) next = find(n);
  if (next == 0) return {};
  return std::span(ids_).subspan(next, std::min({length_, at_most, ids_.size() - next}));
}

void Lookup::learn(size_t n_drafted, size_t n_right) {
  if (n_right == 0) {
    length_ = 1;
    n_pauses_left_ = std::min(kLongestPause, size_t{1} << std::min<size_t>(n_failed_++, 16)) - 1;
    return;
  }
  n_failed_ = 0;
  length_ = n_right == n_drafted ? std::min(kMaxDraft, 2 * length_ + 1) : std::max<size_t>(n_right, 1);
}

}  // namespace kvfork::engine
