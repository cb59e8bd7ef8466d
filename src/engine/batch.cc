// Answers many requests from one context in shared passes, with at most so many at a time.

#include "kvfork/batch.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <list>
#include <utility>

#include "base/available_memory.h"
#include "base/error.h"
#include "base/float_environment.h"
#include "engine/answer_builder.h"
#include "engine/context_state.h"
#include "engine/fork_state.h"
#include "engine/model_state.h"

namespace kvfork {
namespace {

size_t blocks_of(size_t n_tokens) {
  return (n_tokens + kernels::kBlockTokens - 1) / kernels::kBlockTokens;
}

// With its answer; no more than any model can hold.
size_t tokens_of(const BatchRequest& request) {
  return request.request.size() +
         std::min<size_t>(request.options.max_new_tokens, std::numeric_limits<int32_t>::max());
}

// Memory that a request takes while it runs: blocks of its own, a row of logits, and what sampling holds per id.
size_t bytes_of(const BatchRequest& request, const engine::ModelState& model) {
  const size_t n_blocks = blocks_of(tokens_of(request)) - request.request.n_cached() / kernels::kBlockTokens;
  size_t bytes_per_id = sizeof(float);
  if (request.options.sampling.temperature > 0) bytes_per_id += engine::Sampler::kBytesPerId;
  if (request.options.repetition_penalty != 1.0) bytes_per_id += 2 * sizeof(float) + 1;
  return n_blocks * model.kv_layout->block_bytes() + model::KvSequence::kStateBuffers * model.info.state_bytes +
         model.info.vocab_size * bytes_per_id + tokens_of(request) * sizeof(int32_t);
}

// Everything that can be said against a request without running it, the context's ids aside.
void check_request(const BatchRequest& asked, const ModelInfo& info) {
  check_options(asked.options);
  const Request& request = asked.request;
  engine::check_room(request.size(), asked.options, info);
  for (size_t i = 0; i < request.size(); ++i) {
    if (request.ids()[i] < 0 || static_cast<size_t>(request.ids()[i]) >= info.vocab_size)
      base::fail(ErrorCode::InvalidArgument, "token ids: expected ids below {}, found {} at index {}",
                 info.vocab_size, request.ids()[i], i);
  }
}

// A request while it runs.
struct Running {
  Running(size_t place, const BatchRequest& whole, const Context& context,
          std::function<bool(int32_t)> token_callback)
      : index(place),
        on_token(std::move(token_callback)),
        fork(engine::start_fork(context, whole.request)),
        answer(*context.model(), {}, whole.request.ids(), whole.options),
        pending(std::span(whole.request.ids()).subspan(fork.size())) {
    fork.reserve(whole.request.size() + whole.options.max_new_tokens);
  }

  size_t index;
  std::function<bool(int32_t)> on_token;
  Fork fork;
  engine::AnswerBuilder answer;
  std::span<const int32_t> pending;  // to be run next: what is left of the request, then the id picked last
  size_t bytes = 0;
  size_t n_rows = 0;  // in the pass at hand
};

class Batch {
 public:
  Batch(const Context& context, std::span<const BatchRequest> requests, const BatchPlan& plan, size_t max_width,
        const BatchCallbacks& callbacks)
      : context_(context),
        model_(engine::state_of(*context.model())),
        requests_(requests),
        callbacks_(callbacks),
        max_width_(std::min(max_width, engine::kMaxPassRows)),
        free_bytes_(plan.memory_bytes) {
    for (const BatchRequest& request : requests) n_longest_ = std::max(n_longest_, tokens_of(request));
    n_longest_ = std::min(n_longest_, model_.info.max_position_embeddings);
  }

  BatchReport run() {
    while (true) {
      admit();
      if (running_.empty()) return report_;
      run_pass();
    }
  }

 private:
  // Requests join in order, as long as there is a place and memory for the next one. A request that fails here, or
  // ends with its first token because the context's logits are all it needs, makes room for the next.
  void admit() {
    while (next_ < requests_.size() && running_.size() < max_width_) {
      const size_t index = next_;
      const BatchRequest& request = requests_[index];
      try {
        check_request(request, model_.info);
        const size_t n_bytes = bytes_of(request, model_);
        if (n_bytes > free_bytes_ && !running_.empty()) return;  // until another ends
        ++next_;
        Running& joined = running_.emplace_back(index, request, context_, on_token_of(index));
        joined.bytes = n_bytes;
        free_bytes_ -= std::min(free_bytes_, n_bytes);
      } catch (const Error& error) {
        next_ = index + 1;
        answer(index, {.error = error});
        continue;
      }
      if (running_.back().pending.empty()) take(std::prev(running_.end()), context_.logits());
    }
  }

