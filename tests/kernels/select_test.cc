// The list of kernel sets against what the system says of the processor; complete tables; the comparators.

#include "kernels/select.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

#include "tests/kernels/kernel_test.h"

namespace kvfork::kernels {
namespace {

/// The kernel's own list of what the processor and the system offer, as a second opinion.
std::set<std::string> cpu_flags() {
  std::ifstream file("/proc/cpuinfo");
  std::set<std::string> flags;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    flags.insert(std::istream_iterator<std::string>(words), {});
    break;
  }
  return flags;
}

bool is_amd() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("vendor_id", 0) == 0) return line.find("AuthenticAMD") != std::string::npos;
  }
  return false;
}

bool built(std::string_view name) {
  const auto names = built_kernel_sets();
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool has_all(const std::set<std::string>& flags, std::initializer_list<const char*> names) {
  return std::all_of(names.begin(), names.end(), [&](const char* name) { return flags.count(name) != 0; });
}

TEST(Select, OffersWhatTheMachineOffers) {
  const auto flags = cpu_flags();
  ASSERT_FALSE(flags.empty()) << "/proc/cpuinfo lists no flags";
  const bool avx2 = has_all(flags, {"avx2", "fma", "f16c"});
  const bool avx512 = avx2 && has_all(flags, {"avx512f", "avx512bw", "avx512dq", "avx512vl"});
  const bool amx = avx512 && has_all(flags, {"amx_tile", "amx_bf16"});
  std::vector<std::string> expected;
  if (amx && built("amx")) expected.push_back("amx");
  // As fast as other multiply-adds on AMD's processors alone.
  if (avx512 && has_all(flags, {"avx512_bf16"}) && is_amd() && built("avx512_bf16"))
    expected.push_back("avx512_bf16");
  if (avx512 && built("avx512")) expected.push_back("avx512");
  if (avx2 && built("avx2")) expected.push_back("avx2");
  expected.push_back("portable");
  std::vector<std::string> found;
  for (const KernelTable* table : supported_kernel_sets()) found.push_back(table->name);
  EXPECT_EQ(found, expected);
}

TEST(Select, FindsEverySupportedSetByName) {
  for (const KernelTable* table : supported_kernel_sets()) EXPECT_EQ(find_kernel_set(table->name), table);
}

TEST(Select, UnknownNamesGiveNull) {
  for (const char* name : {"", "AVX2", "avx", "avx5123", "portable ", "amx2"})
    EXPECT_EQ(find_kernel_set(name), nullptr) << name;
}

TEST(Select, PortableIsBuiltAndLast) {
  ASSERT_FALSE(built_kernel_sets().empty());
  EXPECT_EQ(built_kernel_sets().back(), "portable");
  EXPECT_EQ(std::string(supported_kernel_sets().back()->name), "portable");
}

TEST(Select, TablesAreComplete) {
  for (const KernelTable* table : supported_kernel_sets()) {
    SCOPED_TRACE(table->name);
    EXPECT_TRUE(table->packed_bytes && table->pack && table->matmul && table->norm && table->rope);
    EXPECT_TRUE(table->activate && table->activate_mul && table->scale && table->add_scaled && table->cap);
    EXPECT_TRUE(table->gated && table->clip && table->add && table->widen && table->store_kv);
    EXPECT_TRUE(table->attention && table->attention_merge && table->attention_finish);
    EXPECT_TRUE(table->convolve && table->recur);
  }
}

TEST(Comparators, CountNanAndInfinityAsFailure) {
  const double nan = std::nan(""), inf = INFINITY;
  EXPECT_FALSE(is_close(nan, 0, 1));
  EXPECT_FALSE(is_close(0, nan, 1));
  EXPECT_FALSE(is_close(nan, nan, 1));
  EXPECT_FALSE(is_close(inf, 0, 1));
  EXPECT_FALSE(is_close(inf, -inf, 1));
  EXPECT_FALSE(is_close(-5, -3, 1));
  EXPECT_FALSE(is_close(1, 2, nan));
  EXPECT_TRUE(is_close(inf, inf, 0));
  EXPECT_TRUE(is_close(-3, -3.5, 0.5));
  const float zeros[] = {0.0f, 1.0f}, negative[] = {-0.0f, 1.0f};
  EXPECT_FALSE(same_bits(zeros, negative, 2));
  EXPECT_TRUE(same_bits(zeros, zeros, 2));
}

}  // namespace
}  // namespace kvfork::kernels
