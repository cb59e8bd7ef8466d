// Context: what it tells and checks, and the forks that start from it.
#include "kvfork/context.h"

#include "base/error.h"
#include "base/sha256.h"
#include "engine/context_impl.h"
#include "engine/fork_impl.h"
#include "engine/model_impl.h"

namespace kvfork {

Context::Context(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Context::~Context() = default;

const std::shared_ptr<const Model>& Context::model() const noexcept {
  return impl_->model;
}
std::span<const int32_t> Context::ids() const noexcept {
  return impl_->ids;
}
size_t Context::size() const noexcept {
  return impl_->ids.size();
}
size_t Context::kv_bytes() const noexcept {
  return impl_->ids.size() * impl_->kv->layout().token_bytes();
}
std::span<const float> Context::logits() const noexcept {
  return impl_->logits;
}
const std::shared_ptr<const ContextOrigin>& Context::origin() const noexcept {
  return impl_->origin;
}
const std::shared_ptr<const Context>& Context::parent() const noexcept {
  return impl_->parent;
}

Fork Context::fork() const {
  return fork_at(size());
}

Fork Context::fork_at(size_t n_tokens) const {
  if (n_tokens == 0 || n_tokens > size())
    base::fail(ErrorCode::InvalidArgument, "fork: expected a position from 1 to {}, found {}", size(), n_tokens);
  impl_->expect_sound();
  return Fork(
      std::make_unique<Fork::Impl>(impl_->model, shared_from_this(), model::KvSequence(impl_->kv, n_tokens)));
}

std::string Context::hash() const {
  impl_->expect_sound();
  base::Sha256 sha;
  const model::KvLayout& layout = impl_->kv->layout();
  for (size_t i = 0; i < impl_->kv->n_blocks(); ++i) {
    const model::KvBlock& block = impl_->kv->block(i);
    for (size_t layer = 0; layer < layout.n_layers; ++layer) {
      sha.add({block.key(layout, layer, 0), layout.keys_bytes()});
      sha.add({block.value(layout, layer, 0), layout.values_bytes()});
    }
  }
  return sha.hex();
}

void Context::check() const {
  if (impl_->storage != nullptr) impl_->storage->check(impl_->model->impl().pool);
  if (impl_->parent != nullptr) impl_->parent->impl().expect_sound();
}

void Context::Impl::expect_sound() const {
  if (storage != nullptr) storage->expect_sound(model->impl().pool);
  if (parent != nullptr) parent->impl().expect_sound();
}

}  // namespace kvfork
