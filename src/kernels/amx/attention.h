// Attention over blocks of bfloat16 keys and values, on tiles (T is AmxTiles or its twin).
//
// Queries and probabilities enter their products rounded to bfloat16, as activations do in this mode; scores, the
// softmax and all sums are float32. A probability below the smallest normal number counts as zero, as tiles take
// it. Which rows share a tile changes no bit: a key that a row does not see has a probability of zero, and what it
// adds to the row is an exact zero, since values that are not finite never meet such a row.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/amx/attention_tiles.h"
#include "kernels/avx512/vec.h"
#include "kernels/generic/attention.h"
#include "kernels/kernels.h"

namespace kvfork::kernels {
namespace {

/// First operands, kRows tiles of rows: the next block of each is a tile on.
struct RowOperand {
  const char* tiles;
  size_t row_step;  // bytes between tiles of rows
};

/// Second operands, tiles of columns side by side.
struct ColumnOperand {
  const char* tiles;
  size_t block_step;  // bytes between blocks
};

/// Products of kRows tiles of rows with kColumns tiles of columns: out[column tile][row][column].
template <class T, int kRows, int kColumns>
void multiply_operands(RowOperand a, ColumnOperand b, size_t blocks, float (*out)[RowTiles::kRows][kTileColumns]) {
  T::template zero<0>();
  if constexpr (kColumns > 1) T::template zero<1>();
  if constexpr (kRows > 1) T::template zero<2>();
  if constexpr (kRows > 1 && kColumns > 1) T::template zero<3>();
  for (size_t block = 0; block < blocks; ++block, a.tiles += kTileBytes, b.tiles += b.block_step) {
    T::template load<4>(a.tiles, 64);
    T::template load<6>(b.tiles, 64);
    T::template multiply_add<0, 4, 6>();
    if constexpr (kColumns > 1) {
      T::template load<7>(b.tiles + kTileBytes, 64);
      T::template multiply_add<1, 4, 7>();
    }
    if constexpr (kRows > 1) {
      T::template load<5>(a.tiles + a.row_step, 64);
      T::template multiply_add<2, 5, 6>();
      if constexpr (kColumns > 1) T::template multiply_add<3, 5, 7>();
    }
  }
  T::template store<0>(out[0], 64);
  if constexpr (kColumns > 1) T::template store<1>(out[1], 64);
  if constexpr (kRows > 1) T::template store<2>(out[0][kTileColumns], 64);
  if constexpr (kRows > 1 && kColumns > 1) T::template store<3>(out[1][kTileColumns], 64);
}

/// The same with n tiles of columns.
template <class T>
void multiply_rows(bool one, RowOperand a, ColumnOperand b, size_t blocks, size_t n,
                   float (*out)[RowTiles::kRows][kTileColumns]) {
  for (; n >= 2; n -= 2, b.tiles += 2 * kTileBytes, out += 2)
    one ? multiply_operands<T, 1, 2>(a, b, blocks, out) : multiply_operands<T, 2, 2>(a, b, blocks, out);
  if (n == 1) one ? multiply_operands<T, 1, 1>(a, b, blocks, out) : multiply_operands<T, 2, 1>(a, b, blocks, out);
}

/// The largest lane of each of four vectors, in the first four lanes.
inline __m512 max4(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m512 ab = _mm512_max_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const __m512 cd = _mm512_max_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  const __m512 quads = _mm512_max_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
  const __m512 pairs = _mm512_max_ps(quads, _mm512_shuffle_f32x4(quads, quads, 0xb1));
  return _mm512_max_ps(pairs, _mm512_shuffle_f32x4(pairs, pairs, 0x4e));
}

/// A bit for each key of the range.
inline uint64_t mask_of(const KeyRange& seen) {
  const auto below = [](uint32_t n) { return n < 64 ? (uint64_t{1} << n) - 1 : ~uint64_t{0}; };
  return is_empty(seen) ? 0 : below(seen.last) & ~below(seen.first);
}

/// Four rows of scores become p, rounded. kMasked: p is zero where `seen` has no bit. kCapped: scores have a cap.
template <class T, bool kMasked, bool kCapped>
void soften_rows(const Score& how, const uint64_t* seen, size_t row, RowTiles& tile) {
  constexpr size_t kRows = 4;
  const auto sees = [&](size_t r, size_t i) { return static_cast<__mmask16>(seen[row + r] >> (16 * i)); };
  __m512 x[kRows][kKeyTiles], largest[kRows], sums[kRows];
  unrolled<kRows>([&](auto r) KVFORK_INLINE {
    unrolled<kKeyTiles>([&](auto i) KVFORK_INLINE {
      x[r][i] = scaled<Avx512>(Avx512::load(tile.scores[i][row + r]), {how.scale, kCapped ? how.cap : 0});
      if constexpr (kMasked)
        x[r][i] = _mm512_mask_mov_ps(Avx512::broadcast(-__builtin_inff()), sees(r, i), x[r][i]);
    });
    largest[r] = Avx512::max(Avx512::max(x[r][0], x[r][1]), Avx512::max(x[r][2], x[r][3]));
  });
  const __m512 maxima = max4(largest[0], largest[1], largest[2], largest[3]);
  _mm_store_ps(tile.max + row, _mm512_castps512_ps128(maxima));
  unrolled<kRows>([&](auto r) KVFORK_INLINE {
    const __m512 max = _mm512_permutexvar_ps(_mm512_set1_epi32(r), maxima);
    unrolled<kKeyTiles>([&](auto i) KVFORK_INLINE {
      x[r][i] = exp_up_to_one<Avx512>(Avx512::sub(x[r][i], max));
      if constexpr (kMasked) x[r][i] = _mm512_maskz_mov_ps(sees(r, i), x[r][i]);
    });
    sums[r] = Avx512::add(Avx512::add(Avx512::add(x[r][0], x[r][1]), x[r][2]), x[r][3]);
    const size_t at = row % kTileColumns + static_cast<size_t>(r);
    for (size_t i = 0; i < kKeyTiles; i += 2)
      _mm512_store_si512(tile.weights[row / kTileColumns][i / 2] + at * 64, T::round_pair(x[r][i], x[r][i + 1]));
  });
  Avx512::sum4(sums[0], sums[1], sums[2], sums[3], tile.sum + row);
}

/// A block's way through the products of up to RowTiles::kRows rows from `first` on, which begins a tile.
template <class T>
struct RowWalk {
  const AttentionArgs& args;
  size_t block;
  bool is_whole;  // every row sees all of it
  AttentionWorkspace& work;
  size_t first;
  size_t n_rows = least(args.n_rows - first, RowTiles::kRows);

