// Every kernel of every set that this machine runs, at the shapes of Qwen2-0.5B, beside the machine's ceilings:
//   of_read  bytes moved over what a plain sequential read of the same memory moves in the same time
//   of_fma   operations over those of multiply-adds that never leave registers
// Both ceilings are measured inside the benchmark that shows them, before and after.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/kernels/probe.h"
#include "kernels/kernels.h"
#include "kernels/scalar.h"
#include "kernels/select.h"

namespace kvfork::bench {
namespace {

using kernels::Activation;
using kernels::Element;
using kernels::KernelTable;
using kernels::Rounding;

/// Half a gigabyte of small numbers that any of the stored types can be read from: larger than any cache.
struct Arena {
  static constexpr size_t kBytes = size_t{512} << 20;
  char* data;
  Arena() {
    data = static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (data == MAP_FAILED) std::abort();
    std::mt19937 random(1);
    std::vector<uint16_t> page(2048);
    for (auto& x : page) x = static_cast<uint16_t>(0x3c00 | (random() & 0x81ff));
    for (size_t i = 0; i < kBytes; i += 4096) std::memcpy(data + i, page.data(), 4096);
  }
};

const Arena& arena() {
  static const Arena instance;
  return instance;
}

std::vector<float> numbers(size_t n) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

struct Aligned {
  explicit Aligned(size_t bytes)
      : data(static_cast<char*>(std::aligned_alloc(64, kernels::round_up(bytes + 1, 64)))) {
    std::memset(data, 0, bytes);
  }
  ~Aligned() { std::free(data); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  char* data;
};

void report_bytes(benchmark::State& state, double bytes_per_iteration, double read_ceiling) {
  const double bytes = bytes_per_iteration * static_cast<double>(state.iterations());
  state.counters["bytes/s"] = benchmark::Counter(bytes, benchmark::Counter::kIsRate);
  state.counters["of_read"] =
      benchmark::Counter(bytes / read_ceiling, benchmark::Counter::kIsRate | benchmark::Counter::kAvgThreads);
}

void report_flops(benchmark::State& state, double flops_per_iteration, double fma_ceiling) {
  const double flops = flops_per_iteration * static_cast<double>(state.iterations());
  state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsRate);
  state.counters["of_fma"] =
      benchmark::Counter(flops / fma_ceiling, benchmark::Counter::kIsRate | benchmark::Counter::kAvgThreads);
}

struct Shape {
  const char* name;
  size_t k;
  size_t n_features;
};

constexpr Shape kShapes[] = {
    {"qkv", 896, 1152}, {"out", 896, 896}, {"gate_up", 896, 9728}, {"down", 4864, 896}, {"lm_head", 896, 151936}};

void pack_all(const KernelTable& table, kernels::PackArgs args) {
  args.row_begin = 0;
  args.row_end = args.n_rows;
  table.pack(args);
}

/// What bounds products with weights of this type. On tiles float32 mode needs three of theirs for one, float16
/// weights twice as many; products of bfloat16 pairs are two at a time.
double peak_flops(const KernelTable& table, Element type, Rounding rounding) {
  const std::string set = table.name;
  if (set == "amx" && type != Element::F32) {
    const int products = (rounding == Rounding::None ? 3 : 1) * (type == Element::F16 ? 2 : 1);
    return tile_flops_per_second() / products;
  }
  const bool pairs = set == "avx512_bf16" && type == Element::BF16 && rounding == Rounding::ToBF16;
  return register_flops_per_second(set) * (pairs ? 2 : 1);
}

/// Each iteration takes the next weights of the arena, so that few rows always read memory, as in a real pass.
/// With two threads each has half of the arena.
void matmul(benchmark::State& state, const KernelTable& table, Shape shape, Element type, Rounding rounding,
            size_t n_rows) {
  const size_t threads = static_cast<size_t>(state.threads());
  const size_t span = Arena::kBytes / threads;
  const char* weights = arena().data + span * static_cast<size_t>(state.thread_index());
  const size_t row_bytes = shape.k * element_bytes(type);
  const size_t n_features = std::min(shape.n_features, span / row_bytes);
  const size_t weight_bytes = n_features * row_bytes;
  const auto x = numbers(n_rows * shape.k);
  const auto bias = numbers(n_features);
  Aligned packed(table.packed_bytes(n_rows, shape.k, type));
  std::vector<float> y(n_rows * n_features);
  Aligned workspace(table.workspace_bytes);
  pack_all(table, {.x = x.data(),
                   .x_stride = shape.k,
                   .n_rows = n_rows,
                   .k = shape.k,
                   .weight_type = type,
                   .rounding = rounding,
                   .packed = packed.data});
  double read = read_bytes_per_second(weights, span / 4);
  double peak = peak_flops(table, type, rounding);
  size_t offset = 0;
  for (auto _ : state) {
    if (offset + weight_bytes > span) offset = 0;
    table.matmul({.weight = weights + offset,
                  .weight_type = type,
                  .rounding = rounding,
                  .packed = packed.data,
                  .n_rows = n_rows,
                  .row_begin = 0,
                  .row_end = n_rows,
                  .k = shape.k,
                  .feature_begin = 0,
                  .feature_end = n_features,
                  .bias = bias.data(),
                  .y = y.data(),
                  .y_stride = n_features,
                  .workspace = workspace.data});
    offset += weight_bytes;
  }
  read = (read + read_bytes_per_second(weights + span / 2, span / 4)) / 2;
  peak = (peak + peak_flops(table, type, rounding)) / 2;
  report_bytes(state, static_cast<double>(weight_bytes), read);
  report_flops(state, 2.0 * static_cast<double>(n_rows * n_features * shape.k), peak);
}

void pack(benchmark::State& state, const KernelTable& table, size_t n_rows) {
  constexpr size_t kK = 4864;
  const auto x = numbers(n_rows * kK);
  Aligned packed(table.packed_bytes(n_rows, kK, Element::BF16));
  for (auto _ : state) {
    pack_all(table, {.x = x.data(),
                     .x_stride = kK,
                     .n_rows = n_rows,
                     .k = kK,
                     .weight_type = Element::BF16,
                     .rounding = Rounding::ToBF16,
                     .packed = packed.data});
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * n_rows * kK * 8));
}

/// Chunks of full blocks of one KV head, one after another: what one layer's attention does per KV head.
void attention(benchmark::State& state, const KernelTable& table, Element type, size_t head_dim, size_t n_rows) {
  const size_t stride = kernels::value_stride(head_dim);
  const size_t k_bytes = kernels::kBlockTokens * head_dim * element_bytes(type);
  const size_t v_bytes = kernels::kBlockTokens * stride * element_bytes(type);
  const auto q = numbers(n_rows * head_dim);
  std::vector<const float*> rows;
  for (size_t r = 0; r < n_rows; ++r) rows.push_back(q.data() + r * head_dim);
  constexpr size_t kBlocks = 4;
  const size_t block_bytes = k_bytes + v_bytes;
  const std::vector<kernels::KeyRange> seen(n_rows, {0, kBlocks * kernels::kBlockTokens});
  std::vector<float> max(n_rows), sum(n_rows), out(n_rows * stride), max_b(n_rows), sum_b(n_rows),
      out_b(n_rows * stride);
  Aligned workspace(table.workspace_bytes);
  double read = read_bytes_per_second(arena().data, Arena::kBytes / 8);
  double fma = register_flops_per_second(table.name);
  size_t offset = 0;
  for (auto _ : state) {
    if (offset + kBlocks * block_bytes > Arena::kBytes) offset = 0;
    const char* block = arena().data + offset;
    std::array<kernels::KvBlockData, kBlocks> data;
    for (size_t i = 0; i < kBlocks; ++i) data[i] = {block + i * block_bytes, block + i * block_bytes + k_bytes};
    table.attention({.q = rows.data(),
                     .seen = seen.data(),
                     .n_rows = n_rows,
                     .head_dim = head_dim,
                     .scale = 0.125f,
                     .kv_type = type,
                     .blocks = data.data(),
                     .n_blocks = kBlocks,
                     .result = {max.data(), sum.data(), out.data()},
                     .spare = {max_b.data(), sum_b.data(), out_b.data()},
                     .workspace = workspace.data,
                     .next_k = block + kBlocks * block_bytes});
    offset += kBlocks * block_bytes;
  }
  read = (read + read_bytes_per_second(arena().data + Arena::kBytes / 2, Arena::kBytes / 8)) / 2;
  fma = (fma + register_flops_per_second(table.name)) / 2;
  report_bytes(state, static_cast<double>(kBlocks * block_bytes), read);
  report_flops(state, 4.0 * static_cast<double>(n_rows * head_dim * kBlocks * kernels::kBlockTokens), fma);
}

void rms_norm(benchmark::State& state, const KernelTable& table) {
  const auto x = numbers(896), weight = numbers(896);
  std::vector<float> y(896);
  for (auto _ : state) {
    table.norm({.x = x.data(),
                .weight = weight.data(),
                .bias = nullptr,
                .eps = 1e-6f,
                .subtracts_mean = false,
                .n = y.size(),
                .y = y.data()});
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * y.size()));
}