  // One pass over the weights: every running request has at least one row in it, and the first ones as many as
  // there is room.
  void run_pass() {
    size_t n_free_rows = engine::kMaxPassRows - running_.size();
    steps_.clear();
    size_t n_rows = 0;
    size_t n_logits = 0;
    for (Running& running : running_) {
      running.n_rows = std::min(running.pending.size(), 1 + n_free_rows);
      n_free_rows -= running.n_rows - 1;
      n_rows += running.n_rows;
      const bool has_logits = running.n_rows == running.pending.size();
      n_logits += has_logits;
      steps_.push_back({.kv = &engine::state_of(running.fork).kv,
                        .ids = running.pending.first(running.n_rows),
                        .n_logits = has_logits ? 1u : 0u});
    }
    model_.expect_unchanged_weights();
    engine::state_of(context_).expect_sound();
    const size_t vocab_size = model_.info.vocab_size;
    if (logits_.size() < n_logits * vocab_size) logits_.resize(n_logits * vocab_size);
    if (scratch_ == nullptr || scratch_->max_rows() < n_rows) {
      scratch_ = model_.scratch.borrow(n_rows);
      model_.forward.reserve(n_longest_, *scratch_);
    }
    model_.forward.run(steps_, logits_.data(), *scratch_);
    report_.n_passes += 1;
    report_.n_rows += n_rows;
    report_.n_widest = std::max(report_.n_widest, running_.size());

    std::span<const float> rows = logits_;
    for (auto it = running_.begin(); it != running_.end();) {
      const auto current = it++;
      current->pending = current->pending.subspan(current->n_rows);
      if (!current->pending.empty()) continue;
      take(current, rows.first(vocab_size));
      rows = rows.subspan(vocab_size);
    }
  }

  using Place = std::list<Running>::iterator;

  // The next id of a request whose logits are known; the request leaves when that ends it.
  void take(Place place, std::span<const float> logits) {
    Running& running = *place;
    const size_t index = running.index;
    BatchAnswer ended;
    try {
      if (running.answer.take(logits, running.fork.size(), running.on_token)) {
        running.pending = {&running.answer.last_id(), 1};
        return;
      }
      ended.generation = running.answer.finish();
    } catch (const Error& error) {
      if (callback_failed_) throw;  // the caller's own, and the end of the batch
      ended.error = error;
    }
    free_bytes_ += running.bytes;
    running_.erase(place);
    answer(index, std::move(ended));
  }

  std::function<bool(int32_t)> on_token_of(size_t index) {
    if (!callbacks_.on_token) return {};
    return [this, index](int32_t id) {
      callback_failed_ = true;
      const bool goes_on = callbacks_.on_token(index, id);
      callback_failed_ = false;
      return goes_on;
    };
  }

  void answer(size_t index, BatchAnswer answer) const {
    if (callbacks_.on_answer) callbacks_.on_answer(index, std::move(answer));
  }

  const Context& context_;
  const engine::ModelState& model_;
  std::span<const BatchRequest> requests_;
  const BatchCallbacks& callbacks_;
  size_t max_width_;
  size_t free_bytes_;
  size_t n_longest_ = 0;  // tokens of the longest request with its answer
  size_t next_ = 0;       // the first request that has not joined yet
  std::list<Running> running_;
  std::vector<model::Step> steps_;
  std::vector<float> logits_;  // [rows with logits, vocab]
  engine::ScratchPool::Lease scratch_;
  bool callback_failed_ = false;
  BatchReport report_;
};

}  // namespace

BatchPlan plan_batch(const Model& model, std::span<const BatchRequest> requests, const BatchOptions& options,
                     size_t n_prefill_tokens) {
  return base::only_errors([&]() -> BatchPlan {
    if (options.max_width == 0) base::fail(ErrorCode::InvalidArgument, "width: expected at least 1, found 0");
    BatchPlan plan;
    size_t n_valid = 0;
    for (const BatchRequest& request : requests) {
      try {
        check_request(request, model.info());
      } catch (const Error&) {
        continue;  // refused on its own when its turn comes
      }
      ++n_valid;
      plan.largest_request_bytes = std::max(plan.largest_request_bytes, bytes_of(request, engine::state_of(model)));
    }
    plan.memory_bytes = options.memory_bytes;
    const size_t prefill_bytes = blocks_of(n_prefill_tokens) * engine::state_of(model).kv_layout->block_bytes();
    if (plan.memory_bytes == 0) {
      const size_t available = base::available_memory() / 10 * 9;  // the rest: activations and whatever else grows
      plan.memory_bytes = available - std::min(available, prefill_bytes);
    }
    if (plan.largest_request_bytes > plan.memory_bytes)
      base::fail(ErrorCode::Limit,
                 "memory: expected at most {} MiB for a request beside the context, found {} MiB for the largest; "
                 "ask for fewer new "
                 "tokens, shorten the text, or use bfloat16 mode",
                 plan.memory_bytes >> 20, (plan.largest_request_bytes >> 20) + 1);
    const size_t n_fitting =
        plan.largest_request_bytes == 0 ? n_valid : plan.memory_bytes / plan.largest_request_bytes;
    plan.width = std::min({options.max_width, engine::kMaxPassRows, n_valid, n_fitting});
    return plan;
  });
}

BatchReport answer_all(const Context& context, std::span<const BatchRequest> requests, const BatchOptions& options,
                       const BatchCallbacks& callbacks) {
  return base::only_errors([&]() -> BatchReport {
    const base::FloatEnvironment environment;
    const BatchPlan plan = plan_batch(*context.model(), requests, options);
    return Batch(context, requests, plan, options.max_width, callbacks).run();
  });
}

}  // namespace kvfork
