// A product of random numbers, for tests of its values and bits.
#pragma once

#include <string>

#include "tests/kernels/kernel_test.h"
#include "tests/reference/kernels.h"

namespace kvfork::kernels {

inline constexpr Element kEveryType[] = {Element::F32, Element::F16, Element::BF16};
inline constexpr Rounding kEveryRounding[] = {Rounding::None, Rounding::ToBF16};

inline float load_element(const char* p, Element type) {
  uint32_t bits = 0;
  std::memcpy(&bits, p, element_bytes(type));
  if (type == Element::F32) return bits_float(bits);
  const auto half = static_cast<uint16_t>(bits);
  return type == Element::BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

/// All that is read, and what a row is packed into, ends at unmapped pages.
class Product {
 public:
  struct Shape {
    size_t n_rows, k, n_features;
  };

  /// The weights lie `shift` bytes beside an aligned address.
  Product(const KernelTable& table, Element type, Rounding rounding, Shape shape, size_t shift = 0)
      : table_(table),
        type_(type),
        rounding_(rounding),
        shape_(shape),
        weight_(shape.n_features * shape.k * element_bytes(type), shift),
        x_(shape.n_rows * shape.k),
        bias_(shape.n_features),
        packed_(table.packed_bytes(shape.n_rows, shape.k, type)),
        part_(table.packed_bytes(shape.n_rows, shape.k, type)) {
    Random random(shape.n_rows * 1000003 + shape.k * 1009 + shape.n_features);
    random.fill(x_);
    random.fill(bias_);
    for (size_t i = 0; i < shape.n_features * shape.k; ++i)
      store_element(weight_.data() + i * element_bytes(type), type, random.next());
    pack(rounding);
  }

  /// Packs the activations as they are now.
  void pack(Rounding rounding) {
    rounding_ = rounding;
    pack_rows(0, shape_.n_rows, packed_.data());
  }

  std::string name() const {
    return std::string(type_ == Element::F32   ? "f32"
                       : type_ == Element::F16 ? "f16"
                                               : "bf16") +
           (rounding_ == Rounding::None ? "" : " rounded") + " k " + std::to_string(shape_.k) + " rows " +
           std::to_string(shape_.n_rows) + " features " + std::to_string(shape_.n_features);
  }

  MatmulArgs args(EdgeArray<float>& y) const { return args(y.data()); }
  MatmulArgs args(float* y) const {
    return {.weight = weight_.data(),
            .weight_type = type_,
            .rounding = rounding_,
            .packed = packed_.data(),
            .n_rows = shape_.n_rows,
            .row_begin = 0,
            .row_end = shape_.n_rows,
            .k = shape_.k,
            .feature_begin = 0,
            .feature_end = shape_.n_features,
            .bias = bias_.data(),
            .y = y,
            .y_stride = shape_.n_features,
            .workspace = make_workspace(table_)};
  }
  /// Of rows [begin, end) alone, packed anew; y is where the first of them goes.
  MatmulArgs rows(size_t begin, size_t end, float* y) {
    pack_rows(begin, end, part_.data());
    MatmulArgs part = args(y);
    part.packed = part_.data();
    part.n_rows = part.row_end = end - begin;
    return part;
  }

  /// As it is multiplied: rounded if that was asked.
  float x(size_t row, size_t i) const {
    const float x = x_[row * shape_.k + i];
    return rounding_ == Rounding::None ? x : bf16_to_f32(f32_to_bf16(x));
  }
  float weight(size_t feature, size_t i) const {
    return load_element(weight_.data() + (feature * shape_.k + i) * element_bytes(type_), type_);
  }
  float bias(size_t feature) const { return bias_[feature]; }
  reference::Row row(size_t row) const {
    reference::Row values(shape_.k);
    for (size_t i = 0; i < shape_.k; ++i) values[i] = x(row, i);
    return values;
  }
  reference::Row weights(size_t feature) const {
    reference::Row values(shape_.k);
    for (size_t i = 0; i < shape_.k; ++i) values[i] = weight(feature, i);
    return values;
  }

  void set_x(size_t row, size_t i, float value) { x_.set(row * shape_.k + i, value); }
  void set_weight(size_t feature, size_t i, float value) {
    store_element(weight_.data() + (feature * shape_.k + i) * element_bytes(type_), type_, value);
  }
  /// Low bytes of `bits`, as many as the type has.
  void set_weight_bits(size_t feature, size_t i, uint32_t bits) {
    const size_t bytes = element_bytes(type_);
    std::memcpy(weight_.data() + (feature * shape_.k + i) * bytes, &bits, bytes);
  }

 private:
  void pack_rows(size_t begin, size_t end, char* packed) {
    table_.pack({.x = x_.data() + begin * shape_.k,
                 .x_stride = shape_.k,
                 .row_begin = 0,
                 .row_end = end - begin,
                 .n_rows = end - begin,
                 .k = shape_.k,
                 .weight_type = type_,
                 .rounding = rounding_,
                 .packed = packed});
  }

  const KernelTable& table_;
  Element type_;
  Rounding rounding_;
  Shape shape_;
  EdgeArray<char> weight_;
  EdgeArray<float> x_, bias_;
  EdgeArray<char> packed_, part_;
};

}  // namespace kvfork::kernels