void rope(benchmark::State& state, const KernelTable& table) {
  auto x = numbers(14 * 64);
  const std::vector<float> cos(32, 0.6f), sin(32, 0.8f);
  for (auto _ : state) {
    table.rope({.x = x.data(),
                .n_heads = 14,
                .head_stride = 64,
                .n_pairs = 32,
                .neighbours = false,
                .cos = cos.data(),
                .sin = sin.data()});
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * x.size()));
}

void activate_mul(benchmark::State& state, const KernelTable& table, Activation activation) {
  const auto gate = numbers(4864), up = numbers(4864);
  std::vector<float> y(4864);
  for (auto _ : state) {
    table.activate_mul(activation, 7, gate.data(), up.data(), y.size(), y.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * y.size()));
}

void add(benchmark::State& state, const KernelTable& table) {
  std::vector<float> x(896, 1.0f), y(896, 1e-3f);
  for (auto _ : state) {
    table.add(x.data(), y.data(), x.size());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * x.size()));
}

void store_kv(benchmark::State& state, const KernelTable& table, Element type) {
  const auto k = numbers(64 * 64), v = numbers(64 * 64);
  Aligned k_block(64 * 64 * 4), v_block(64 * 64 * 4);
  for (auto _ : state) {
    table.store_kv({.k = k.data(),
                    .k_stride = 64,
                    .v = v.data(),
                    .v_stride = 64,
                    .n_tokens = 64,
                    .head_dim = 64,
                    .slot = 0,
                    .kv_type = type,
                    .k_block = k_block.data,
                    .v_block = v_block.data});
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * 64));
}

