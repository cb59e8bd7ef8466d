// A request's private timeline: appending ids, scoring every position, logits, sealing.

#include "kvfork/fork.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "engine/context_state.h"
#include "engine/fork_state.h"
#include "engine/model_state.h"

namespace kvfork {
namespace {

void check_ids(std::span<const int32_t> ids, size_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || static_cast<size_t>(ids[i]) >= vocab_size)
      base::fail(ErrorCode::InvalidArgument, "token ids: expected ids below {}, found {} at index {}", vocab_size,
                 ids[i], i);
  }
}

void check_limit(size_t n_tokens, const ModelInfo& info) {
  if (n_tokens > info.max_position_embeddings)
    base::fail(ErrorCode::Limit, "context limit: expected at most {} tokens (max_position_embeddings), found {}",
               info.max_position_embeddings, n_tokens);
}

// Everything that can fail, before anything changes.
void prepare_append(engine::ForkState& fork, std::span<const int32_t> ids, model::Scratch& scratch) {
  const ModelInfo& info = fork.model->info();
  fork.expect_sound();
  check_ids(ids, info.vocab_size);
  const size_t n_tokens = fork.kv.n_tokens() + ids.size();
  check_limit(n_tokens, info);
  engine::state_of(*fork.model).forward.reserve(n_tokens, scratch);
  fork.kv.reserve(n_tokens);
  fork.own_ids.reserve(fork.own_ids.size() + ids.size());
  fork.logits.resize(info.vocab_size);
  fork.next_logits.resize(info.vocab_size);
}

void expect_usable(const engine::ForkState* fork) {
  if (fork == nullptr || fork->is_spent)
    base::fail(ErrorCode::InvalidArgument,
               "fork: expected one that is in use, found one that was moved from or sealed");
  if (fork->is_running)
    base::fail(ErrorCode::InvalidArgument, "fork: expected no call from inside of its own callback");
}

// The time of one append: takes back what it has added unless keep() is called at its end.
class Append {
 public:
  explicit Append(engine::ForkState& fork) noexcept
      : fork_(fork), n_tokens_(fork.kv.n_tokens()), n_own_(fork.own_ids.size()) {
    fork_.is_running = true;
    fork_.kv.mark();
  }
  ~Append() {
    fork_.is_running = false;
    if (is_kept_) return;
    const size_t end = fork_.kv.n_tokens();
    fork_.kv.rewind(n_tokens_);
    fork_.kv.clear_to(end);
    fork_.own_ids.resize(n_own_);
    if (has_new_logits_) fork_.logits.swap(fork_.next_logits);
  }
  Append(const Append&) = delete;
  Append& operator=(const Append&) = delete;

  void take_logits() noexcept {
    fork_.logits.swap(fork_.next_logits);
    has_new_logits_ = true;
  }
  void keep() noexcept { is_kept_ = true; }

 private:
  engine::ForkState& fork_;
  size_t n_tokens_;
  size_t n_own_;
  bool has_new_logits_ = false;
  bool is_kept_ = false;
};

// The ids themselves, or a copy where they lie in memory that appending moves.
std::span<const int32_t> steady_ids(const engine::ForkState& fork, std::span<const int32_t> ids,
                                    std::vector<int32_t>& copy) {
  const std::less<> before;
  const int32_t* own = fork.own_ids.data();
  const bool is_own = !before(ids.data(), own) && before(ids.data(), own + fork.own_ids.size());
  if (!is_own) return ids;
  copy.assign(ids.begin(), ids.end());
  return copy;
}

}  // namespace

void engine::ForkState::expect_sound() const {
  state_of(*model).expect_unchanged_weights();
  if (context != nullptr) state_of(*context).expect_sound();
}

Fork::Fork(std::unique_ptr<engine::ForkState> state) noexcept : state_(std::move(state)) {}
Fork engine::StateAccess::make_fork(std::unique_ptr<ForkState> state) noexcept {
  return Fork(std::move(state));
}

Fork::Fork(Fork&&) noexcept = default;
Fork& Fork::operator=(Fork&&) noexcept = default;
Fork::~Fork() = default;

const std::shared_ptr<const Model>& Fork::model() const noexcept {
  return state_->model;
}
const std::shared_ptr<const Context>& Fork::context() const noexcept {
  return state_->context;
}
size_t Fork::size() const noexcept {
  return state_->kv.n_tokens();
}
std::span<const int32_t> Fork::shared_ids() const noexcept {
  if (state_->context == nullptr) return {};
  return state_->context->ids().first(size() - state_->own_ids.size());
}
std::span<const int32_t> Fork::own_ids() const noexcept {
  return state_->own_ids;
}

size_t Fork::request_size() const noexcept {
  return state_->request_size;
}

void Fork::reserve(size_t n_tokens) {
  base::only_errors([&]() {
    expect_usable(state_.get());
    check_limit(n_tokens, state_->model->info());
    state_->kv.reserve(n_tokens);
    if (n_tokens > size()) state_->own_ids.reserve(state_->own_ids.size() + n_tokens - size());
    const engine::ModelState& model = engine::state_of(*state_->model);
    state_->logits.reserve(model.info.vocab_size);
    state_->next_logits.reserve(model.info.vocab_size);
    model.forward.reserve(n_tokens, *model.scratch.borrow(1));
  });
}

