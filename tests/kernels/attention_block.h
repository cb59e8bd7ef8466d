// One block of keys and values with queries, as the tests of attention use it, and results of rows.
#pragma once

#include <limits>
#include <memory>

#include "tests/kernels/kernel_test.h"
#include "tests/reference/kernels.h"

namespace kvfork::kernels {
namespace {

constexpr Element kKvTypes[] = {Element::F32, Element::BF16};

/// One block of one KV head, its twin in double precision, and queries.
class Block {
 public:
  Block(const KernelTable& table, Element kv_type, size_t head_dim, size_t n_rows, size_t n_tokens = kBlockTokens)
      : table_(table),
        type_(kv_type),
        head_dim_(head_dim),
        stride_(value_stride(head_dim)),
        n_rows_(n_rows),
        k_(kBlockTokens * head_dim * element_bytes(kv_type)),
        v_(kBlockTokens * stride_ * element_bytes(kv_type)),
        q_(n_rows * head_dim),
        seen_(n_rows) {
    Random random(head_dim * 131 + n_rows);
    // NaN in every slot: what has not been stored must not matter.
    std::memset(k_.data(), 0xff, k_.size());
    std::memset(v_.data(), 0xff, v_.size());
    store(random, n_tokens);
    random.fill(q_);
    // Some rows see the whole block, which a set may treat in its own way.
    for (size_t r = 0; r < n_rows; ++r)
      set_n_valid(r, random.below(3) == 0 ? n_tokens : 1 + random.below(n_tokens));
  }

  AttentionArgs args(float* max, float* sum, float* out) {
    queries_.clear();
    for (size_t r = 0; r < n_rows_; ++r) queries_.push_back(q_.data() + r * head_dim_);
    return {.q = queries_.data(),
            .seen = seen_.data(),
            .n_rows = n_rows_,
            .head_dim = head_dim_,
            .scale = scale(),
            .kv_type = type_,
            .blocks = &data_,
            .n_blocks = 1,
            .result = {max, sum, out},
            .spare = {},
            .workspace = make_workspace(table_),
            .cap = cap_};
  }

  KvBlockData data() const { return data_; }
  bool is_bf16() const { return type_ == Element::BF16; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(head_dim_)) / 8; }
  size_t stride() const { return stride_; }
  uint32_t n_valid(size_t row) const { return seen_[row].last; }
  void set_n_valid(size_t row, size_t n) { set_seen(row, 0, n); }
  KeyRange seen(size_t row) const { return seen_[row]; }
  void set_seen(size_t row, size_t first, size_t last) {
    seen_[row] = {static_cast<uint32_t>(first), static_cast<uint32_t>(last)};
  }
  /// Ranges of any place and length, some rows' the whole block.
  void draw_ranges(uint64_t seed) {
    Random random(seed);
    for (size_t r = 0; r < n_rows_; ++r) {
      const size_t first = random.below(kBlockTokens);
      set_seen(r, first, first + 1 + random.below(kBlockTokens - first));
      if (random.below(4) == 0) set_seen(r, 0, kBlockTokens);
    }
  }
  void set_cap(float cap) { cap_ = cap; }
  reference::Row query(size_t row) const {
    reference::Row values(head_dim_);
    for (size_t d = 0; d < head_dim_; ++d) values[d] = q_[row * head_dim_ + d];
    return values;
  }
  reference::Attention exact(size_t row) const {
    const auto [first, last] = seen_[row];
    const std::vector<reference::Row> keys(keys_.begin() + first, keys_.begin() + last);
    const std::vector<reference::Row> values(values_.begin() + first, values_.begin() + last);
    return reference::attention(query(row), keys, values, scale(), cap_);
  }
  /// Largest sum over components of |q k|, which rounding errors of a score scale with.
  double score_magnitude(size_t row) const {
    double largest = 0;
    for (size_t t = seen_[row].first; t < seen_[row].last; ++t) {
      largest = std::max(largest, scale() * reference::dot(query(row), keys_[t], 0).magnitude);
    }
    return largest;
  }
  /// The cap lessens what a score was off before; a division, the tangent (2 ulp) and a product are at most so
  /// much.
  double cap_error() const { return 8 * kEpsilon * cap_; }
  double largest_value() const {
    double largest = 0;
    for (const auto& value : values_) {
      for (double v : value) largest = std::max(largest, std::fabs(v));
    }
    return largest;
  }
  void spoil_from(size_t token) { spoil(token, kBlockTokens); }
  /// The value of one key becomes infinite, its key stays.
  void spoil_value(size_t t) {
    for (size_t d = 0; d < head_dim_; ++d) {
      if (is_bf16()) {
        const uint16_t infinity = 0x7f80;
        std::memcpy(v_.data() + (t * stride_ + d) * 2, &infinity, 2);
      } else {
        const float infinity = std::numeric_limits<float>::infinity();
        std::memcpy(v_.data() + (t * stride_ + d) * 4, &infinity, 4);
      }
    }
  }
  void spoil(size_t begin, size_t end) {
    const size_t bytes = element_bytes(type_);
    for (size_t t = begin; t < end; ++t) {
      std::memset(v_.data() + t * stride_ * bytes, 0xff, stride_ * bytes);
      for (size_t d = 0; d < head_dim_; ++d) {
        std::memset(k_.data() + ((t / kGroupTokens * head_dim_ + d) * kGroupTokens + t % kGroupTokens) * bytes,
                    0xff, bytes);
      }
    }
  }

 private:
  void store(Random& random, size_t n_tokens) {
    EdgeArray<float> k(n_tokens * head_dim_), v(n_tokens * head_dim_);
    random.fill(k);
    random.fill(v);
    table_.store_kv({.k = k.data(),
                     .k_stride = head_dim_,
                     .v = v.data(),
                     .v_stride = head_dim_,
                     .n_tokens = n_tokens,
                     .head_dim = head_dim_,
                     .slot = 0,
                     .kv_type = type_,
                     .k_block = k_.data(),
                     .v_block = v_.data()});
    const auto stored = [&](float x) { return type_ == Element::BF16 ? bf16_to_f32(f32_to_bf16(x)) : x; };
    for (size_t t = 0; t < n_tokens; ++t) {
      keys_.emplace_back(head_dim_);
      values_.emplace_back(head_dim_);
      for (size_t d = 0; d < head_dim_; ++d) {
        keys_[t][d] = stored(k[t * head_dim_ + d]);
        values_[t][d] = stored(v[t * head_dim_ + d]);
      }
    }
  }

  const KernelTable& table_;
  Element type_;
  size_t head_dim_, stride_, n_rows_;
  EdgeArray<char> k_, v_;
  KvBlockData data_{k_.data(), v_.data()};
  EdgeArray<float> q_;
  std::vector<KeyRange> seen_;
  float cap_ = 0;
  std::vector<const float*> queries_;
  std::vector<reference::Row> keys_, values_;
};

struct Result {
  Result(size_t n_rows, size_t stride) : max(n_rows), sum(n_rows), out(n_rows * stride) {}
  AttentionResult from_row(size_t row, size_t stride) {
    return {max.data() + row, sum.data() + row, out.data() + row * stride};
  }
  AttentionResult all() { return from_row(0, 0); }
  testing::AssertionResult has_bits_of(const Result& other) const {
    for (const auto& [mine, its] : {std::pair(&max, &other.max), {&sum, &other.sum}, {&out, &other.out}}) {
      if (const auto same = same_bits(*mine, *its, mine->size()); !same) return same;
    }
    return testing::AssertionSuccess();
  }
  EdgeArray<float> max, sum, out;
};

}  // namespace
}  // namespace kvfork::kernels
