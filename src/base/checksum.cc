// The checksum of saved contexts.
#include "base/checksum.h"

#include <bit>
#include <cstring>

#include "base/check.h"

namespace kvfork::base {
namespace {

constexpr uint64_t kPrime = 0x9E3779B97F4A7C15u;
constexpr size_t kStripe = 64;

uint64_t step(uint64_t state, uint64_t word) noexcept {
  return std::rotl((state ^ word) * kPrime, 29);
}

// Lanes as local variables: the compiler then keeps them in general registers, where a 64-bit product is one
// instruction.
void add_stripes(std::array<uint64_t, 8>& lanes, const std::byte* data, size_t n_stripes) noexcept {
  auto [a, b, c, d, e, f, g, h] = lanes;
  for (size_t i = 0; i < n_stripes; ++i, data += kStripe) {
    uint64_t words[8];
    std::memcpy(words, data, kStripe);
    a = step(a, words[0]);
    b = step(b, words[1]);
    c = step(c, words[2]);
    d = step(d, words[3]);
    e = step(e, words[4]);
    f = step(f, words[5]);
    g = step(g, words[6]);
    h = step(h, words[7]);
  }
  lanes = {a, b, c, d, e, f, g, h};
}

}  // namespace

static_assert(std::endian::native == std::endian::little);

Checksum::Checksum() noexcept {
  for (size_t i = 0; i < lanes_.size(); ++i) lanes_[i] = (i + 1) * kPrime;
}

void Checksum::add(std::span<const std::byte> bytes) noexcept {
  KVFORK_CHECK(n_bytes_ % kStripe == 0 || bytes.empty());
  n_bytes_ += bytes.size();
  add_stripes(lanes_, bytes.data(), bytes.size() / kStripe);
  const auto rest = bytes.last(bytes.size() % kStripe);
  if (rest.empty()) return;
  std::byte padded[kStripe] = {};
  std::memcpy(padded, rest.data(), rest.size());
  add_stripes(lanes_, padded, 1);
}

uint64_t Checksum::value() const noexcept {
  uint64_t hash = n_bytes_;
  for (const uint64_t lane : lanes_) hash = step(hash, lane);
  hash ^= hash >> 32;
  hash *= kPrime;
  return hash ^ (hash >> 29);
}

uint64_t checksum_of(std::span<const std::byte> bytes) noexcept {
  Checksum checksum;
  checksum.add(bytes);
  return checksum.value();
}

}  // namespace kvfork::base
