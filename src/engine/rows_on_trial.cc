// Runs rows at the end of a fork and takes back those that did not join it.

#include "engine/rows_on_trial.h"

#include <algorithm>

#include "engine/context_state.h"

namespace kvfork::engine {

RowsOnTrial::RowsOnTrial(ForkState& fork, std::span<const int32_t> ids, std::span<float> logits)
    : fork_(fork),
      ids_(ids),
      logits_(logits),
      position_(fork.kv.n_tokens()),
      scratch_(state_of(*fork.model).scratch.borrow(ids.size())) {
  fork.expect_sound();
  const ModelState& model = state_of(*fork.model);
  fork.logits.resize(model.info.vocab_size);
  fork.own_ids.reserve(fork.own_ids.size() + ids.size());
  fork.kv.mark();
  const model::Step step{.kv = &fork.kv, .ids = ids, .n_logits = ids.size()};
  model.forward.run({&step, 1}, logits.data(), *scratch_);
  fork.kv.show(position_);
}

// Rows that did not join are cleared. States cannot be taken back to the last row that joined: they are computed
// again from where they were before the trial, in a pass that has the memory of the first.
RowsOnTrial::~RowsOnTrial() {
  fork_.kv.clear_to(position_ + ids_.size());
  if (n_kept_ == ids_.size() || !fork_.kv.layout().has_states()) return;
  fork_.kv.rewind(position_);
  if (n_kept_ == 0) return;
  const ModelState& model = state_of(*fork_.model);
  const model::Step step{.kv = &fork_.kv, .ids = ids_.first(n_kept_), .n_logits = 0};
  model.forward.run({&step, 1}, nullptr, *scratch_);
}

std::span<const float> RowsOnTrial::keep_next() {
  const size_t vocab_size = fork_.logits.size();
  const auto row = logits_.subspan(n_kept_ * vocab_size, vocab_size);
  std::copy(row.begin(), row.end(), fork_.logits.begin());
  fork_.own_ids.push_back(ids_[n_kept_]);
  ++n_kept_;
  fork_.kv.show(position_ + n_kept_);
  return row;
}

}  // namespace kvfork::engine
