// Attention of query rows over blocks of keys and values (V is a set's lanes, portable/vec.h).
//
// A score is one lane that takes its products in ascending component; an output component is one lane that takes
// p[t] * V[t] in ascending t, over exactly the keys that the row sees. Rows meet only in that they share loads.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/generic/exp.h"
#include "kernels/generic/norm.h"
#include "kernels/generic/unrolled.h"
#include "kernels/kernels.h"
#include "kernels/scalar.h"

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

/// Vectors b[i][c] of T, i from begin to end, each to be scaled by the number factor[r][i] of every row r and added
/// to out[r][c], or to zero. Meanwhile as many bytes as are read of b are prefetched from `ahead`
/// on.
template <class T>
struct ScaledSum {
  const float* const* factor;
  size_t begin;
  size_t end;
  bool from_zero;
  const T* b;
  size_t step;    // elements from b[i] to b[i + 1]
  size_t column;  // elements from b[i][c] to b[i][c + 1]
  float* const* out;
  const void* ahead;
};

template <class V, int kRows, int kColumns, class T>
void add_scaled(const ScaledSum<T>& sum) {
  constexpr size_t kStepBytes = kColumns * V::kLanes * sizeof(T);
  typename V::Reg acc[kRows][kColumns];
  const float* factor[kRows];
  unrolled<kRows>([&](auto r) KVFORK_INLINE {
    factor[r] = sum.factor[r];
    unrolled<kColumns>(
        [&](auto c) KVFORK_INLINE { acc[r][c] = sum.from_zero ? V::zero() : V::load(sum.out[r] + c * V::kLanes); });
  });
  const char* ahead = static_cast<const char*>(sum.ahead) + sum.begin * kStepBytes;
  const T* b = sum.b + sum.begin * sum.step;
  for (size_t i = sum.begin; i < sum.end; ++i, b += sum.step, ahead += kStepBytes) {
    for (size_t byte = 0; byte < kStepBytes; byte += 64) __builtin_prefetch(ahead + byte, 0, 2);
    typename V::Reg column[kColumns];
    unrolled<kColumns>([&](auto c)
                           KVFORK_INLINE { column[c] = load_element<V>(b + static_cast<size_t>(c) * sum.column); });
    unrolled<kRows>([&](auto r) KVFORK_INLINE {
      const auto f = V::broadcast(factor[r][i]);
      unrolled<kColumns>([&](auto c) KVFORK_INLINE { acc[r][c] = V::fma(f, column[c], acc[r][c]); });
    });
  }
  unrolled<kRows>([&](auto r) KVFORK_INLINE {
    unrolled<kColumns>([&](auto c) KVFORK_INLINE { V::store(sum.out[r] + c * V::kLanes, acc[r][c]); });
  });
}

template <class V, int kRows, int kColumns, class T>
void add_scaled_columns(size_t n_columns, const ScaledSum<T>& sum) {
  if constexpr (kColumns > 1) {
    if (n_columns < kColumns) return add_scaled_columns<V, kRows, kColumns - 1>(n_columns, sum);
  }
  add_scaled<V, kRows, kColumns>(sum);
}

/// One block's keys and values as a tile of rows reads them. The first tile prefetches: values while it reads keys,
/// and the next block's keys while it reads values.
template <class T>
struct Block {
  const T* k;
  const T* v;
  size_t head_dim;
  bool prefetches_values;
  const T* next_k;
};

/// score[r][t] for whole groups of keys from `key` on.
template <class V, int kRows, class T>
void score_rows(const float* const* q, size_t key, size_t end, const Block<T>& block, float* const* score) {
  constexpr size_t kColumns = V::kAttentionColumns;
  constexpr bool kWholeGroups = V::kLanes == kGroupTokens;
  static_assert(kWholeGroups || kGroupTokens % (kColumns * V::kLanes) == 0);
  const size_t group_size = block.head_dim * kGroupTokens;
  for (; key < end; key += kColumns * V::kLanes) {
    float* out[kRows];
    for (int r = 0; r < kRows; ++r) out[r] = score[r] + key;
    const T* k = block.k + key / kGroupTokens * group_size + key % kGroupTokens;
    const ScaledSum<T> sum{.factor = q,
                           .begin = 0,
                           .end = block.head_dim,
                           .from_zero = true,
                           .b = k,
                           .step = kGroupTokens,
                           .column = kWholeGroups ? group_size : V::kLanes,
                           .out = out,
                           .ahead = block.prefetches_values ? block.v + key * value_stride(block.head_dim) : k};
    add_scaled_columns<V, kRows, kColumns>((end - key) / V::kLanes, sum);
  }
}

/// What becomes of a product of a query and a key.
struct Score {
  float scale;
  float cap;
};

template <class V>
typename V::Reg scaled(typename V::Reg product, const Score& score) {
  const auto x = V::mul(product, V::broadcast(score.scale));
  if (score.cap == 0) return x;
  const auto cap = V::broadcast(score.cap);
  return V::mul(tanh<V>(V::div(x, cap)), cap);
}

