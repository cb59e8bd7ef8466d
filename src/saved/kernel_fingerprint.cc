// Runs small fixed inputs through a kernel set and hashes what it computes.

#include "saved/kernel_fingerprint.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <vector>

#include "base/memory_region.h"
#include "base/sha256.h"
#include "checkpoint/rotation.h"
#include "kernels/scalar.h"
#include "model/attention.h"
#include "model/double_math.h"
#include "model/rope.h"

namespace kvfork::saved {
namespace {

using kernels::Element;

constexpr size_t kInput =
    2251;  // elements of a row: more than one panel of a product, whole vectors and a tail in every set
constexpr size_t kFeatures = 21;
constexpr size_t kRows = 3;
constexpr size_t kHeadDim = 56;
constexpr size_t kStride = kernels::value_stride(kHeadDim);

// Numbers in (-2, 2) with full mantissas, the same everywhere.
class Numbers {
 public:
  float next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(static_cast<int32_t>(state_ >> 32)) * 0x1p-30f;
  }
  std::vector<float> take(size_t n) {
    std::vector<float> values(n);
    for (float& value : values) value = next();
    return values;
  }

 private:
  uint64_t state_ = 20260101;
};

class Probe {
 public:
  explicit Probe(const kernels::KernelTable& kernels)
      : kernels_(kernels),
        workspace_(base::MemoryRegion::allocate(kernels.workspace_bytes, "kernel fingerprint")) {}

  std::string run(bool has_states) {
    sha_.add(fmt::format("blocks of {}, chunks of {}\n", kernels::kBlockTokens, model::kChunkBlocks));
    for (const Element type : {Element::F32, Element::F16, Element::BF16}) {
      for (const auto rounding : {kernels::Rounding::None, kernels::Rounding::ToBF16}) add_product(type, rounding);
    }
    add_rows();
    for (const Element type : {Element::F32, Element::BF16}) add_attention(type);
    add_rotary_tables();
    if (has_states) add_states();
    return sha_.hex();
  }

 private:
  void add(const std::vector<float>& values) { sha_.add(std::as_bytes(std::span(values))); }

  static std::vector<std::byte> encode(const std::vector<float>& values, Element type) {
    std::vector<std::byte> bytes(values.size() * kernels::element_bytes(type));
    for (size_t i = 0; i < values.size(); ++i) {
      // Any bits do as float16: small ones keep clear of infinities.
      const uint16_t half = type == Element::BF16
                                ? kernels::f32_to_bf16(values[i])
                                : static_cast<uint16_t>(0x2000 + i * 37 % 0x1C00 + (i % 2) * 0x8000);
      if (type == Element::F32)
        std::memcpy(&bytes[i * 4], &values[i], 4);
      else
        std::memcpy(&bytes[i * 2], &half, 2);
    }
    return bytes;
  }

  void add_product(Element type, kernels::Rounding rounding) {
    const auto weight = encode(numbers_.take(kFeatures * kInput), type);
    const auto x = numbers_.take(kRows * kInput);
    const auto bias = numbers_.take(kFeatures);
    const auto packed =
        base::MemoryRegion::allocate(kernels_.packed_bytes(kRows, kInput, type), "kernel fingerprint");
    kernels_.pack({.x = x.data(),
                   .x_stride = kInput,
                   .row_begin = 0,
                   .row_end = kRows,
                   .n_rows = kRows,
                   .k = kInput,
                   .weight_type = type,
                   .rounding = rounding,
                   .packed = packed.data()});
    std::vector<float> y(kRows * kFeatures);
    kernels_.matmul({.weight = weight.data(),
                     .weight_type = type,
                     .rounding = rounding,
                     .packed = packed.data(),
                     .n_rows = kRows,
                     .row_begin = 0,
                     .row_end = kRows,
                     .k = kInput,
                     .feature_begin = 0,
                     .feature_end = kFeatures,
                     .bias = bias.data(),
                     .y = y.data(),
                     .y_stride = kFeatures,
                     .workspace = workspace_.data()});
    add(y);
    std::vector<float> wide(kInput);
    kernels_.widen(weight.data(), type, wide.size(), wide.data());
    add(wide);
  }

  void add_rows() {
    auto x = numbers_.take(kInput);
    const auto weight = numbers_.take(kInput);
    std::vector<float> y(kInput);
    kernels_.norm({.x = x.data(),
                   .weight = weight.data(),
                   .bias = nullptr,
                   .eps = 1e-6f,
                   .subtracts_mean = false,
                   .n = kInput,
                   .y = y.data()});
    add(y);
    kernels_.activate_mul(kernels::Activation::Silu, 0, x.data(), weight.data(), kInput, y.data());
    add(y);
    kernels_.add(x.data(), weight.data(), kInput);
    add(x);
    auto heads = numbers_.take(2 * kHeadDim);
    const auto cos = numbers_.take(kHeadDim / 2);
    const auto sin = numbers_.take(kHeadDim / 2);
    kernels_.rope({.x = heads.data(),
                   .n_heads = 2,
                   .head_stride = kHeadDim,
                   .n_pairs = kHeadDim / 2,
                   .neighbours = false,
                   .cos = cos.data(),
                   .sin = sin.data()});
    add(heads);
  }