  static size_t least(size_t a, size_t b) { return a < b ? a : b; }
  bool is_one() const { return n_rows <= kTileColumns; }
  size_t n_values() const { return value_stride(args.head_dim) / kTileColumns; }
  KeyRange seen(size_t row) const { return within_block(args.seen[first + row], block); }

  void score() const {
    multiply_rows<T>(is_one(), {work.queries[first / kTileColumns][0], sizeof work.queries[0]},
                     {work.block.keys[0][0], sizeof work.block.keys[0]}, n_blocks(args.head_dim), kKeyTiles,
                     work.rows.scores);
  }

  void soften() const {
    const Score how{args.scale, args.cap};
    uint64_t masks[RowTiles::kRows] = {};
    for (size_t r = 0; r < n_rows && (!is_whole || how.cap != 0); ++r) masks[r] = mask_of(seen(r));
    for (size_t r = 0; r < n_rows; r += 4) {
      if (r % 8 == 4) T::keep_awake();
      if (how.cap != 0)
        soften_rows<T, true, true>(how, masks, r, work.rows);
      else
        is_whole ? soften_rows<T, false, false>(how, masks, r, work.rows)
                 : soften_rows<T, true, false>(how, masks, r, work.rows);
    }
  }

  void weigh() const {
    multiply_rows<T>(is_one(), {work.rows.weights[0][0], sizeof work.rows.weights[0]},
                     {work.block.values[0][0], sizeof work.block.values[0]}, kValueBlocks, n_values(),
                     work.rows.out);
  }

  /// Which of a tile's rows, among [begin, end) of the call, begin their results with this block, and which are
  /// merged into what they have.
  struct Takers {
    __mmask16 begins = 0, merges = 0;
  };
  Takers find_takers(size_t tile, size_t begin, size_t end) const {
    Takers takers;
    for (size_t r = tile * kTileColumns; r < least(n_rows, (tile + 1) * kTileColumns); ++r) {
      if (first + r < begin || first + r >= end || is_empty(seen(r))) continue;
      (begins_in(args, first + r, block) ? takers.begins : takers.merges) |=
          static_cast<__mmask16>(1u << r % kTileColumns);
    }
    return takers;
  }

  void take(size_t tile, const Takers& takers) const {
    const size_t from = tile * kTileColumns, stride = value_stride(args.head_dim);
    const AttentionResult result = from_row(args.result, first + from, stride);
    alignas(64) float old[kTileColumns], later[kTileColumns];
    const __m512 max = _mm512_load_ps(work.rows.max + from), sum = _mm512_load_ps(work.rows.sum + from);
    _mm512_mask_storeu_ps(result.max, takers.begins, max);
    _mm512_mask_storeu_ps(result.sum, takers.begins, sum);
    if (takers.merges) {
      const __m512 max_before = _mm512_maskz_loadu_ps(takers.merges, result.max);
      const __m512 sum_before = _mm512_maskz_loadu_ps(takers.merges, result.sum);
      const __m512 larger = Avx512::max(max_before, max);
      const __m512 a = exp_up_to_one<Avx512>(Avx512::sub(max_before, larger)),
                   b = exp_up_to_one<Avx512>(Avx512::sub(max, larger));
      _mm512_store_ps(old, a);
      _mm512_store_ps(later, b);
      _mm512_mask_storeu_ps(result.max, takers.merges, larger);
      _mm512_mask_storeu_ps(result.sum, takers.merges, Avx512::fma(sum_before, a, Avx512::mul(sum, b)));
    }
    for (size_t r = 0; r < kTileColumns; ++r) {
      float* out = result.out + r * stride;
      const auto part = [&](size_t at) { return Avx512::load(work.rows.out[at][from + r]); };
      if (takers.merges >> r & 1) {
        const __m512 a = Avx512::broadcast(old[r]), b = Avx512::broadcast(later[r]);
        for (size_t at = 0; at < n_values(); ++at, out += kTileColumns)
          Avx512::store(out, Avx512::fma(Avx512::load(out), a, Avx512::mul(part(at), b)));
      } else if (takers.begins >> r & 1) {
        for (size_t at = 0; at < n_values(); ++at, out += kTileColumns) Avx512::store(out, part(at));
      }
    }
  }