/// Whole groups of keys that hold those of a range.
inline size_t group_begin(const KeyRange& seen) {
  return seen.first / kGroupTokens * kGroupTokens;
}
inline size_t group_end(const KeyRange& seen) {
  return round_up(seen.last, kGroupTokens);
}

/// Turns products with the keys of a row's groups into p in place; it is zero where the row does not see the key.
template <class V>
void soften(float* score, const KeyRange& seen, const Score& how, float* max_out, float* sum_out) {
  const auto masked = V::broadcast(-__builtin_inff());
  const size_t begin = group_begin(seen), end = group_end(seen);
  auto largest = masked;
  for (size_t t = begin; t < end; t += V::kLanes) {
    auto x = scaled<V>(V::load(score + t), how);
    const size_t hidden = seen.first <= t ? 0 : seen.first - t, n = seen.last <= t ? 0 : seen.last - t;
    if (n < V::kLanes) x = V::keep_first(x, n, masked);
    if (hidden > 0) x = V::keep_first(masked, hidden < V::kLanes ? hidden : V::kLanes, x);
    V::store(score + t, x);
    largest = V::max(largest, x);
  }
  *max_out = V::max_lane(largest);
  const auto max = V::broadcast(*max_out);
  auto sum = V::zero();
  for (size_t t = begin; t < end; t += V::kLanes) {
    const auto p = exp_up_to_one<V>(V::sub(V::load(score + t), max));
    V::store(score + t, p);
    sum = V::add(sum, p);
  }
  *sum_out = sum_lanes<V>(sum);
}

/// out[r] = sum over the keys that row r sees of p[r][t] * V[t]: those that all rows see in a tile, what comes
/// before and after row by row.
template <class V, int kRows, class T>
void weigh_values(const float* const* p, const KeyRange* seen, const Block<T>& block, float* out) {
  constexpr size_t kColumns = V::kAttentionColumns;
  const size_t stride = value_stride(block.head_dim);
  size_t earliest = seen[0].first, common = seen[0].first, common_end = seen[0].last;
  for (int r = 1; r < kRows; ++r) {
    earliest = seen[r].first < earliest ? seen[r].first : earliest;
    common = seen[r].first > common ? seen[r].first : common;
    common_end = seen[r].last < common_end ? seen[r].last : common_end;
  }
  if (common_end < common) common_end = common;
  for (size_t d = 0; d < stride; d += kColumns * V::kLanes) {
    const size_t n_columns = (stride - d) / V::kLanes;
    float* rows[kRows];
    for (size_t r = 0; r < kRows; ++r) rows[r] = out + r * stride + d;
    const T* v = block.v + d;
    ScaledSum<T> sum{.factor = p,
                     .begin = common,
                     .end = common_end,
                     .from_zero = earliest == common,
                     .b = v,
                     .step = stride,
                     .column = V::kLanes,
                     .out = rows,
                     .ahead = block.next_k ? block.next_k + d * kBlockTokens : v};
    const auto add_row = [&](int r, size_t begin, size_t end, bool from_zero) {
      ScaledSum<T> part = sum;
      part.factor = p + r;
      part.begin = begin;
      part.end = end;
      part.from_zero = from_zero;
      part.out = rows + r;
      add_scaled_columns<V, 1, kColumns>(n_columns, part);
    };
    for (int r = 0; r < kRows && !sum.from_zero; ++r)
      add_row(r, seen[r].first, seen[r].last < common ? seen[r].last : common, true);
    add_scaled_columns<V, kRows, kColumns>(n_columns, sum);
    for (int r = 0; r < kRows; ++r) {
      if (seen[r].last > common_end) add_row(r, common_end, seen[r].last, false);
    }
  }
}

/// Rows that all see a part of one block: `seen` counts its keys alone.
struct BlockRows {
  const AttentionArgs& args;
  size_t block;
  size_t row;
  size_t n_rows;
  const KeyRange* seen;
  bool prefetches;
  AttentionResult result;  // of `row` and those after it

  const void* next_k() const { return block + 1 < args.n_blocks ? args.blocks[block + 1].k : args.next_k; }
};

template <class V, int kRows, class T>
void attend_rows(const BlockRows& rows, size_t at) {
  float score[kRows][kBlockTokens];
  float* scores[kRows];
  const KeyRange* seen = rows.seen + at;
  const AttentionArgs& args = rows.args;
  size_t begin = kBlockTokens, end = 0;
  for (size_t r = 0; r < kRows; ++r) {
    begin = group_begin(seen[r]) < begin ? group_begin(seen[r]) : begin;
    end = group_end(seen[r]) > end ? group_end(seen[r]) : end;
    scores[r] = score[r];
  }
  const bool is_first = rows.prefetches && at == 0;
  const Block<T> block{.k = static_cast<const T*>(args.blocks[rows.block].k),
                       .v = static_cast<const T*>(args.blocks[rows.block].v),
                       .head_dim = args.head_dim,
                       .prefetches_values = is_first,
                       .next_k = is_first ? static_cast<const T*>(rows.next_k()) : nullptr};
  score_rows<V, kRows>(args.q + rows.row + at, begin, end, block, scores);
  const Score how{args.scale, args.cap};
  const AttentionResult& result = rows.result;
  for (size_t r = 0; r < kRows; ++r) soften<V>(score[r], seen[r], how, result.max + at + r, result.sum + at + r);
  weigh_values<V, kRows>(scores, seen, block, result.out + at * value_stride(args.head_dim));
}

