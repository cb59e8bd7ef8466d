// Element types of safetensors files, and how they are spelled there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kvfork::checkpoint {

enum class DType {
  F64,
  F32,
  F16,
  BF16,
  I64,
  I32,
  I16,
  I8,
  U64,
  U32,
  U16,
  U8,
  Bool,
  F8_E4M3,
  F8_E5M2,
  F8_E8M0,
  F6_E2M3,
  F6_E3M2,
  F4,
  C64,
};

/// Bits of one element.
size_t dtype_bits(DType dtype) noexcept;

/// The safetensors spelling, e.g. "BF16".
std::string_view dtype_name(DType dtype) noexcept;

std::optional<DType> find_dtype(std::string_view name) noexcept;

/// "[2, 3]".
std::string describe_shape(std::span<const uint64_t> shape);

/// Elements of a shape, or nothing when the product overflows 64 bits.
std::optional<uint64_t> count_elements(std::span<const uint64_t> shape) noexcept;

}  // namespace kvfork::checkpoint
