// The gated half of a feed-forward layer in one call: the bits of matmul, activate_mul and pack.
#include "tests/kernels/product.h"

namespace kvfork::kernels {
namespace {

/// The types of the three matrices.
struct Types {
  Element gate, up, out;
};

constexpr Types kTypes[] = {
    {Element::BF16, Element::BF16, Element::BF16}, {Element::F16, Element::F16, Element::F16},
    {Element::F32, Element::F32, Element::F32},    {Element::BF16, Element::F32, Element::F16},
    {Element::F16, Element::F16, Element::BF16},   {Element::BF16, Element::BF16, Element::F32}};

/// All of a layer's feed-forward products over n_rows rows, and what comes of them in either way.
class Layer {
 public:
  Layer(const KernelTable& table, Types types, Rounding rounding, size_t n_rows, size_t k, size_t n_features,
        Activation activation = Activation::Silu)
      : table_(table),
        activation_(activation),
        types_(types),
        n_rows_(n_rows),
        n_features_(n_features),
        gate_(table, types.gate, rounding, {n_rows, k, n_features}),
        up_(table, types.up, rounding, {n_rows, k, n_features}),
        down_(table, types.out, rounding, {n_rows, n_features, kOut}) {}

  std::string name() const { return gate_.name() + " out of " + down_.name(); }

  /// down(activation(gate) * up), each step by itself.
  EdgeArray<float>& by_parts() {
    EdgeArray<float> gate(n_rows_ * n_features_), up(n_rows_ * n_features_);
    table_.matmul(gate_.args(gate.data()));
    table_.matmul(up_.args(up.data()));
    table_.activate_mul(activation_, kClamp, gate.data(), up.data(), gate.size(), gate.data());
    MatmulArgs down = down_.args(expected_.data());
    down.packed = packed_.data();
    table_.pack({.x = gate.data(),
                 .x_stride = n_features_,
                 .row_begin = 0,
                 .row_end = n_rows_,
                 .n_rows = n_rows_,
                 .k = n_features_,
                 .weight_type = types_.out,
                 .rounding = down.rounding,
                 .packed = packed_.data()});
    table_.matmul(down);
    return expected_;
  }

  /// The same of `gated`, rows and features in ranges of so many. What lies where it packs to is NaN before.
  EdgeArray<float>& in_one(size_t chunk_rows, size_t range) {
    std::memset(packed_.data(), 0xff, packed_.size());
    GatedArgs args{.gate = gate_.args(nullptr),
                   .up = up_.args(nullptr),
                   .n_features = n_features_,
                   .out_type = types_.out,
                   .packed = packed_.data(),
                   .activation = activation_,
                   .clamp = kClamp};
    for (size_t row = 0; row < n_rows_; row += chunk_rows) {
      for (size_t end = (n_features_ + range - 1) / range * range; end > 0; end -= range) {
        for (MatmulArgs* part : {&args.gate, &args.up}) {
          part->row_begin = row;
          part->row_end = std::min(n_rows_, row + chunk_rows);
          part->feature_begin = end - range;
          part->feature_end = std::min(n_features_, end);
        }
        table_.gated(args);
      }
    }
    MatmulArgs down = down_.args(y_.data());
    down.packed = packed_.data();
    table_.matmul(down);
    return y_;
  }

 private:
  static constexpr size_t kOut = 19;
  static constexpr float kClamp = 0.5f;
  const KernelTable& table_;
  Activation activation_;
  Types types_;
  size_t n_rows_, n_features_;
  Product gate_, up_, down_;
  EdgeArray<char> packed_{table_.packed_bytes(n_rows_, n_features_, types_.out)};
  EdgeArray<float> y_{n_rows_ * kOut}, expected_{n_rows_ * kOut};
};

class Gated : public EachSet {};

TEST_P(Gated, HasTheBitsOfItsParts) {
  for (const Types& types : kTypes) {
    for (Rounding rounding : kEveryRounding) {
      for (size_t n_rows : {1, 3, 5, 6, 16, 17, 33, 47, 100}) {
        for (size_t n_features : {5, 32, 77, 144}) {
          Layer layer(table(), types, rounding, n_rows, 70, n_features);
          SCOPED_TRACE(layer.name());
          const EdgeArray<float>& expected = layer.by_parts();
          const size_t n = table().range_features;
          ASSERT_TRUE(same_bits(layer.in_one(1024, round_up(n_features, n)), expected, expected.size()));
          ASSERT_TRUE(same_bits(layer.in_one(32, n), expected, expected.size())) << "in ranges";
        }
      }
    }
  }
}

/// Few rows, and enough for a panel of tiles.
TEST_P(Gated, HasTheBitsOfItsPartsForEveryActivation) {
  for (Activation activation : {Activation::Gelu, Activation::GeluTanh, Activation::Relu, Activation::ReluSquared,
                                Activation::SwishClamped}) {
    for (const Types& types : {kTypes[0], kTypes[1], kTypes[2]}) {
      for (Rounding rounding : kEveryRounding) {
        for (size_t n_rows : {3, 100}) {
          Layer layer(table(), types, rounding, n_rows, 70, 77, activation);
          SCOPED_TRACE(layer.name() + " activation " + std::to_string(static_cast<int>(activation)));
          const EdgeArray<float>& expected = layer.by_parts();
          ASSERT_TRUE(same_bits(layer.in_one(1024, table().range_features * 3), expected, expected.size()));
        }
      }
    }
  }
}

/// More than one run of inputs, and as many rows as a pass has.
TEST_P(Gated, HasTheBitsOfItsPartsAtFullSize) {
  for (const Types& types : {kTypes[0], kTypes[1]}) {
    for (Rounding rounding : kEveryRounding) {
      Layer layer(table(), types, rounding, 512, 1100, 77);
      SCOPED_TRACE(layer.name());
      const EdgeArray<float>& expected = layer.by_parts();
      const EdgeArray<float>& found = layer.in_one(table().chunk_rows(512, rounding), table().range_features);
      ASSERT_TRUE(same_bits(found, expected, expected.size()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, Gated, all_sets(), set_name);

}  // namespace
}  // namespace kvfork::kernels
