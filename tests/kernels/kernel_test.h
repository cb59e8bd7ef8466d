// What the kernel tests share: every set that this machine runs as a parameter, arrays that end at an unmapped
// page, random numbers with spread and sign, and comparators that fail unless closeness is proven.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/scalar.h"
#include "kernels/select.h"
#include "tests/kernels/amx/emulated_table.h"

namespace kvfork::kernels {

inline constexpr double kEpsilon = 0x1p-24;  // largest relative error of one float32 rounding

class EachSet : public testing::TestWithParam<const KernelTable*> {
 protected:
  const KernelTable& table() const { return *GetParam(); }
  size_t lanes() const {
    const std::string name = table().name;
    return name == "avx2" ? 8 : name == "portable" ? 4 : 16;
  }
};

inline std::string set_name(const testing::TestParamInfo<const KernelTable*>& info) {
  return info.param->name;
}

/// The sets that run here, and the amx set on emulated tiles wherever the rest of it runs.
inline auto all_sets() {
  const auto supported = supported_kernel_sets();
  std::vector<const KernelTable*> sets(supported.begin(), supported.end());
  for (const KernelTable* set : sets) prepare_kernel_set(*set);
#if defined(KVFORK_HAVE_AMX)
  if (find_kernel_set("avx512")) sets.push_back(&emulated_amx_table());
#endif
  return testing::ValuesIn(sets);
}

/// n numbers whose last byte is the last byte before an unmapped page: reading or writing past the end faults.
/// `shift` moves the start down by some bytes (the bytes after the end are then checked by the destructor).
template <class T>
class EdgeArray {
 public:
  explicit EdgeArray(size_t n, size_t shift = 0) : n_(n), shift_(shift) {
    const size_t page = static_cast<size_t>(getpagesize());
    bytes_ = (n * sizeof(T) + shift + page - 1) / page * page + page;
    base_ = static_cast<char*>(
        mmap(nullptr, bytes_ + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED) std::abort();
    if (mprotect(base_ + bytes_, page, PROT_NONE) != 0) std::abort();
    std::memset(base_, kCanary, bytes_);
    start_ = base_ + bytes_ - n * sizeof(T) - shift;
    std::memset(start_, 0, n * sizeof(T));
  }
  ~EdgeArray() {
    for (char* p = base_; p < start_; ++p)
      EXPECT_EQ(*p, kCanary) << start_ - p << " bytes before an array of " << n_;
    for (char* p = base_ + bytes_ - shift_; p < base_ + bytes_; ++p)
      EXPECT_EQ(*p, kCanary) << "after an array of " << n_;
    munmap(base_, bytes_ + static_cast<size_t>(getpagesize()));
  }
  EdgeArray(const EdgeArray&) = delete;
  EdgeArray& operator=(const EdgeArray&) = delete;

  T* data() { return reinterpret_cast<T*>(start_); }
  const T* data() const { return reinterpret_cast<const T*>(start_); }
  size_t size() const { return n_; }
  T operator[](size_t i) const {
    T x;
    std::memcpy(&x, start_ + i * sizeof(T), sizeof x);
    return x;
  }
  void set(size_t i, T x) { std::memcpy(start_ + i * sizeof(T), &x, sizeof x); }

 private:
  static constexpr char kCanary = 0x5a;
  size_t n_, shift_, bytes_;
  char *base_, *start_;
};

/// The table's workspace, ending at an unmapped page and full of NaN: what it held before means nothing.
inline void* make_workspace(const KernelTable& table) {
  static std::map<const KernelTable*, EdgeArray<char>> workspaces;
  EdgeArray<char>& workspace = workspaces.try_emplace(&table, table.workspace_bytes).first->second;
  std::memset(workspace.data(), 0xff, workspace.size());
  return workspace.data();
}

/// Normal numbers, some of them 30 times larger.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  float next() {
    const float x = normal_(engine_);
    return engine_() % 16 == 0 ? 30 * x : x;
  }
  size_t below(size_t n) { return engine_() % n; }
  template <class Array>
  void fill(Array& array) {
    for (size_t i = 0; i < array.size(); ++i) array.set(i, next());
  }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<float> normal_;
};

/// Inverse of f16_to_f32 for numbers a test makes: to nearest within the finite range, by search.
inline uint16_t f32_to_f16(float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  uint16_t low = 0, high = 0x7bff;
  while (low < high) {
    const uint16_t middle = static_cast<uint16_t>((low + high + 1) / 2);
    if (f16_to_f32(middle) <= std::fabs(x)) {
      low = middle;
    } else {
      high = static_cast<uint16_t>(middle - 1);
    }
  }
  return static_cast<uint16_t>(low | sign);
}

/// Stores x as `type` at p (which may be misaligned) and returns the number stored.
inline float store_element(char* p, Element type, float x) {
  if (type == Element::F32) {
    std::memcpy(p, &x, sizeof x);
    return x;
  }
  const uint16_t bits = type == Element::BF16 ? f32_to_bf16(x) : f32_to_f16(x);
  std::memcpy(p, &bits, sizeof bits);
  return type == Element::BF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

/// True only if the two are provably within the tolerance: NaN is never close, an infinity only to itself.
inline bool is_close(double actual, double expected, double tolerance) {
  return std::fabs(actual - expected) <= tolerance || (std::isinf(expected) && actual == expected);
}

inline testing::AssertionResult close_to(double actual, double expected, double tolerance) {
  if (is_close(actual, expected, tolerance)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << actual << " is not within " << tolerance << " of " << expected;
}

template <class A, class B>
testing::AssertionResult same_bits(const A& a, const B& b, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if (float_bits(a[i]) != float_bits(b[i]))
      return testing::AssertionFailure() << "at " << i << ": " << a[i] << ", " << b[i];
  }
  return testing::AssertionSuccess();
}

}  // namespace kvfork::kernels
