// The names and sizes of safetensors' element types, and the number of elements of a shape.

#include "checkpoint/dtype.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

namespace kvfork::checkpoint {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  size_t bits;
};

// In the order of the enum. Names and sizes are those of the safetensors crate's Dtype.
constexpr std::array kEntries = {
    Entry{DType::F64, "F64", 64},        Entry{DType::F32, "F32", 32},        Entry{DType::F16, "F16", 16},
    Entry{DType::BF16, "BF16", 16},      Entry{DType::I64, "I64", 64},        Entry{DType::I32, "I32", 32},
    Entry{DType::I16, "I16", 16},        Entry{DType::I8, "I8", 8},           Entry{DType::U64, "U64", 64},
    Entry{DType::U32, "U32", 32},        Entry{DType::U16, "U16", 16},        Entry{DType::U8, "U8", 8},
    Entry{DType::Bool, "BOOL", 8},       Entry{DType::F8_E4M3, "F8_E4M3", 8}, Entry{DType::F8_E5M2, "F8_E5M2", 8},
    Entry{DType::F8_E8M0, "F8_E8M0", 8}, Entry{DType::F6_E2M3, "F6_E2M3", 6}, Entry{DType::F6_E3M2, "F6_E3M2", 6},
    Entry{DType::F4, "F4", 4},           Entry{DType::C64, "C64", 64},
};

constexpr bool in_enum_order() {
  for (size_t i = 0; i < kEntries.size(); ++i) {
    if (static_cast<size_t>(kEntries[i].dtype) != i) return false;
  }
  return true;
}
static_assert(in_enum_order());

}  // namespace

size_t dtype_bits(DType dtype) noexcept {
  return kEntries[static_cast<size_t>(dtype)].bits;
}

std::string_view dtype_name(DType dtype) noexcept {
  return kEntries[static_cast<size_t>(dtype)].name;
}

std::optional<DType> find_dtype(std::string_view name) noexcept {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

std::string describe_shape(std::span<const uint64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::optional<uint64_t> count_elements(std::span<const uint64_t> shape) noexcept {
  uint64_t n = 1;
  for (const uint64_t size : shape) {
    if (__builtin_mul_overflow(n, size, &n)) return std::nullopt;
  }
  return n;
}

}  // namespace kvfork::checkpoint
