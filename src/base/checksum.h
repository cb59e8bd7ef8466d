// A 64-bit checksum at the speed of memory, against accidents: docs/cache-file.md defines it for other languages.
//
// Eight lanes take one little-endian 64-bit word each of every 64-byte stripe: lane = rotl((lane ^ word) * P, 29).
// Each step is a bijection of word and of lane, so a change within one word is found with certainty.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kvfork::base {

class Checksum {
 public:
  Checksum() noexcept;

  /// Parts of one run of bytes, in order; every part but the last is a multiple of 64 bytes.
  void add(std::span<const std::byte> bytes) noexcept;
  uint64_t value() const noexcept;

 private:
  std::array<uint64_t, 8> lanes_;
  uint64_t n_bytes_ = 0;
};

uint64_t checksum_of(std::span<const std::byte> bytes) noexcept;

}  // namespace kvfork::base
