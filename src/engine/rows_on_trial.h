// Rows that were run at the end of a fork before it is known that they belong there.
//
// They join the fork one by one; what has not joined when the object goes is taken back, and the fork is as if it
// had never been run. Meanwhile the fork's size is that of what has joined.
#pragma once

#include <cstdint>
#include <span>

#include "engine/fork_state.h"
#include "engine/model_state.h"

namespace kvfork::engine {

class RowsOnTrial {
 public:
  /// Runs `ids` in one pass; room for them is reserved. `logits` [ids.size(), vocab_size] is for their results.
  /// Both must outlive the object.
  RowsOnTrial(ForkState& fork, std::span<const int32_t> ids, std::span<float> logits);
  ~RowsOnTrial();
  RowsOnTrial(const RowsOnTrial&) = delete;
  RowsOnTrial& operator=(const RowsOnTrial&) = delete;

  /// The next row joins the fork: its id, and its logits, which are returned.
  std::span<const float> keep_next();
  size_t n_kept() const noexcept { return n_kept_; }

 private:
  ForkState& fork_;
  std::span<const int32_t> ids_;
  std::span<const float> logits_;
  size_t position_;             // of the first row
  ScratchPool::Lease scratch_;  // held to the end: rows are taken back where no memory could be had
  size_t n_kept_ = 0;
};

}  // namespace kvfork::engine
