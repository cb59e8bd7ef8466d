// A prefilled context: token ids, their sealed keys and values, and the logits after the last of them.
//
// Held as shared_ptr<const Context>; immutable, its KV pages read-only to the MMU. Any thread may fork it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace kvfork {

class Fork;
class Model;
struct ContextOrigin;
struct Identity;

struct SaveOptions {
  bool flatten = false;  ///< a child is saved whole; otherwise its own part, which names the parent
  std::function<void(uint64_t done, uint64_t total)> on_progress;  ///< in bytes
};

class Context : public std::enable_shared_from_this<Context> {
 public:
  ~Context();

  const std::shared_ptr<const Model>& model() const noexcept;
  std::span<const int32_t> ids() const noexcept;   ///< [size]
  size_t size() const noexcept;                    ///< tokens
  size_t kv_bytes() const noexcept;                ///< key and value bytes of its tokens
  std::span<const float> logits() const noexcept;  ///< [vocab_size], after the last token

  /// What its ids were rendered from; null when it was prefilled from ids alone.
  const std::shared_ptr<const ContextOrigin>& origin() const noexcept;
  /// The context that this one continues and shares memory with; null for one that starts at position 0.
  const std::shared_ptr<const Context>& parent() const noexcept;

  /// A private timeline that starts at the context's end. Its cost does not depend on the context's length; the
  /// first fork of an opened file checks the file, and throws Error{Corrupt} where it is damaged.
  Fork fork() const;

  /// The same from the end of the context's first n_tokens tokens. A fork that ends before the context has no
  /// logits until something is appended. Throws Error{InvalidArgument} unless 1 <= n_tokens <= size().
  Fork fork_at(size_t n_tokens) const;

  /// SHA-256 over all key and value bytes of the context, lower-case hex: equal before and after any use.
  std::string hash() const;

  /// Everything that its bits and ids depend on. Throws as Model::identity.
  Identity identity() const;

  /// SHA-256 over the identity's deciding fields and the token ids, lower-case hex: contexts with the same id hold
  /// the same bits. Throws as Model::identity.
  std::string id() const;

  /// Writes one safetensors file (docs/cache-file.md) and returns its size. The name is taken once everything has
  /// reached the disk: no crash, full disk or second writer leaves a file that opens and is not whole. Throws
  /// Error{Io, NotFound}, and as Model::identity.
  uint64_t save(const std::string& path, const SaveOptions& options = {}) const;

  /// Compares every byte of the file that it was opened from with its checksums, and of its parents' files those
  /// that have not been compared since they changed. Throws Error{Corrupt, Io}. No file: no effect.
  void check() const;

  struct Impl;
  explicit Context(std::unique_ptr<Impl> impl);
  const Impl& impl() const noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvfork
