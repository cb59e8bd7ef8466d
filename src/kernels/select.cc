// The list of the kernel sets that were built, and those of them that this machine runs.

#include "kernels/select.h"

#include <array>
#include <cstddef>

#include "kernels/cpu_features.h"
#include "kernels/sets.h"

namespace kvfork::kernels {
namespace {

struct Set {
  std::string_view name;
  const KernelTable& (*table)() noexcept;
  bool (*runs)() noexcept;
};

// Best first. cmake/isa.cmake says which sets are built.
constexpr Set kBuilt[] = {
#if defined(KVFORK_HAVE_AMX)
    {"amx", amx::kernel_table, cpu_runs_amx},
#endif
#if defined(KVFORK_HAVE_AVX512_BF16)
    {"avx512_bf16", avx512_bf16::kernel_table, cpu_runs_avx512_bf16},
#endif
#if defined(KVFORK_HAVE_AVX512)
    {"avx512", avx512::kernel_table, cpu_runs_avx512},
#endif
#if defined(KVFORK_HAVE_AVX2)
    {"avx2", avx2::kernel_table, cpu_runs_avx2},
#endif
    {"portable", portable::kernel_table, []() noexcept { return true; }},
};
constexpr size_t kBuiltCount = sizeof kBuilt / sizeof *kBuilt;

struct Supported {
  std::array<const KernelTable*, kBuiltCount> tables{};
  size_t count = 0;
};

Supported find_supported() {
  Supported supported;
  for (const Set& set : kBuilt) {
    if (set.runs()) supported.tables[supported.count++] = &set.table();
  }
  return supported;
}

constexpr std::array<std::string_view, kBuiltCount> built_names() {
  std::array<std::string_view, kBuiltCount> names;
  for (size_t i = 0; i < kBuiltCount; ++i) names[i] = kBuilt[i].name;
  return names;
}

constexpr std::array<std::string_view, kBuiltCount> kBuiltNames = built_names();

}  // namespace

std::span<const KernelTable* const> supported_kernel_sets() noexcept {
  static const Supported supported = find_supported();
  return {supported.tables.data(), supported.count};
}

const KernelTable* find_kernel_set(std::string_view name) noexcept {
  for (const KernelTable* table : supported_kernel_sets()) {
    if (name == table->name) return table;
  }
  return nullptr;
}

int prepare_kernel_set(const KernelTable& set) noexcept {
  return std::string_view(set.name) == "amx" ? request_tiles() : 0;
}

std::span<const std::string_view> built_kernel_sets() noexcept {
  return kBuiltNames;
}

}  // namespace kvfork::kernels
