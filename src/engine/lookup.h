// Guesses the next tokens of an answer: what followed the last time the same few tokens came, in context, request
// or answer.
//
// A guess costs rows in a pass and never changes what is answered: whoever uses it keeps the part that equals what
// is picked anyway. The length adapts to how many were right, so that text with nothing to copy costs next to
// nothing. Belongs to one thread. Allocates at construction only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvfork::engine {

class Lookup {
 public:
  static constexpr size_t kMaxDraft = 7;  ///< with the token before them, 8 rows

  /// The timeline is shared_ids followed by own_ids, and will grow by max_new_tokens at most.
  Lookup(std::span<const int32_t> shared_ids, std::span<const int32_t> own_ids, size_t max_new_tokens);

  void add(int32_t id);

  /// Up to `at_most` tokens that may follow; valid until the next add.
  std::span<const int32_t> draft(size_t at_most);

  /// How the last draft, of n_drafted > 0 tokens, did.
  void learn(size_t n_drafted, size_t n_right);

 private:
  size_t find(size_t n_gram) const;
  uint32_t& slot(size_t n_gram, const int32_t* last);
  uint32_t slot(size_t n_gram, const int32_t* last) const;

  std::vector<int32_t> ids_;
  std::vector<uint32_t> places_[2];  // by hash of the last 2 or 3 ids: the index of what came next; 0: nothing
  size_t length_ = 2;                // of the next draft
  size_t n_failed_ = 0;              // drafts in a row of which nothing was right
  size_t n_pauses_left_ = 0;         // passes without a draft
};

}  // namespace kvfork::engine