template <class V, int kRows, class T>
void attend_up_to(const BlockRows& rows, size_t at, size_t n_rows) {
  if constexpr (kRows > 1) {
    if (n_rows < kRows) return attend_up_to<V, kRows - 1, T>(rows, at, n_rows);
  }
  attend_rows<V, kRows, T>(rows, at);
}

template <class V>
void attend_block(const BlockRows& rows) {
  constexpr size_t kMostRows = V::kAttentionRows;
  const size_t n_tiles = (rows.n_rows + kMostRows - 1) / kMostRows;
  for (size_t tile = 0, at = 0; tile < n_tiles; ++tile) {
    // Tiles of nearly equal size: one row alone would leave most of the multipliers idle.
    const size_t n_rows = (rows.n_rows - at) / (n_tiles - tile);
    if (rows.args.kv_type == Element::BF16) {
      attend_up_to<V, kMostRows, uint16_t>(rows, at, n_rows);
    } else {
      attend_up_to<V, kMostRows, float>(rows, at, n_rows);
    }
    at += n_rows;
  }
}

/// What the two parts of 16 rows or less are multiplied by when they are merged, a row a lane.
template <class V>
struct MergeFactors {
  float larger[V::kLanes] = {}, old[V::kLanes] = {}, later[V::kLanes] = {};

  MergeFactors(const float* max, const float* max_b, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      larger[i] = max[i] > max_b[i] ? max[i] : max_b[i];
      old[i] = max[i] - larger[i];
      later[i] = max_b[i] - larger[i];
    }
    V::store(old, exp_up_to_one<V>(V::load(old)));
    V::store(later, exp_up_to_one<V>(V::load(later)));
  }
};

template <class V>
void attention_merge(const AttentionResult& into, const AttentionResult& later, size_t n_rows,
                     size_t head_dim) noexcept {
  const size_t stride = value_stride(head_dim);
  for (size_t first = 0; first < n_rows; first += V::kLanes) {
    const size_t n = n_rows - first < V::kLanes ? n_rows - first : V::kLanes;
    const MergeFactors<V> factors(into.max + first, later.max + first, n);
    for (size_t i = 0; i < n; ++i) {
      const size_t row = first + i;
      const auto a = V::broadcast(factors.old[i]), b = V::broadcast(factors.later[i]);
      const auto merge = [=](typename V::Reg x, typename V::Reg y) { return V::fma(x, a, V::mul(y, b)); };
      into.max[row] = factors.larger[i];
      V::store_n(into.sum + row, 1, merge(V::load_n(into.sum + row, 1), V::load_n(later.sum + row, 1)));
      for (size_t d = row * stride; d < (row + 1) * stride; d += V::kLanes)
        V::store(into.out + d, merge(V::load(into.out + d), V::load(later.out + d)));
    }
  }
}

inline AttentionResult from_row(const AttentionResult& result, size_t row, size_t stride) {
  return {result.max + row, result.sum + row, result.out + row * stride};
}

/// What of a row's keys lies in a block: nothing if it does not end after its beginning.
inline KeyRange within_block(const KeyRange& seen, size_t block) {
  const auto begin = static_cast<uint32_t>(block * kBlockTokens);
  const uint32_t first = seen.first > begin ? seen.first - begin : 0;
  const uint32_t last = seen.last > begin ? seen.last - begin : 0;
  return {first, last < kBlockTokens ? last : static_cast<uint32_t>(kBlockTokens)};
}

inline bool is_empty(const KeyRange& seen) {
  return seen.first >= seen.last;
}

/// Whether a row that sees keys of a block has its first ones there.
inline bool begins_in(const AttentionArgs& args, size_t row, size_t block) {
  return !args.continues && args.seen[row].first / kBlockTokens == block;
}

template <class V>
void attention(const AttentionArgs& args) noexcept {
  constexpr size_t kMostRows = 96;  // at a time
  const size_t stride = value_stride(args.head_dim);
  for (size_t block = 0; block < args.n_blocks; ++block) {
    bool is_first = true;
    for (size_t row = 0, n; row<args.n_rows; row += n> 0 ? n : 1) {
      const bool begins = begins_in(args, row, block);
      KeyRange seen[kMostRows];
      for (n = 0; n < kMostRows && row + n < args.n_rows && begins_in(args, row + n, block) == begins; ++n) {
        seen[n] = within_block(args.seen[row + n], block);
        if (is_empty(seen[n])) break;
      }
      if (n == 0) continue;
      const AttentionResult result = from_row(args.result, row, stride);
      const AttentionResult part = begins ? result : from_row(args.spare, row, stride);
      attend_block<V>({args, block, row, n, seen, is_first, part});
      if (!begins) attention_merge<V>(result, part, n, args.head_dim);
      is_first = false;
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
