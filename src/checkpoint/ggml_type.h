// Tensor types of GGUF files and their dequantization to float32.
//
// The values are those of the numpy code in the `gguf` Python package, bit for bit: Transformers loads GGUF files
// through it. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kvfork::checkpoint {

struct GgmlType {
  uint32_t id;              ///< in the file
  std::string_view name;    ///< "Q4_1"
  uint32_t block_elements;  ///< elements of one block; a row is a whole number of blocks
  uint32_t block_bytes;
  /// Writes n_blocks * block_elements floats; nullptr for a type that is known only by size.
  void (*dequantize)(const std::byte* blocks, size_t n_blocks, float* out) noexcept;
};

/// The type with this id, or nullptr.
const GgmlType* find_ggml_type(uint32_t id) noexcept;

/// All known types, by id.
std::span<const GgmlType> ggml_types() noexcept;

}  // namespace kvfork::checkpoint
