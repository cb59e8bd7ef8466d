// The table of GGUF's tensor types and the function that dequantizes each.

#include "checkpoint/ggml_type.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace kvfork::checkpoint {
namespace {

constexpr size_t kSmall = 32;   // elements in a block of the older types
constexpr size_t kSuper = 256;  // elements in a block of the K types

uint8_t byte_at(const std::byte* p, size_t i) {
  return static_cast<uint8_t>(p[i]);
}
int8_t signed_at(const std::byte* p, size_t i) {
  return static_cast<int8_t>(p[i]);
}

uint16_t load_u16(const std::byte* p) {
  uint16_t value = 0;
  std::memcpy(&value, p, sizeof value);
  return value;
}

float load_half(const std::byte* p) {
  const uint32_t half = load_u16(p);
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  // Subnormal halves are small multiples of 2^-24, which float32 holds exactly.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

void copy_f32(const std::byte* in, size_t n, float* out) noexcept {
  std::memcpy(out, in, n * sizeof(float));
}

void widen_f16(const std::byte* in, size_t n, float* out) noexcept {
  for (size_t i = 0; i < n; ++i) out[i] = load_half(in + 2 * i);
}

void widen_bf16(const std::byte* in, size_t n, float* out) noexcept {
  for (size_t i = 0; i < n; ++i) out[i] = std::bit_cast<float>(static_cast<uint32_t>(load_u16(in + 2 * i)) << 16);
}

// {half d; int8 q[32]}: q * d.
void dequantize_q8_0(const std::byte* in, size_t n, float* out) noexcept {
  for (; n > 0; --n, in += 34, out += kSmall) {
    const float d = load_half(in);
    for (size_t i = 0; i < kSmall; ++i) out[i] = static_cast<float>(signed_at(in, 2 + i)) * d;
  }
}

// {half d; nibbles[16]}: d * (q - 8). Low nibbles are the first 16 elements, high nibbles the others.
void dequantize_q4_0(const std::byte* in, size_t n, float* out) noexcept {
  for (; n > 0; --n, in += 18, out += kSmall) {
    const float d = load_half(in);
    for (size_t i = 0; i < 16; ++i) {
      const int q = byte_at(in, 2 + i);
      out[i] = d * static_cast<float>((q & 15) - 8);
      out[i + 16] = d * static_cast<float>((q >> 4) - 8);
    }
  }
}

// {half d, m; nibbles[16]}: d * q + m.
void dequantize_q4_1(const std::byte* in, size_t n, float* out) noexcept {
  for (; n > 0; --n, in += 20, out += kSmall) {
    const float d = load_half(in);
    const float m = load_half(in + 2);
    for (size_t i = 0; i < 16; ++i) {
      const int q = byte_at(in, 4 + i);
      out[i] = d * static_cast<float>(q & 15) + m;
      out[i + 16] = d * static_cast<float>(q >> 4) + m;
    }
  }
}

// Element i's fifth bit: bit i of a little-endian word of 32.
int high_bit(const std::byte* bits, size_t i) {
  return (byte_at(bits, i / 8) >> (i % 8)) & 1;
}

// {half d; bits[4]; nibbles[16]}: d * (q - 16).
void dequantize_q5_0(const std::byte* in, size_t n, float* out) noexcept {
  for (; n > 0; --n, in += 22, out += kSmall) {
    const float d = load_half(in);
    for (size_t i = 0; i < 16; ++i) {
      const int q = byte_at(in, 6 + i);
      out[i] = d * static_cast<float>(((q & 15) | (high_bit(in + 2, i) << 4)) - 16);
      out[i + 16] = d * static_cast<float>(((q >> 4) | (high_bit(in + 2, i + 16) << 4)) - 16);
    }
  }
}

// {half d, m; bits[4]; nibbles[16]}: d * q + m.
void dequantize_q5_1(const std::byte* in, size_t n, float* out) noexcept {
  for (; n > 0; --n, in += 24, out += kSmall) {
    const float d = load_half(in);
    const float m = load_half(in + 2);
    for (size_t i = 0; i < 16; ++i) {
      const int q = byte_at(in, 8 + i);
      out[i] = d * static_cast<float>((q & 15) | (high_bit(in + 4, i) << 4)) + m;
      out[i + 16] = d * static_cast<float>((q >> 4) | (high_bit(in + 4, i + 16) << 4)) + m;
    }
  }
}

// The 16 levels of the IQ4 types.
constexpr std::array<float, 16> kIq4Levels = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};

// {half d; nibbles[16]}: d * level[q].
void dequantize_iq4_nl(const std::byte* in, size_t n, float* out) noexcept {
  for (; n > 0; --n, in += 18, out += kSmall) {
    const float d = load_half(in);
    for (size_t i = 0; i < 16; ++i) {
      const uint8_t q = byte_at(in, 2 + i);
      out[i] = d * kIq4Levels[q & 15];
      out[i + 16] = d * kIq4Levels[q >> 4];
    }
  }
}

// {scales[16]; crumbs[64]; half d, dmin}: 16 groups of 16, (d * s) * q - dmin * m.
void dequantize_q2_k(const std::byte* in, size_t n, float* out) noexcept {
  for (; n > 0; --n, in += 84, out += kSuper) {
    const float d = load_half(in + 80);
    const float dmin = load_half(in + 82);
    for (size_t group = 0; group < 16; ++group) {
      const uint8_t scale = byte_at(in, group);
      const float dl = d * static_cast<float>(scale & 15);
      const float ml = dmin * static_cast<float>(scale >> 4);
      // 128 elements share 32 bytes, two bits of each at a time.
      const std::byte* q = in + 16 + 32 * (group / 8) + 16 * (group % 2);
      const size_t shift = 2 * (group % 8 / 2);
      for (size_t i = 0; i < 16; ++i)
        out[16 * group + i] = dl * static_cast<float>((byte_at(q, i) >> shift) & 3) - ml;
    }
  }
}

// The 6-bit scale of a Q3_K group: 4 low bits from the first 8 of 12 bytes, 2 high bits from the last 4.
int q3_k_scale(const std::byte* scales, size_t group) {
  const int low = (byte_at(scales, group % 8) >> (group < 8 ? 0 : 4)) & 15;
  const int high = (byte_at(scales, 8 + group % 4) >> (2 * (group / 4))) & 3;
  return (low | (high << 4)) - 32;
}

// {mask[32]; crumbs[64]; scales[12]; half d}: (d * s) * q, where a clear mask bit subtracts 4.
void dequantize_q3_k(const std::byte* in, size_t n, float* out) noexcept {
  for (; n > 0; --n, in += 110, out += kSuper) {
    const float d = load_half(in + 108);
    for (size_t group = 0; group < 16; ++group) {
      const float dl = d * static_cast<float>(q3_k_scale(in + 96, group));
      const std::byte* q = in + 32 + 32 * (group / 8) + 16 * (group % 2);
      const std::byte* mask = in + 16 * (group % 2);
      const size_t shift = 2 * (group % 8 / 2);
      for (size_t i = 0; i < 16; ++i) {
        const int low = (byte_at(q, i) >> shift) & 3;
        const int is_set = (byte_at(mask, i) >> (group / 2)) & 1;
        out[16 * group + i] = dl * static_cast<float>(low - (is_set ? 0 : 4));
      }
    }
  }
}

struct ScaleMin {
  float d;
  float m;
};

// The 6-bit scale and minimum of one of the 8 groups of Q4_K and Q5_K, from 12 bytes.
ScaleMin k_scale_min(const std::byte* scales, size_t group, float d, float dmin) {
  int scale = 0;
  int min = 0;
  if (group < 4) {
    scale = byte_at(scales, group) & 63;
    min = byte_at(scales, group + 4) & 63;
  } else {
    scale = (byte_at(scales, group + 4) & 15) | ((byte_at(scales, group - 4) >> 2) & 48);
    min = (byte_at(scales, group + 4) >> 4) | ((byte_at(scales, group) >> 2) & 48);
  }
  return {d * static_cast<float>(scale), dmin * static_cast<float>(min)};
}

// {half d, dmin; scales[12]; nibbles[128]}: 8 groups of 32, (d * s) * q - dmin * m.
void dequantize_q4_k(const std::byte* in, size_t n, float* out) noexcept {
  for (; n > 0; --n, in += 144, out += kSuper) {
    const float d = load_half(in);
    const float dmin = load_half(in + 2);
    for (size_t group = 0; group < 8; ++group) {
      const ScaleMin s = k_scale_min(in + 4, group, d, dmin);
      const std::byte* q = in + 16 + 32 * (group / 2);
      const size_t shift = 4 * (group % 2);
      for (size_t i = 0; i < 32; ++i)
        out[32 * group + i] = s.d * static_cast<float>((byte_at(q, i) >> shift) & 15) - s.m;
    }
  }
}

// {half d, dmin; scales[12]; bits[32]; nibbles[128]}.
void dequantize_q5_k(const std::byte* in, size_t n, float* out) noexcept {
  for (; n > 0; --n, in += 176, out += kSuper) {
    const float d = load_half(in);
    const float dmin = load_half(in + 2);
    for (size_t group = 0; group < 8; ++group) {
      const ScaleMin s = k_scale_min(in + 4, group, d, dmin);
      const std::byte* high = in + 16;
      const std::byte* q = in + 48 + 32 * (group / 2);
      const size_t shift = 4 * (group % 2);
      for (size_t i = 0; i < 32; ++i) {
        const int value = ((byte_at(q, i) >> shift) & 15) | (((byte_at(high, i) >> group) & 1) << 4);
        out[32 * group + i] = s.d * static_cast<float>(value) - s.m;
      }
    }
  }
}

// {nibbles[128]; crumbs[64]; int8 scales[16]; half d}: (d * s) * (q - 32).
void dequantize_q6_k(const std::byte* in, size_t n, float* out) noexcept {
  for (; n > 0; --n, in += 210, out += kSuper) {
    const float d = load_half(in + 208);
    for (size_t part = 0; part < 8; ++part) {
      const std::byte* low = in + 64 * (part / 4) + 32 * (part % 2);
      const std::byte* high = in + 128 + 32 * (part / 4);
      const size_t low_shift = 4 * (part % 4 / 2);
      const size_t high_shift = 2 * (part % 4);
      const float scales[] = {d * static_cast<float>(signed_at(in, 192 + 2 * part)),
                              d * static_cast<float>(signed_at(in, 193 + 2 * part))};
      for (size_t i = 0; i < 32; ++i) {
        const int value = ((byte_at(low, i) >> low_shift) & 15) | (((byte_at(high, i) >> high_shift) & 3) << 4);
        out[32 * part + i] = scales[i / 16] * static_cast<float>(value - 32);
      }
    }
  }
}

// {half d; u16 high; low[4]; nibbles[128]}: 8 groups of 32, (d * (s - 32)) * level[q].
void dequantize_iq4_xs(const std::byte* in, size_t n, float* out) noexcept {
  for (; n > 0; --n, in += 136, out += kSuper) {
    const float d = load_half(in);
    for (size_t group = 0; group < 8; ++group) {
      const int low = (byte_at(in, 4 + group / 2) >> (4 * (group % 2))) & 15;
      const int high = (load_u16(in + 2) >> (2 * group)) & 3;
      const float dl = d * static_cast<float>((low | (high << 4)) - 32);
      for (size_t i = 0; i < 16; ++i) {
        const uint8_t q = byte_at(in, 8 + 16 * group + i);
        out[32 * group + i] = dl * kIq4Levels[q & 15];
        out[32 * group + 16 + i] = dl * kIq4Levels[q >> 4];
      }
    }
  }
}

// Ids, block sizes and bytes: GGMLQuantizationType and GGML_QUANT_SIZES of the `gguf` package.
constexpr std::array kTypes = {
    GgmlType{0, "F32", 1, 4, copy_f32},
    GgmlType{1, "F16", 1, 2, widen_f16},
    GgmlType{2, "Q4_0", kSmall, 18, dequantize_q4_0},
    GgmlType{3, "Q4_1", kSmall, 20, dequantize_q4_1},
    GgmlType{6, "Q5_0", kSmall, 22, dequantize_q5_0},
    GgmlType{7, "Q5_1", kSmall, 24, dequantize_q5_1},
    GgmlType{8, "Q8_0", kSmall, 34, dequantize_q8_0},
    GgmlType{9, "Q8_1", kSmall, 40, nullptr},
    GgmlType{10, "Q2_K", kSuper, 84, dequantize_q2_k},
    GgmlType{11, "Q3_K", kSuper, 110, dequantize_q3_k},
    GgmlType{12, "Q4_K", kSuper, 144, dequantize_q4_k},
    GgmlType{13, "Q5_K", kSuper, 176, dequantize_q5_k},
    GgmlType{14, "Q6_K", kSuper, 210, dequantize_q6_k},
    GgmlType{15, "Q8_K", kSuper, 292, nullptr},
    GgmlType{16, "IQ2_XXS", kSuper, 66, nullptr},
    GgmlType{17, "IQ2_XS", kSuper, 74, nullptr},
    GgmlType{18, "IQ3_XXS", kSuper, 98, nullptr},
    GgmlType{19, "IQ1_S", kSuper, 50, nullptr},
    GgmlType{20, "IQ4_NL", kSmall, 18, dequantize_iq4_nl},
    GgmlType{21, "IQ3_S", kSuper, 110, nullptr},
    GgmlType{22, "IQ2_S", kSuper, 82, nullptr},
    GgmlType{23, "IQ4_XS", kSuper, 136, dequantize_iq4_xs},
    GgmlType{24, "I8", 1, 1, nullptr},
    GgmlType{25, "I16", 1, 2, nullptr},
    GgmlType{26, "I32", 1, 4, nullptr},
    GgmlType{27, "I64", 1, 8, nullptr},
    GgmlType{28, "F64", 1, 8, nullptr},
    GgmlType{29, "IQ1_M", kSuper, 56, nullptr},
    GgmlType{30, "BF16", 1, 2, widen_bf16},
    GgmlType{34, "TQ1_0", kSuper, 54, nullptr},
    GgmlType{35, "TQ2_0", kSuper, 66, nullptr},
    GgmlType{39, "MXFP4", kSmall, 17, nullptr},
};

}  // namespace

const GgmlType* find_ggml_type(uint32_t id) noexcept {
  const auto found =
      std::find_if(kTypes.begin(), kTypes.end(), [id](const GgmlType& type) { return type.id == id; });
  return found == kTypes.end() ? nullptr : &*found;
}

std::span<const GgmlType> ggml_types() noexcept {
  return kTypes;
}

}  // namespace kvfork::checkpoint
