// Context: what it tells and checks, and the forks that start from it.
#include "kvfork/context.h"

#include <algorithm>

#include "base/error.h"
#include "base/release_chain.h"
#include "base/sha256.h"
#include "engine/context_state.h"
#include "engine/fork_state.h"
#include "engine/model_state.h"
#include "kvfork/boundary.h"
#include "kvfork/request.h"
#include "kvfork/text.h"

namespace kvfork {
namespace {

// The model's tokenizer, if its checkpoint has one.
const Tokenizer* find_tokenizer(const Model& model) {
  try {
    return &model.text().tokenizer();
  } catch (const Error&) {
    return nullptr;
  }
}

// A tokenizer is only opened to show the text of a refusal.
Request compare(const Context& context, std::vector<int32_t> ids, BoundaryMode mode) {
  try {
    return {ids, context.ids(), mode};
  } catch (const Error& refusal) {
    const Tokenizer* tokenizer = refusal.code() == ErrorCode::Boundary ? find_tokenizer(*context.model()) : nullptr;
    if (tokenizer == nullptr) throw;
    return {std::move(ids), context.ids(), mode, *tokenizer};
  }
}

}  // namespace

Context::Context(std::unique_ptr<engine::ContextState> state) : state_(std::move(state)) {}
Context::~Context() = default;

std::shared_ptr<const Context> engine::StateAccess::make_context(std::unique_ptr<ContextState> state) {
  return std::shared_ptr<const Context>(new Context(std::move(state)));
}

const std::shared_ptr<const Model>& Context::model() const noexcept {
  return state_->model;
}
std::span<const int32_t> Context::ids() const noexcept {
  return state_->ids;
}
size_t Context::size() const noexcept {
  return state_->ids.size();
}
size_t Context::kv_bytes() const noexcept {
  const model::StateLayout& layout = state_->kv->layout();
  return size() * layout.token_bytes() + state_->kv->states().size() * layout.n_state_floats() * sizeof(float);
}
std::span<const float> Context::logits() const noexcept {
  return state_->logits;
}
const std::shared_ptr<const ContextOrigin>& Context::origin() const noexcept {
  return state_->origin;
}
const std::shared_ptr<const Context>& Context::parent() const noexcept {
  return state_->parent;
}

size_t Context::last_start(size_t n_tokens) const noexcept {
  return state_->kv->last_start(std::min(n_tokens, size()));
}

Fork Context::fork(const Request& request, const std::function<void(size_t)>& on_progress) const {
  return base::only_errors([&]() -> Fork {
    Fork fork = engine::start_fork(*this, request);
    fork.append(std::span(request.ids()).subspan(fork.size()), on_progress);
    return fork;
  });
}

Fork Context::fork(std::vector<int32_t> request_ids, BoundaryMode mode,
                   const std::function<void(size_t)>& on_progress) const {
  return base::only_errors(
      [&]() -> Fork { return fork(compare(*this, std::move(request_ids), mode), on_progress); });
}

Fork Context::fork_unchecked(size_t n_tokens) const {
  return base::only_errors([&]() -> Fork {
    if (n_tokens == 0 || n_tokens > size())
      base::fail(ErrorCode::InvalidArgument, "fork: expected a position from 1 to {}, found {}", size(), n_tokens);
    Fork fork = engine::start_fork(*this, n_tokens);
    fork.append(ids().first(n_tokens).subspan(fork.size()));
    return fork;
  });
}

// At the last place before n_tokens where a fork can start.
Fork engine::start_fork(const Context& context, size_t n_tokens) {
  const ContextState& state = state_of(context);
  state.expect_sound();
  const size_t start = state.kv->last_start(n_tokens);
  auto kv = start == 0 ? model::KvSequence(state_of(*state.model).kv_layout) : model::KvSequence(state.kv, start);
  return StateAccess::make_fork(
      std::make_unique<ForkState>(state.model, context.shared_from_this(), std::move(kv)));
}

Fork engine::start_fork(const Context& context, const Request& request) {
  expect_prefix(context.ids(), request.ids(), request.n_cached());
  if (request.n_new() == 0 && request.n_cached() < context.size())
    base::fail(ErrorCode::InvalidArgument,
               "cached tokens: expected fewer than the request's {}, so that something is run", request.size());
  Fork fork = start_fork(context, request.n_cached());
  state_of(fork).request_size = request.size();
  return fork;
}

std::string Context::hash() const {
  return base::only_errors([&]() -> std::string {
    state_->expect_sound();
    base::Sha256 sha;
    const model::StateLayout& layout = state_->kv->layout();
    for (size_t i = 0; i < state_->kv->n_blocks(); ++i) {
      const model::KvBlock& block = state_->kv->block(i);
      for (size_t layer = 0; layer < layout.n_layers(); ++layer) {
        sha.add({block.key(layout, layer, 0), layout.keys_bytes(layer)});
        sha.add({block.value(layout, layer, 0), layout.values_bytes(layer)});
      }
    }
    for (const model::States& states : state_->kv->states())
      sha.add(std::as_bytes(std::span(states.floats.get(), layout.n_state_floats())));
    return sha.hex();
  });
}

void Context::check() const {
  base::only_errors([&]() {
    if (state_->storage != nullptr) state_->storage->check(engine::state_of(*state_->model).pool);
    if (state_->nearest_mapped != nullptr) state_->nearest_mapped->expect_sound();
  });
}

void engine::ContextState::set_parent(std::shared_ptr<const Context> from) {
  parent = std::move(from);
  if (parent == nullptr) return;
  const ContextState& state = state_of(*parent);
  nearest_mapped = state.storage != nullptr ? &state : state.nearest_mapped;
}

// Contexts between those that are mapped from files cost nothing.
void engine::ContextState::expect_sound() const {
  for (const ContextState* state = storage != nullptr ? this : nearest_mapped; state != nullptr;
       state = state->nearest_mapped)
    state->storage->expect_sound(state_of(*state->model).pool);
}

engine::ContextState::~ContextState() {
  base::release_chain(
      std::move(parent), [](Context & context) -> auto& { return StateAccess::of(context).parent; });
}

}  // namespace kvfork
