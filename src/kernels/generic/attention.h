// Attention of query rows over one block of keys and values (V is a set's lanes, portable/vec.h).
//
// A score is one lane that takes its products in ascending component; an output component is one lane that takes
// p[t] * V[t] in ascending t, over exactly the row's valid keys. Rows meet only in that they share loads.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/generic/exp.h"
#include "kernels/generic/norm.h"
#include "kernels/kernels.h"

namespace kvfork::kernels {
namespace {

template <class V>
typename V::Reg load_element(const float* p) {
  return V::load(p);
}
template <class V>
typename V::Reg load_element(const uint16_t* p) {
  return V::load_bf16(p);
}

/// Where the vectors of one step lie: `step` elements to the next step, `column` elements to the next vector.
struct Strides {
  size_t step;
  size_t column;
};

/// out[r][c] += factor[r][i] * b[i][c] for i in [begin, end), in ascending i; from zero where begin is 0.
template <class V, int kRows, int kColumns, class T>
void add_scaled(const float* const* factor, size_t begin, size_t end, const T* b, Strides b_strides,
                float* const* out, size_t out_column) {
  typename V::Reg acc[kRows][kColumns];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      acc[r][c] = begin == 0 ? V::zero() : V::load(out[r] + static_cast<size_t>(c) * out_column);
    }
  }
  const float* rows[kRows];
  for (int r = 0; r < kRows; ++r) rows[r] = factor[r];
  for (size_t i = begin; i < end; ++i) {
    typename V::Reg column[kColumns];
    for (int c = 0; c < kColumns; ++c) {
      column[c] = load_element<V>(b + i * b_strides.step + static_cast<size_t>(c) * b_strides.column);
    }
    for (int r = 0; r < kRows; ++r) {
      const auto f = V::broadcast(rows[r][i]);
      for (int c = 0; c < kColumns; ++c) acc[r][c] = V::fma(f, column[c], acc[r][c]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) V::store(out[r] + static_cast<size_t>(c) * out_column, acc[r][c]);
  }
}

template <class V, int kRows, int kColumns, class T>
void add_scaled_columns(size_t n_columns, const float* const* factor, size_t begin, size_t end, const T* b,
                        Strides b_strides, float* const* out, size_t out_column) {
  if constexpr (kColumns > 1) {
    if (n_columns < kColumns) {
      return add_scaled_columns<V, kRows, kColumns - 1>(n_columns, factor, begin, end, b, b_strides, out,
                                                        out_column);
    }
  }
  add_scaled<V, kRows, kColumns>(factor, begin, end, b, b_strides, out, out_column);
}

template <class V>
constexpr size_t kVectorsPerGroup = kGroupTokens / V::kLanes;

/// score[r][t] for the keys of the first n_groups groups.
template <class V, int kRows, class T>
void score_rows(const float* const* q, size_t head_dim, size_t n_groups, const T* k_block, float* const* score) {
  constexpr int kColumns = V::kAttentionColumns;
  float* out[kRows];
  const auto advance = [&](size_t key) {
    for (int r = 0; r < kRows; ++r) out[r] = score[r] + key;
  };
  if constexpr (kVectorsPerGroup<V> == 1) {
    const size_t group_size = head_dim * kGroupTokens;
    for (size_t group = 0; group < n_groups; group += kColumns) {
      advance(group * kGroupTokens);
      add_scaled_columns<V, kRows, kColumns>(n_groups - group, q, 0, head_dim, k_block + group * group_size,
                                             {kGroupTokens, group_size}, out, V::kLanes);
    }
  } else {
    for (size_t vector = 0; vector < n_groups * kVectorsPerGroup<V>; vector += kColumns) {
      static_assert(kVectorsPerGroup<V> % kColumns == 0);
      const size_t key = vector * V::kLanes;
      advance(key);
      add_scaled<V, kRows, kColumns>(q, 0, head_dim,
                                     k_block + key / kGroupTokens * head_dim * kGroupTokens + key % kGroupTokens,
                                     {kGroupTokens, V::kLanes}, out, V::kLanes);
    }
  }
}

/// Turns the scores of n_valid keys into p in place; the last group is filled up with zeros.
template <class V>
void soften(float* score, size_t n_valid, float scale, float* max_out, float* sum_out) {
  const auto factor = V::broadcast(scale);
  const auto masked = V::broadcast(-__builtin_inff());
  const size_t end = (n_valid + kGroupTokens - 1) / kGroupTokens * kGroupTokens;
  auto largest = masked;
  for (size_t t = 0; t < end; t += V::kLanes) {
    auto x = V::mul(V::load(score + t), factor);
    const size_t n = n_valid <= t ? 0 : n_valid - t;
    if (n < V::kLanes) x = V::keep_first(x, n, masked);
    V::store(score + t, x);
    largest = V::max(largest, x);
  }
  *max_out = V::max_lane(largest);
  const auto max = V::broadcast(*max_out);
  auto sum = V::zero();
  for (size_t t = 0; t < end; t += V::kLanes) {
    const auto p = exp<V>(V::sub(V::load(score + t), max));
    V::store(score + t, p);
    sum = V::add(sum, p);
  }
  *sum_out = sum_lanes<V>(sum);
}

/// out[r] = sum over the row's valid keys of p[r][t] * V[t]: the keys that all rows have in a tile, the others row
/// by row.
template <class V, int kRows, class T>
void weigh_values(const float* const* p, const uint32_t* n_valid, size_t head_dim, const T* v_block, float* out) {
  constexpr int kColumns = V::kAttentionColumns;
  const size_t stride = value_stride(head_dim);
  size_t common = n_valid[0];
  for (int r = 1; r < kRows; ++r) common = n_valid[r] < common ? n_valid[r] : common;
  for (size_t d = 0; d < stride; d += kColumns * V::kLanes) {
    const size_t n_columns = (stride - d) / V::kLanes;
    float* rows[kRows];
    for (int r = 0; r < kRows; ++r) rows[r] = out + static_cast<size_t>(r) * stride + d;
    add_scaled_columns<V, kRows, kColumns>(n_columns, p, 0, common, v_block + d, {stride, V::kLanes}, rows,
                                           V::kLanes);
    for (int r = 0; r < kRows; ++r) {
      if (n_valid[r] == common) continue;
      add_scaled_columns<V, 1, kColumns>(n_columns, p + r, common, n_valid[r], v_block + d, {stride, V::kLanes},
                                         rows + r, V::kLanes);
    }
  }
}

template <class V, int kRows, class T>
void attend_rows(const AttentionBlockArgs& args, size_t row) {
  float score[kRows][kBlockTokens];
  float* scores[kRows];
  size_t most = 0;
  for (int r = 0; r < kRows; ++r) {
    const size_t n = args.n_valid[row + static_cast<size_t>(r)];
    most = n > most ? n : most;
    scores[r] = score[r];
  }
  const size_t n_groups = (most + kGroupTokens - 1) / kGroupTokens;
  score_rows<V, kRows>(args.q + row, args.head_dim, n_groups, static_cast<const T*>(args.k_block), scores);
  for (size_t r = 0; r < kRows; ++r) {
    soften<V>(score[r], args.n_valid[row + r], args.scale, args.max + row + r, args.sum + row + r);
  }
  weigh_values<V, kRows>(scores, args.n_valid + row, args.head_dim, static_cast<const T*>(args.v_block),
                         args.out + row * value_stride(args.head_dim));
}

template <class V, int kRows, class T>
void attend_up_to(const AttentionBlockArgs& args, size_t row, size_t n_rows) {
  if constexpr (kRows > 1) {
    if (n_rows < kRows) return attend_up_to<V, kRows - 1, T>(args, row, n_rows);
  }
  attend_rows<V, kRows, T>(args, row);
}

template <class V>
void attention_block(const AttentionBlockArgs& args) noexcept {
  constexpr size_t kRows = V::kAttentionRows;
  for (size_t row = 0; row < args.n_rows; row += kRows) {
    if (args.kv_type == Element::BF16) {
      attend_up_to<V, kRows, uint16_t>(args, row, args.n_rows - row);
    } else {
      attend_up_to<V, kRows, float>(args, row, args.n_rows - row);
    }
  }
}

template <class V>
void attention_merge(float* max, float* sum, float* out, const float* max_b, const float* sum_b, const float* out_b,
                     size_t n_rows, size_t head_dim) noexcept {
  const size_t stride = value_stride(head_dim);
  for (size_t row = 0; row < n_rows; ++row) {
    const float larger = max[row] > max_b[row] ? max[row] : max_b[row];
    const auto a = exp<V>(V::broadcast(max[row] - larger));
    const auto b = exp<V>(V::broadcast(max_b[row] - larger));
    const auto merge = [=](typename V::Reg x, typename V::Reg y) { return V::fma(x, a, V::mul(y, b)); };
    V::store_n(sum + row, 1, merge(V::load_n(sum + row, 1), V::load_n(sum_b + row, 1)));
    max[row] = larger;
    for (size_t d = row * stride; d < (row + 1) * stride; d += V::kLanes) {
      V::store(out + d, merge(V::load(out + d), V::load(out_b + d)));
    }
  }
}

template <class V>
void attention_finish(const float* out, float sum, size_t head_dim, float* y) noexcept {
  const auto divisor = V::broadcast(sum);
  for (size_t d = 0; d < head_dim; d += V::kLanes) {
    const size_t n = head_dim - d < V::kLanes ? head_dim - d : V::kLanes;
    V::store_n(y + d, n, V::div(V::load_n(out + d, n), divisor));
  }
}

}  // namespace
}  // namespace kvfork::kernels
