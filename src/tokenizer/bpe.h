// Byte pair encoding, with the merge order of the `tokenizers` package: lowest rank first, leftmost first.
//
// Words that are one token are looked up whole; short words are merged by scanning, long ones (a megabyte without a
// space) with a heap in O(n log n).
// Thread rule: immutable after construction but for an atomic memo of which tokens reproduce themselves.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/token_model.h"

namespace kvfork::tokenizer {

/// (left id, right id) -> (rank, merged id).
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Merge {
    uint32_t rank = kNoRank;
    int32_t id = -1;
  };

  void reserve(size_t n_merges);
  /// A later merge of the same pair replaces the earlier one.
  void insert(int32_t left, int32_t right, Merge merge);
  /// Inlined: GCC drops calls to a function that does nothing but prefetch.
  [[gnu::always_inline]] void prefetch(int32_t left, int32_t right) const noexcept {
    __builtin_prefetch(slots_.data() + slot_of(key_of(left, right)), 1);
  }
  Merge find(int32_t left, int32_t right) const noexcept {
    const uint64_t key = key_of(left, right);
    for (size_t i = slot_of(key);; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.key == key) return slot.merge;
      if (slot.key == kEmpty) return {};
    }
  }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static uint64_t key_of(int32_t left, int32_t right) noexcept {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t key) const noexcept {
    const uint64_t h = key * 0x9E3779B97F4A7C15u;
    return (h ^ h >> 32) & mask_;
  }
  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

struct BpeOptions {
  std::optional<std::string> unk_token;
  std::string continuing_subword_prefix, end_of_word_suffix;
  bool fuse_unk = false, byte_fallback = false, ignore_merges = false;
};

class Bpe : public TokenModel {
 public:
  using Merges = std::vector<std::pair<std::string_view, std::string_view>>;

  /// Throws Error{Corrupt} naming `subject` where a merge names a token that is not in the vocabulary.
  Bpe(Vocabulary vocabulary, const Merges& merges, BpeOptions options, std::string_view subject);

  /// From now on encode takes the plain bytes that ByteLevel would have turned into its characters. False (and no
  /// change) when this model's options need the characters themselves.
  bool take_plain_bytes();

  void encode(std::string_view piece, TokenSink& sink) const override;

 private:
  struct Work;
  void read_merges(const Merges& merges);
  void encode_word(std::string_view word, TokenSink& sink) const;
  bool reproduces_itself(int32_t id, std::string_view word) const;
  bool make_symbols(std::string_view word, Work& work, TokenSink& sink) const;
  void make_byte_symbols(std::string_view word, Work& work, TokenSink& sink) const;
  void merge_short(std::vector<int32_t>& symbols, Work& work) const;
  void merge_long(std::vector<int32_t>& symbols) const;
  void merge(Work& work) const;
  int32_t get_unk_id() const;
  void find_word_starts(const Merges& merges);

  BpeOptions options_;
  std::string subject_;
  MergeTable merges_;
  int32_t unk_id_ = -1;
  std::array<int32_t, 256> fallback_ids_{};  // of <0x00> to <0xFF>, or -1
  bool has_all_fallback_ = false;

  bool plain_bytes_ = false;
  std::array<int32_t, 256> byte_ids_{};
  std::vector<MergeTable::Merge> byte_merges_;  // [256, 256]
  std::vector<char> raw_arena_;
  StringTable raw_table_;  // plain bytes of a token -> id

  // A piece without a pre-tokenizer is cut into words before each U+2581 that no merge joins to the character
  // before it: merges never cross such a place, so the ids are the same.
  bool cuts_words_ = false;
  std::vector<std::string> joins_metaspace_;  // characters that some merge joins to a following U+2581

  std::unique_ptr<std::atomic<uint8_t>[]> memo_;  // by id: 0 unknown, 1 reproduces itself, 2 does not
};

}  // namespace kvfork::tokenizer