  /// For the rows of [begin, end) among them. A tile load waits until stores before it have left the store buffer,
  /// if they go to its place in their page, so products and the work on vectors do not overlap: they take turns
  /// with as many rows as fit beside the block into the first-level cache.
  void run(size_t begin, size_t end) const {
    score();
    soften();
    weigh();
    for (size_t tile = 0; tile * kTileColumns < n_rows; ++tile) take(tile, find_takers(tile, begin, end));
  }
};

/// Rows [begin, end) of a call with a block whose keys and values are in the workspace.
template <class T>
void attend_rows_on_tiles(const AttentionArgs& args, size_t block, bool is_whole, size_t begin, size_t end,
                          AttentionWorkspace& work) {
  for (size_t first = begin / kTileColumns * kTileColumns; first < end; first += RowTiles::kRows)
    RowWalk<T>{args, block, is_whole, work, first}.run(begin, end);
}

/// What rows see of a block together.
struct SeenTogether {
  KeyRange keys = {kBlockTokens, 0};
  bool is_whole = true;       // each row sees all of it
  size_t begin = 0, end = 0;  // rows: the first that sees something, and after the last

  SeenTogether(const AttentionArgs& args, size_t block) {
    for (size_t row = 0; row < args.n_rows; ++row) {
      const KeyRange seen = within_block(args.seen[row], block);
      is_whole = is_whole && seen.first == 0 && seen.last == kBlockTokens;
      if (is_empty(seen)) continue;
      if (end == 0) begin = row;
      end = row + 1;
      keys.first = seen.first < keys.first ? seen.first : keys.first;
      keys.last = seen.last > keys.last ? seen.last : keys.last;
    }
  }
};

template <class T>
void attend_block_on_tiles(const AttentionArgs& args, size_t block, AttentionWorkspace& work) {
  const SeenTogether seen(args, block);
  if (is_empty(seen.keys)) return;
  const KvBlockData& data = args.blocks[block];
  const void* next_k = block + 1 < args.n_blocks ? args.blocks[block + 1].k : args.next_k;
  load_keys(data, args.head_dim, work.block);
  if (seen.is_whole || are_finite(data.v, seen.keys, args.head_dim)) {
    load_values(data.v, seen.keys, args.head_dim, next_k, work.block);
    return attend_rows_on_tiles<T>(args, block, seen.is_whole, seen.begin, seen.end, work);
  }
  // A row may meet no value that it does not see: zero times infinity is NaN.
  for (size_t row = seen.begin; row < seen.end; ++row) {
    const KeyRange keys = within_block(args.seen[row], block);
    if (is_empty(keys)) continue;
    load_values(data.v, keys, args.head_dim, next_k, work.block);
    attend_rows_on_tiles<T>(args, block, false, row, row + 1, work);
  }
}

/// The same call for rows [begin, end) alone.
inline AttentionArgs rows_of(const AttentionArgs& args, size_t begin, size_t end) {
  AttentionArgs part = args;
  part.q += begin;
  part.seen += begin;
  part.n_rows = end - begin;
  part.result = from_row(args.result, begin, value_stride(args.head_dim));
  return part;
}

template <class T>
void attention_on_tiles(const AttentionArgs& args) noexcept {
  constexpr size_t kMostRows = kWalkTiles * kTileColumns;
  if (args.kv_type != Element::BF16 || args.head_dim > kMaxTileHeadDim) return attention<Avx512>(args);
  auto& work = *static_cast<AttentionWorkspace*>(args.workspace);
  T::configure();
  for (size_t begin = 0, end; begin < args.n_rows; begin = end) {
    end = args.n_rows - begin < kMostRows ? args.n_rows : begin + kMostRows;
    const AttentionArgs part = rows_of(args, begin, end);
    round_queries(part.q, part.n_rows, part.head_dim, work.queries);
    for (size_t block = 0; block < part.n_blocks; ++block) attend_block_on_tiles<T>(part, block, work);
  }
  T::release();
}

}  // namespace
}  // namespace kvfork::kernels