  // Two blocks of keys, met by rows that see all, some and one of them, merged and normalized.
  void add_attention(Element type) {
    const size_t element_bytes = kernels::element_bytes(type);
    const auto q = numbers_.take(kRows * kHeadDim);
    const std::array<const float*, kRows> rows = {q.data(), q.data() + kHeadDim, q.data() + 2 * kHeadDim};
    const std::array<kernels::KeyRange, kRows> seen = {{{0, kernels::kBlockTokens}, {0, 37}, {0, 1}}};
    std::array<std::vector<float>, 2> max, sum, out;
    for (size_t block = 0; block < 2; ++block) {
      const auto k = numbers_.take(kernels::kBlockTokens * kHeadDim);
      const auto v = numbers_.take(kernels::kBlockTokens * kHeadDim);
      const size_t k_bytes = kernels::kBlockTokens * kHeadDim * element_bytes;
      const size_t v_bytes = kernels::kBlockTokens * kStride * element_bytes;
      const auto k_block = base::MemoryRegion::allocate(k_bytes, "kernel fingerprint");
      const auto v_block = base::MemoryRegion::allocate(v_bytes, "kernel fingerprint");
      kernels_.store_kv({.k = k.data(),
                         .k_stride = kHeadDim,
                         .v = v.data(),
                         .v_stride = kHeadDim,
                         .n_tokens = kernels::kBlockTokens,
                         .head_dim = kHeadDim,
                         .slot = 0,
                         .kv_type = type,
                         .k_block = k_block.data(),
                         .v_block = v_block.data()});
      sha_.add(std::span(k_block.data(), k_bytes));
      sha_.add(std::span(v_block.data(), v_bytes));
      max[block].resize(kRows);
      sum[block].resize(kRows);
      out[block].resize(kRows * kStride);
      const kernels::KvBlockData data{k_block.data(), v_block.data()};
      kernels_.attention({.q = rows.data(),
                          .seen = seen.data(),
                          .n_rows = kRows,
                          .head_dim = kHeadDim,
                          .scale = 0.13f,
                          .kv_type = type,
                          .blocks = &data,
                          .n_blocks = 1,
                          .result = {max[block].data(), sum[block].data(), out[block].data()},
                          .spare = {},
                          .workspace = workspace_.data()});
    }
    kernels_.attention_merge({max[0].data(), sum[0].data(), out[0].data()},
                             {max[1].data(), sum[1].data(), out[1].data()}, kRows, kHeadDim);
    std::vector<float> y(kHeadDim);
    for (size_t row = 0; row < kRows; ++row) {
      kernels_.attention_finish(out[0].data() + row * kStride, sum[0][row], kHeadDim, y.data());
      add(y);
    }
  }

  // A convolution and a memory over a few tokens, with the gates between them.
  void add_states() {
    constexpr size_t kTokens = 3, kWidth = 4, kKeys = 7;
    auto x = numbers_.take(kTokens * kInput);
    const auto weight = numbers_.take(kWidth * kInput), tail = numbers_.take((kWidth - 1) * kInput);
    std::vector<float> next_tail(tail.size()), y(x.size());
    kernels_.convolve({.x = x.data(),
                       .x_stride = kInput,
                       .n_tokens = kTokens,
                       .n_channels = kInput,
                       .width = kWidth,
                       .weight = weight.data(),
                       .weight_stride = kInput,
                       .bias = nullptr,
                       .silu = true,
                       .tail = tail.data(),
                       .tail_stride = kInput,
                       .next_tail = next_tail.data(),
                       .y = y.data(),
                       .y_stride = kInput});
    add(y);
    add(next_tail);
    kernels_.multiply(x.data(), y.data(), x.size());
    add(x);
    kernels_.activate_mul(kernels::Activation::Sigmoid, 0, x.data(), y.data(), y.size(), y.data());
    add(y);
    const auto keys = numbers_.take(2 * kTokens * kKeys), state = numbers_.take(kKeys * kInput);
    std::vector<float> gates, next_state(state.size());
    for (size_t i = 0; i < 2 * kTokens; ++i) {
      gates.push_back(model::sigmoid(keys[i]));
      gates.push_back(static_cast<float>(model::softplus(static_cast<double>(keys[i]))));
    }
    add(gates);
    for (const bool corrects : {false, true}) {
      kernels_.recur({.read = keys.data(),
                      .read_stride = kKeys,
                      .write = keys.data() + kTokens * kKeys,
                      .write_stride = kKeys,
                      .value = x.data(),
                      .value_stride = kInput,
                      .gain = gates.data(),
                      .gain_stride = 4,
                      .fade = gates.data() + 2,
                      .fade_stride = 4,
                      .fades_by_key = false,
                      .corrects = corrects,
                      .n_tokens = kTokens,
                      .n_keys = kKeys,
                      .n_columns = kInput,
                      .state = state.data(),
                      .state_stride = kInput,
                      .next_state = next_state.data(),
                      .y = y.data(),
                      .y_stride = kInput});
      add(y);
      add(next_state);
    }
  }

  // These come from the C library's pow, cos and sin.
  void add_rotary_tables() {
    constexpr size_t kRotated = 128;
    const auto frequencies = checkpoint::make_rotation(1e6, {}, kRotated).inverse_frequencies;
    add(frequencies);
    std::vector<float> cos(kRotated / 2), sin(kRotated / 2);
    for (const size_t position : {1, 77, 4095, 131071}) {
      model::rotate_position(frequencies, 1, position, cos.data(), sin.data());
      add(cos);
      add(sin);
    }
  }

  const kernels::KernelTable& kernels_;
  base::MemoryRegion workspace_;
  Numbers numbers_;
  base::Sha256 sha_;
};

}  // namespace

std::string fingerprint_kernels(const kernels::KernelTable& kernels, bool has_states) {
  return Probe(kernels).run(has_states);
}

}  // namespace kvfork::saved
