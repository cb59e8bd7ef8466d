// A prefilled context: token ids, their sealed keys and values, and the logits after the last of them.
//
// Held as shared_ptr<const Context>; immutable, its KV pages read-only to the MMU. Any thread may fork it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace kvfork {

class Fork;
class Model;

class Context : public std::enable_shared_from_this<Context> {
 public:
  ~Context();

  const std::shared_ptr<const Model>& model() const noexcept;
  std::span<const int32_t> ids() const noexcept;  ///< [size]
  size_t size() const noexcept;                   ///< tokens
  size_t kv_bytes() const noexcept;               ///< key and value bytes of its tokens
  std::span<const float> logits() const noexcept; ///< [vocab_size], after the last token

  /// A private timeline that starts at the context's end. Its cost does not depend on the context's length.
  Fork fork() const;

  /// The same from the end of the context's first n_tokens tokens. A fork that ends before the context has no logits until
  /// something is appended. Throws Error{InvalidArgument} unless 1 <= n_tokens <= size().
  Fork fork_at(size_t n_tokens) const;

  /// SHA-256 over all key and value bytes of the context, lower-case hex: equal before and after any use.
  std::string hash() const;

  struct Impl;
  explicit Context(std::unique_ptr<Impl> impl);
  const Impl& impl() const noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvfork
