#include "kvfork/context.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "base/error.h"
#include "engine/context_impl.h"
#include "engine/fork_impl.h"
#include "kernels/kernels.h"

namespace kvfork {
namespace {

// SHA-256 of the bytes given to it, in order.
class Sha256 {
 public:
  Sha256() : state_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    KVFORK_CHECK(state_ != nullptr && EVP_DigestInit_ex(state_.get(), EVP_sha256(), nullptr) == 1);
  }
  void update(const void* data, size_t n_bytes) { KVFORK_CHECK(EVP_DigestUpdate(state_.get(), data, n_bytes) == 1); }
  std::string hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int n_bytes = 0;
    KVFORK_CHECK(EVP_DigestFinal_ex(state_.get(), digest, &n_bytes) == 1);
    constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (unsigned int i = 0; i < n_bytes; ++i) {
      text += kDigits[digest[i] >> 4];
      text += kDigits[digest[i] & 15];
    }
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> state_;
};

}  // namespace

Context::Context(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Context::~Context() = default;

const std::shared_ptr<const Model>& Context::model() const noexcept { return impl_->model; }
std::span<const int32_t> Context::ids() const noexcept { return impl_->ids; }
size_t Context::size() const noexcept { return impl_->ids.size(); }
size_t Context::kv_bytes() const noexcept { return impl_->ids.size() * impl_->kv->layout().token_bytes(); }
std::span<const float> Context::logits() const noexcept { return impl_->logits; }

Fork Context::fork() const { return fork_at(size()); }

Fork Context::fork_at(size_t n_tokens) const {
  if (n_tokens == 0 || n_tokens > size())
    base::fail(ErrorCode::InvalidArgument, "fork: expected a position from 1 to {}, found {}", size(), n_tokens);
  return Fork(std::make_unique<Fork::Impl>(impl_->model, shared_from_this(), model::KvSequence(impl_->kv, n_tokens)));
}

std::string Context::hash() const {
  Sha256 sha;
  const model::KvPrefix& kv = *impl_->kv;
  for (size_t i = 0; i < kv.n_blocks(); ++i) sha.update(kv.block(i), kv.layout().block_bytes());
  return sha.hex();
}

}  // namespace kvfork
