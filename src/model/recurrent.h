// Layers whose memory is a state (checkpoint::RecurrentSpec): a convolution by channel, and a matrix for each head.
//
// Each sequence of a pass reads its state and writes the next one to another place, token by token, so that no
// split of its tokens into passes changes a bit. Immutable; several passes may use one at once with scratch buffers
// of their own.
#pragma once

#include <cstddef>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "model/scratch.h"
#include "model/weights.h"

namespace kvfork::model {

class Recurrent {
 public:
  Recurrent(const kernels::KernelTable& kernels, const base::ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  /// scratch.attention [rows, value_width] = what the layer gives to the projected rows of the pass, and the states
  /// after them.
  void run(size_t index, const LayerWeights& layer, Scratch& scratch) const noexcept;

 private:
  struct Call;
  void convolve(const Call& call) const noexcept;
  void prepare_rows(const Call& call) const noexcept;
  void recur(const Call& call) const noexcept;
  void finish_row(const Call& call, size_t row) const noexcept;

  const kernels::KernelTable& kernels_;
  const base::ThreadPool& pool_;
};

}  // namespace kvfork::model
