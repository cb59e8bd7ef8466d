// Packs activations, and divides products into items of work for the thread pool.
#include "model/products.h"

#include <algorithm>
#include <cstring>

namespace kvfork::model {

// How a product is divided into items of work: some rows after others, so that a thread keeps to activations that
// its core's cache holds, and of each some features.
struct Products::Division {
  size_t n_rows, chunk_rows;
  size_t n_features, per_item;

  Division(const Products& products, const Matrix& matrix, size_t rows, size_t multiple = 1)
      : n_rows(rows),
        chunk_rows(products.kernels_.chunk_rows(rows, products.rounding_)),
        n_features(matrix.n_features),
        per_item((products.kernels_.item_features(chunk_rows, matrix.k, matrix.type) + multiple - 1) / multiple *
                 multiple) {}
  size_t n_chunks() const { return (n_rows + chunk_rows - 1) / chunk_rows; }
  size_t items_per_chunk() const { return (n_features + per_item - 1) / per_item; }
  size_t n_items() const { return n_chunks() * items_per_chunk(); }
  size_t row_begin(size_t item) const { return item / items_per_chunk() * chunk_rows; }
  size_t row_end(size_t item) const { return std::min(n_rows, row_begin(item) + chunk_rows); }
  size_t begin(size_t item) const { return item % items_per_chunk() * per_item; }
  size_t end(size_t item) const { return std::min(n_features, begin(item) + per_item); }
};

void Products::pack_normalized(std::span<const float* const> rows, size_t width, const Norm& norm,
                               kernels::Element type, std::byte* packed, Scratch& scratch) const noexcept {
  pack_rows(rows.size(), width, type, packed, [&](size_t begin, size_t end, size_t thread) noexcept {
    if (!norm.exists()) return rows[begin];
    float* normalized = scratch.norm + thread * kernels_.pack_rows * width;
    for (size_t row = begin; row < end; ++row)
      kernels_.norm(norm.args(rows[row], width, normalized + (row - begin) * width));
    return static_cast<const float*>(normalized);
  });
}

void Products::normalize(std::span<const float* const> rows, size_t width, const Norm& norm,
                         float* y) const noexcept {
  pool_.run(rows.size(), [&](size_t row, size_t) noexcept {
    if (norm.exists()) {
      kernels_.norm(norm.args(rows[row], width, y + row * width));
    } else {
      std::memcpy(y + row * width, rows[row], width * sizeof *y);
    }
  });
}

void Products::pack(const float* x, size_t n_rows, size_t k, kernels::Element type,
                    std::byte* packed) const noexcept {
  pack_rows(n_rows, k, type, packed, [&](size_t begin, size_t, size_t) noexcept { return x + begin * k; });
}

void Products::pack_gathered(const float* x, std::span<const uint32_t> rows, size_t k, kernels::Element type,
                             std::byte* packed, Scratch& scratch) const noexcept {
  pack_rows(rows.size(), k, type, packed, [&](size_t begin, size_t end, size_t thread) noexcept {
    float* gathered = scratch.norm + thread * kernels_.pack_rows * k;
    for (size_t i = begin; i < end; ++i) std::memcpy(gathered + (i - begin) * k, x + rows[i] * k, k * sizeof *x);
    return static_cast<const float*>(gathered);
  });
}

// packed = rows that make(begin, end, thread) points to, in runs of the kernel set's pack_rows.
template <class Make>
void Products::pack_rows(size_t n_rows, size_t k, kernels::Element type, std::byte* packed,
                         const Make& make) const noexcept {
  const size_t run = kernels_.pack_rows;
  pool_.run((n_rows + run - 1) / run, [&](size_t item, size_t thread) noexcept {
    const size_t begin = item * run;
    const size_t end = std::min(n_rows, begin + run);
    kernels_.pack({.x = make(begin, end, thread),
                   .x_stride = k,
                   .row_begin = begin,
                   .row_end = end,
                   .n_rows = n_rows,
                   .k = k,
                   .weight_type = type,
                   .rounding = rounding_,
                   .packed = packed});
  });
}

// One item of a product, but for where its results go.
kernels::MatmulArgs Products::arguments(const Matrix& matrix, const Division& division, size_t item,
                                        const std::byte* packed, std::byte* workspace) const noexcept {
  return {.weight = matrix.data,
          .weight_type = matrix.type,
          .rounding = rounding_,
          .packed = packed,
          .n_rows = division.n_rows,
          .row_begin = division.row_begin(item),
          .row_end = division.row_end(item),
          .k = matrix.k,
          .feature_begin = division.begin(item),
          .feature_end = division.end(item),
          .bias = matrix.bias_or_null(),
          .y = nullptr,
          .y_stride = matrix.n_features,
          .workspace = workspace};
}

// Items of all targets go through the same rows together.
void Products::multiply(std::span<const ProductTarget> targets, size_t n_rows, const std::byte* packed,
                        Scratch& scratch) const noexcept {
  size_t per_chunk = 0;
  for (const ProductTarget& target : targets)
    per_chunk += Division(*this, *target.matrix, n_rows).items_per_chunk();
  const size_t n_chunks = Division(*this, *targets[0].matrix, n_rows).n_chunks();
  pool_.run(n_chunks * per_chunk, [&](size_t item, size_t thread) noexcept {
    size_t part = item % per_chunk;
    for (const ProductTarget& target : targets) {
      const Division division(*this, *target.matrix, n_rows);
      if (part < division.items_per_chunk()) {
        part += item / per_chunk * division.items_per_chunk();
        kernels::MatmulArgs args = arguments(*target.matrix, division, part, packed, scratch.work(thread));
        args.y = target.y;
        args.y_stride = target.y_stride;
        return kernels_.matmul(args);
      }
      part -= division.items_per_chunk();
    }
  });
}

void Products::multiply_add(const Matrix& matrix, size_t n_rows, const std::byte* packed, float* x,
                            Scratch& scratch) const noexcept {
  const size_t width = matrix.n_features;
  const Division division(*this, matrix, n_rows);
  pool_.run(division.n_items(), [&](size_t item, size_t thread) noexcept {
    kernels::MatmulArgs args = arguments(matrix, division, item, packed, scratch.work(thread));
    args.y = scratch.product;
    args.y_stride = width;
    kernels_.matmul(args);
    for (size_t row = args.row_begin; row < args.row_end; ++row) {
      const size_t at = row * width + args.feature_begin;
      kernels_.add(x + at, scratch.product + at, args.feature_end - args.feature_begin);
    }
  });
}

void Products::multiply_gated(const MlpWeights& mlp, size_t n_rows, const std::byte* packed,
                              const std::byte* packed_up, std::byte* packed_out, Scratch& scratch) const noexcept {
  const Division division(*this, mlp.gate, n_rows, kernels_.range_features);
  pool_.run(division.n_items(), [&](size_t item, size_t thread) noexcept {
    kernels_.gated({.gate = arguments(mlp.gate, division, item, packed, scratch.work(thread)),
                    .up = arguments(mlp.up, division, item, packed_up, scratch.work(thread)),
                    .n_features = mlp.down.k,
                    .out_type = mlp.down.type,
                    .packed = packed_out,
                    .activation = mlp.activation,
                    .clamp = mlp.clamp});
  });
}

void Products::multiply_activated(const MlpWeights& mlp, size_t n_rows, const std::byte* packed,
                                  std::byte* packed_out, Scratch& scratch) const noexcept {
  const size_t inner = mlp.up.n_features;
  const Division division(*this, mlp.up, n_rows);
  pool_.run(division.n_items(), [&](size_t item, size_t thread) noexcept {
    kernels::MatmulArgs args = arguments(mlp.up, division, item, packed, scratch.work(thread));
    args.y = scratch.inner;
    args.y_stride = inner;
    kernels_.matmul(args);
    for (size_t row = args.row_begin; row < args.row_end; ++row) {
      float* y = scratch.inner + row * inner + args.feature_begin;
      kernels_.activate(mlp.activation, y, args.feature_end - args.feature_begin, y);
    }
  });
  pack(scratch.inner, n_rows, inner, mlp.down.type, packed_out);
}

void Products::add_normalized(float* x, float* y, size_t n_rows, size_t width, const Norm& norm,
                              float factor) const noexcept {
  pool_.run(n_rows, [&](size_t row, size_t) noexcept {
    float* from = y + row * width;
    if (norm.exists()) kernels_.norm(norm.args(from, width, from));
    if (factor == 1) {
      kernels_.add(x + row * width, from, width);
    } else {
      kernels_.add_scaled(x + row * width, from, factor, width);
    }
  });
}

}  // namespace kvfork::model
