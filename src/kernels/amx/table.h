// The table of the set on T's tiles: products with bf16 and float16 weights and attention over bf16 blocks on
// tiles, everything else as avx512 does it.
#pragma once

#include "kernels/amx/attention.h"
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

inline void pack_on_tiles(const PackArgs& args) noexcept {
  return fits_tiles(args.weight_type) ? amx_pack(args) : pack<Avx512>(args);
}

inline size_t item_features_on_tiles(size_t n_rows, size_t k, Element weight_type) noexcept {
  constexpr size_t kItemBytes = 256 * 1024, kMultiple = 2 * kWeightRows;
  if (!fits_tiles(weight_type)) return item_features<Avx512>(n_rows, k, weight_type);
  return fitting_features(kItemBytes, k, sizeof(uint16_t), kMultiple);
}

template <class T>
void matmul_on_tiles(const MatmulArgs& args) noexcept {
  return fits_tiles(args.weight_type) ? amx_matmul<T>(args) : matmul<Avx512>(args);
}

template <class T>
constexpr KernelTable make_tile_table(const char* name) {
  KernelTable table = make_table<Avx512>(name);
  table.pack_rows = kTileColumns;
  table.item_features = item_features_on_tiles;
  table.packed_bytes = packed_bytes_on_tiles;
  table.pack = pack_on_tiles;
  table.matmul = matmul_on_tiles<T>;
  table.attention_block = attention_block_on_tiles<T>;
  return table;
}

}  // namespace
}  // namespace kvfork::kernels
