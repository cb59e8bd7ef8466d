// SHA-256 by libcrypto.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace kvfork::base {

class Sha256 {
 public:
  static constexpr size_t kDigestBytes = 32;

  /// Throws Error{Unsupported} when libcrypto refuses.
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }

  /// Of everything added. The object is spent.
  void finish(std::span<std::byte, kDigestBytes> digest);
  /// The same, lower-case hex.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Lower-case hex of the digest of `bytes`.
std::string sha256_hex(std::span<const std::byte> bytes);
std::string sha256_hex(std::string_view text);

}  // namespace kvfork::base
