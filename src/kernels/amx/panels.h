// Weights of a run of blocks as a panel of tiles in the first-level cache: many groups of columns pass over it, and
// only their tiles come from the second-level cache. A tile load takes 8 cycles from the first, 21 from the second
// and 110 from the third, a tile product 16; two tiles of weights with two of columns take four of each.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/amx/pack.h"
#include "kernels/amx/weights.h"
#include "kernels/avx512/vec.h"
#include "kernels/kernels.h"

namespace kvfork::kernels {
namespace {

constexpr size_t kRunBlocks = 16;

/// Blocks [begin, end) of all of k.
struct Run {
  size_t begin, end;
};

/// Two tiles of each block of a run.
struct alignas(64) Panel {
  char tiles[kRunBlocks][2][kTileBytes];
};

/// bf16 weights of 32 features: a tile of the first 16, one of the others. The first pass over a run reads them
/// where they lie and leaves them in the panel.
struct StoredPanel {
  static constexpr size_t kFeatures = 2 * kWeightRows;
  static constexpr bool kTwoTerms = false;

  StoredTiles<2> weights;
  Panel& panel;

  StoredPanel(const MatmulArgs& args, size_t feature, const Run&, Panel& to) : weights(args, feature), panel(to) {}

  template <class T, int kTile>
  void load_first(const Run& run, size_t block) const {
    weights.template load<T, kTile>(block);
    T::template store<kWeightTile + kTile>(panel.tiles[block - run.begin][kTile], 64);
  }
};

/// float16 weights of 16 features: a tile of their first terms, one of the rests.
struct SplitPanel {
  static constexpr size_t kFeatures = kWeightRows;
  static constexpr bool kTwoTerms = true;

  Panel& panel;

  SplitPanel(const MatmulArgs& args, size_t feature, const Run& run, Panel& to) : panel(to) {
    const WeightRows rows = WeightRows::at(args, feature);
    for (size_t row = 0; row < kWeightRows; ++row) {
      const char* in = rows.start + row * rows.row_bytes + run.begin * 64;
      for (size_t block = run.begin; block < run.end; ++block, in += 64) {
        const size_t n = rows.block_bytes(block) / sizeof(uint16_t);
        __m512i high = _mm512_setzero_si512(), rest = high;
        if (row < rows.n_features)
          split_f16(n == kTileK ? Avx512::load_bits(in) : Avx512::load_halves(in, n), high, rest);
        _mm512_store_si512(panel.tiles[block - run.begin][0] + row * 64, high);
        _mm512_store_si512(panel.tiles[block - run.begin][1] + row * 64, rest);
      }
    }
  }

  template <class T, int kTile>
  void load_first(const Run& run, size_t block) const {
    T::template load<kWeightTile + kTile>(panel.tiles[block - run.begin][kTile], 64);
  }
};

}  // namespace
}  // namespace kvfork::kernels