const char* name(Element type) {
  return type == Element::F32 ? "f32" : type == Element::F16 ? "f16" : "bf16";
}

void register_set(const KernelTable& table) {
  const std::string set = table.name;
  const auto add_benchmark = [&](const std::string& title, auto function, auto... args) {
    return benchmark::RegisterBenchmark((set + "/" + title).c_str(),
                                        [=, &table](benchmark::State& state) { function(state, table, args...); });
  };
  for (Element type : {Element::BF16, Element::F16, Element::F32}) {
    for (const Shape& shape : kShapes) {
      for (size_t n_rows : {1, 4, 16, 32, 512}) {
        const bool head = std::string(shape.name) == "lm_head";
        if (head && n_rows > 4) continue;
        for (Rounding rounding : {Rounding::None, Rounding::ToBF16}) {
          const bool own_way = (set == "amx" || set == "avx512_bf16") && type == Element::BF16;
          if (rounding == Rounding::ToBF16 && !own_way) continue;
          auto* b = add_benchmark(std::string("matmul/") + name(type) + "/" + shape.name +
                                      (rounding == Rounding::ToBF16 ? "/rounded" : "") +
                                      "/rows:" + std::to_string(n_rows),
                                  matmul, shape, type, rounding, n_rows);
          b->UseRealTime()->Unit(benchmark::kMicrosecond);
          if (n_rows == 1 || n_rows == 512) b->Threads(1)->Threads(2);
        }
      }
    }
  }
  for (size_t n_rows : {1, 512}) add_benchmark("pack/rows:" + std::to_string(n_rows), pack, n_rows);
  for (Element type : {Element::F32, Element::BF16}) {
    for (size_t head_dim : {64, 80, 96, 128, 256}) {
      for (size_t n_rows : {1, 7, 7 * 18, 7 * 64}) {
        if (head_dim != 64 && n_rows != 7) continue;
        add_benchmark(std::string("attention/") + name(type) + "/head_dim:" + std::to_string(head_dim) +
                          "/rows:" + std::to_string(n_rows),
                      attention, type, head_dim, n_rows);
      }
    }
    add_benchmark(std::string("store_kv/") + name(type), store_kv, type);
  }
  add_benchmark("rms_norm", rms_norm);
  add_benchmark("rope", rope);
  add_benchmark("silu_mul", activate_mul, Activation::Silu);
  add_benchmark("gelu_mul", activate_mul, Activation::Gelu);
  add_benchmark("gelu_tanh_mul", activate_mul, Activation::GeluTanh);
  add_benchmark("add", add);
}

}  // namespace
}  // namespace kvfork::bench

int main(int argc, char** argv) {
  for (const auto* table : kvfork::kernels::supported_kernel_sets()) {
    if (kvfork::kernels::prepare_kernel_set(*table) == 0) kvfork::bench::register_set(*table);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
