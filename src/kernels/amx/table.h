// The table of the set on T's tiles: products with bf16 and float16 weights and attention over bf16 blocks on
// tiles, everything else as avx512 does it.
#pragma once

#include "kernels/amx/attention.h"
#include "kernels/amx/gated.h"
#include "kernels/amx/matmul.h"
#include "kernels/amx/pack.h"
#include "kernels/avx512/vec.h"
#include "kernels/generic/table.h"

namespace kvfork::kernels {
namespace {

/// float32 weights would take three terms.
inline bool fits_tiles(Element weight_type) {
  return weight_type != Element::F32;
}

inline size_t packed_bytes_on_tiles(size_t n_rows, size_t k, Element weight_type) noexcept {
  return fits_tiles(weight_type) ? amx_packed_bytes(n_rows, k) : packed_bytes<Avx512>(n_rows, k, weight_type);
}

inline void pack_inputs_on_tiles(const PackArgs& args, size_t begin, size_t end) {
  return fits_tiles(args.weight_type) ? amx_pack_inputs(args, begin, end) : pack_inputs<Avx512>(args, begin, end);
}

inline void pack_on_tiles(const PackArgs& args) noexcept {
  pack_inputs_on_tiles(args, 0, args.k);
}

inline size_t item_features_on_tiles(size_t n_rows, size_t k, Element weight_type) noexcept {
  constexpr size_t kItemBytes = 256 * 1024, kFewRows = 64;
  if (!fits_tiles(weight_type)) return item_features<Avx512>(n_rows, k, weight_type);
  if (n_rows <= kFewRows) return fitting_features(kItemBytes, k, sizeof(uint16_t), kRangeFeatures<Avx512>);
  // A chunk's columns are read anew for every item, unless all of them fit into the cache.
  return n_blocks(k) <= kFittingBlocks ? 64 : 224;
}

/// Chunks of nearly equal size.
inline size_t chunk_rows_on_tiles(size_t n_rows, Rounding rounding) noexcept {
  const size_t most = kChunkGroups / (rounding == Rounding::ToBF16 ? 1 : kMaxTerms) * kTileColumns;
  const size_t n_chunks = (n_rows + most - 1) / most;
  return n_chunks <= 1 ? n_rows : round_up((n_rows + n_chunks - 1) / n_chunks, kTileColumns);
}

template <class T>
void matmul_on_tiles(const MatmulArgs& args) noexcept {
  return fits_tiles(args.weight_type) ? amx_matmul<T>(args) : matmul<Avx512>(args);
}

template <class T>
struct TileProducts {
  using V = Avx512;
  static constexpr size_t kWorkspaceBytes = sizeof(ProductWorkspace);
  static void matmul(const MatmulArgs& args) { matmul_on_tiles<T>(args); }
  static void pack_inputs(const PackArgs& args, size_t begin, size_t end) {
    pack_inputs_on_tiles(args, begin, end);
  }
};

template <class T>
void gated_on_tiles(const GatedArgs& args) noexcept {
  const Element type = args.gate.weight_type;
  const Columns columns(args.gate.n_rows, args.gate.rounding);
  const bool same = type == args.up.weight_type && fits_tiles(type) && fits_tiles(args.out_type);
  if (!same || n_groups_of(args.gate, columns) <= kGroupsInPlace) return gated<TileProducts<T>>(args);
  type == Element::F16 ? multiply_gated<T, SplitPanel>(args, columns)
                       : multiply_gated<T, StoredPanel>(args, columns);
}

template <class T>
constexpr KernelTable make_tile_table(const char* name) {
  KernelTable table = make_table<Avx512>(name);
  static_assert(sizeof(AttentionWorkspace) <= sizeof(ProductWorkspace));
  table.workspace_bytes = sizeof(ProductWorkspace) + kGatedBytes;
  table.pack_rows = kTileColumns;
  table.chunk_rows = chunk_rows_on_tiles;
  table.item_features = item_features_on_tiles;
  table.packed_bytes = packed_bytes_on_tiles;
  table.pack = pack_on_tiles;
  table.matmul = matmul_on_tiles<T>;
  table.gated = gated_on_tiles<T>;
  table.attention = attention_on_tiles<T>;
  return table;
}

}  // namespace
}  // namespace kvfork::kernels