void Fork::append(std::span<const int32_t> appended, const std::function<void(size_t)>& on_progress) {
  base::only_errors([&]() {
    expect_usable(state_.get());
    if (appended.empty()) return;
    std::vector<int32_t> copy;
    const std::span<const int32_t> ids = steady_ids(*state_, appended, copy);
    const engine::ModelState& model = engine::state_of(*state_->model);
    const auto scratch = model.scratch.borrow(std::min(ids.size(), engine::kMaxPassRows));
    prepare_append(*state_, ids, *scratch);
    Append append(*state_);
    for (size_t done = 0; done < ids.size();) {
      const size_t n = std::min(ids.size() - done, engine::kMaxPassRows);
      const bool last = done + n == ids.size();
      const model::Step step{.kv = &state_->kv, .ids = ids.subspan(done, n), .n_logits = last ? 1u : 0u};
      model.forward.run({&step, 1}, state_->next_logits.data(), *scratch);
      state_->own_ids.insert(state_->own_ids.end(), step.ids.begin(), step.ids.end());
      if (last) append.take_logits();
      done += n;
      if (on_progress) on_progress(done);
    }
    append.keep();
  });
}

bool Fork::is_prefix_of(std::span<const int32_t> request_ids) const noexcept {
  const auto shared = shared_ids();
  const auto own = own_ids();
  return size() < request_ids.size() && std::ranges::equal(shared, request_ids.first(shared.size())) &&
         std::ranges::equal(own, request_ids.subspan(shared.size(), own.size()));
}

void Fork::extend_to(std::span<const int32_t> request_ids, const std::function<void(size_t)>& on_progress) {
  base::only_errors([&]() {
    expect_usable(state_.get());
    std::vector<int32_t> held(shared_ids().begin(), shared_ids().end());
    held.insert(held.end(), own_ids().begin(), own_ids().end());
    expect_prefix(held, request_ids, held.size());
    append(request_ids.subspan(held.size()), on_progress);
    state_->request_size = request_ids.size();
  });
}

void Fork::append_scored(std::span<const int32_t> appended,
                         const std::function<void(size_t, std::span<const float>)>& on_logits) {
  base::only_errors([&]() {
    expect_usable(state_.get());
    if (!on_logits)
      base::fail(ErrorCode::InvalidArgument, "fork: expected a function that takes the logits, found none");
    if (appended.empty()) return;
    std::vector<int32_t> copy;
    const std::span<const int32_t> ids = steady_ids(*state_, appended, copy);
    const engine::ModelState& model = engine::state_of(*state_->model);
    const size_t vocab_size = model.info.vocab_size;
    constexpr size_t kMaxScoredRows = 64;  // bounds the buffer of logits
    const size_t max_rows = std::min(ids.size(), kMaxScoredRows);
    const auto scratch = model.scratch.borrow(max_rows);
    std::vector<float> rows(max_rows * vocab_size);
    prepare_append(*state_, ids, *scratch);
    Append append(*state_);
    append.keep();  // each part is whole, with its logits, before it is handed out
    for (size_t done = 0; done < ids.size();) {
      const size_t n = std::min(ids.size() - done, max_rows);
      const model::Step step{.kv = &state_->kv, .ids = ids.subspan(done, n), .n_logits = n};
      model.forward.run({&step, 1}, rows.data(), *scratch);
      state_->own_ids.insert(state_->own_ids.end(), step.ids.begin(), step.ids.end());
      const auto last = rows.begin() + static_cast<ptrdiff_t>((n - 1) * vocab_size);
      std::copy_n(last, vocab_size, state_->logits.begin());
      on_logits(done, std::span(rows).first(n * vocab_size));
      done += n;
    }
  });
}

std::span<const float> Fork::logits() const {
  if (state_ == nullptr || state_->is_spent) expect_usable(state_.get());
  if (!state_->own_ids.empty()) return state_->logits;
  if (state_->context == nullptr || size() != state_->context->size())
    base::fail(ErrorCode::InvalidArgument, "fork: expected at least one token of its own before logits");
  return state_->context->logits();
}

std::shared_ptr<const Context> Fork::seal(std::shared_ptr<const ContextOrigin> origin) && {
  return base::only_errors([&]() -> std::shared_ptr<const Context> {
    expect_usable(state_.get());
    if (size() == 0) base::fail(ErrorCode::InvalidArgument, "context: expected at least one token, found none");
    logits();  // throws where there are none to keep
    if (state_->own_ids.empty()) return state_->context;
    engine::state_of(*state_->model).expect_unchanged_weights();
    auto sealed = std::make_unique<engine::ContextState>();
    sealed->model = state_->model;
    sealed->ids.assign(shared_ids().begin(), shared_ids().end());
    sealed->ids.insert(sealed->ids.end(), state_->own_ids.begin(), state_->own_ids.end());
    sealed->origin = std::move(origin);
    sealed->set_parent(state_->context);
    state_->is_spent = true;  // from here on, whatever happens
    sealed->logits = std::move(state_->logits);
    sealed->kv = std::move(state_->kv).seal();
    return engine::StateAccess::make_context(std::move(sealed));
  });
}

}  // namespace kvfork
