// The checksum against its definition in docs/cache-file.md.

#include "base/checksum.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>
#include <vector>

namespace kvfork::base {
namespace {

// The definition in docs/cache-file.md, word by word.
uint64_t by_definition(std::vector<uint8_t> bytes) {
  constexpr uint64_t p = 0x9E3779B97F4A7C15u;
  const uint64_t n = bytes.size();
  bytes.resize((bytes.size() + 63) / 64 * 64);
  uint64_t lanes[8];
  for (uint64_t i = 0; i < 8; ++i) lanes[i] = (i + 1) * p;
  for (size_t i = 0; i < bytes.size(); i += 8) {
    uint64_t word = 0;
    for (size_t j = 0; j < 8; ++j) word |= uint64_t{bytes[i + j]} << (8 * j);
    uint64_t& lane = lanes[i / 8 % 8];
    lane = std::rotl((lane ^ word) * p, 29);
  }
  uint64_t hash = n;
  for (const uint64_t lane : lanes) hash = std::rotl((hash ^ lane) * p, 29);
  hash ^= hash >> 32;
  hash *= p;
  return hash ^ (hash >> 29);
}

std::vector<uint8_t> random_bytes(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(n);
  for (auto& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

TEST(Checksum, IsAsDefinedAtAnyLengthAndInAnyParts) {
  for (const size_t n : {0, 1, 7, 8, 63, 64, 65, 127, 128, 1000, 4096, 100003}) {
    const auto bytes = random_bytes(n, static_cast<uint32_t>(n));
    EXPECT_EQ(checksum_of(std::as_bytes(std::span(bytes))), by_definition(bytes)) << n;
    Checksum parts;
    for (size_t at = 0; at < n; at += 192)
      parts.add(std::as_bytes(std::span(bytes).subspan(at, std::min<size_t>(192, n - at))));
    EXPECT_EQ(parts.value(), by_definition(bytes)) << n;
  }
}

TEST(Checksum, EveryBitAndTheLengthCount) {
  auto bytes = random_bytes(200, 1);
  const uint64_t before = checksum_of(std::as_bytes(std::span(bytes)));
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(checksum_of(std::as_bytes(std::span(bytes))), before) << bit;
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ (1 << bit % 8));
  }
  bytes.push_back(0);
  EXPECT_NE(checksum_of(std::as_bytes(std::span(bytes))), before);
}

TEST(Checksum, SignsOfTwoNumbersInOneLaneDoNotCancel) {
  std::vector<uint8_t> bytes(256, 0);
  const uint64_t before = checksum_of(std::as_bytes(std::span(bytes)));
  for (size_t other = 71; other < 256; other += 64) {
    bytes[7] ^= 0x80;
    bytes[other] ^= 0x80;
    EXPECT_NE(checksum_of(std::as_bytes(std::span(bytes))), before) << other;
    bytes[7] ^= 0x80;
    bytes[other] ^= 0x80;
  }
}

}  // namespace
}  // namespace kvfork::base
