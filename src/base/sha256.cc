// SHA-256 by libcrypto.
#include "base/sha256.h"

#include <openssl/evp.h>

#include <array>

#include "base/check.h"
#include "base/error.h"

namespace kvfork::base {

struct Sha256::State {
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context{EVP_MD_CTX_new(), EVP_MD_CTX_free};
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  if (state_->context == nullptr || EVP_DigestInit_ex(state_->context.get(), EVP_sha256(), nullptr) != 1)
    fail(ErrorCode::Unsupported, "libcrypto: expected SHA-256, found it refused by its configuration");
}
Sha256::~Sha256() = default;

void Sha256::add(std::span<const std::byte> bytes) {
  KVFORK_CHECK(EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()) == 1);
}

void Sha256::finish(std::span<std::byte, kDigestBytes> digest) {
  unsigned int n_bytes = 0;
  KVFORK_CHECK(
      EVP_DigestFinal_ex(state_->context.get(), reinterpret_cast<unsigned char*>(digest.data()), &n_bytes) == 1);
  KVFORK_CHECK(n_bytes == kDigestBytes);
}

std::string Sha256::hex() {
  std::array<std::byte, kDigestBytes> digest;
  finish(digest);
  std::string text;
  for (const std::byte byte : digest) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 sha;
  sha.add(bytes);
  return sha.hex();
}

std::string sha256_hex(std::string_view text) {
  return sha256_hex(std::as_bytes(std::span(text)));
}

}  // namespace kvfork::base
