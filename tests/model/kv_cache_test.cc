// What layers of different kinds remember: rows of other widths side by side, states, and layers that keep nothing.

#include "model/kv_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

namespace kvfork::model {
namespace {

constexpr size_t kRowsAndState = 0, kNothing = 1, kState = 2, kNarrowRows = 3;

std::shared_ptr<const StateLayout> make_layout() {
  return std::make_shared<const StateLayout>(
      std::vector<LayerState>{
          {.n_kv_heads = 2, .head_dim = 24, .n_floats = 5}, {}, {.n_floats = 40}, {.n_kv_heads = 1, .head_dim = 8}},
      kernels::Element::F32);
}

// A pass that sums what it sees: each layer's state gains `value` for each token, each row holds its value.
void run(KvSequence& kv, size_t n_tokens, float value) {
  const StateLayout& layout = kv.layout();
  kv.reserve(kv.n_tokens() + n_tokens);
  for (size_t layer = 0; layer < layout.n_layers(); ++layer) {
    kv.begin_layer(layer);
    const LayerState& kept = layout.layer(layer);
    for (size_t p = kv.n_tokens(); p < kv.n_tokens() + n_tokens; ++p) {
      for (size_t head = 0; head < kept.n_kv_heads; ++head) {
        auto* values = reinterpret_cast<float*>(kv.own_block(p / kernels::kBlockTokens).value(layout, layer, head));
        values[p % kernels::kBlockTokens * kernels::value_stride(kept.head_dim)] = value;
      }
    }
    for (size_t i = 0; i < kept.n_floats; ++i)
      kv.next_state(layer)[i] = kv.state(layer)[i] + value * static_cast<float>(n_tokens);
  }
  kv.advance(n_tokens);
}

void expect_states(const KvSequence& kv, float expected) {
  for (const size_t layer : {kRowsAndState, kState}) {
    for (size_t i = 0; i < kv.layout().layer(layer).n_floats; ++i) ASSERT_EQ(kv.state(layer)[i], expected) << layer;
  }
}

float value_at(const KvSequence& kv, size_t position, size_t layer) {
  const KvBlock block = kv.block(position / kernels::kBlockTokens);
  const size_t stride = kernels::value_stride(kv.layout().layer(layer).head_dim);
  return reinterpret_cast<const float*>(
      block.value(kv.layout(), layer, 0))[position % kernels::kBlockTokens * stride];
}

TEST(StateLayout, CountsWhatEachLayerKeeps) {
  const auto layout = make_layout();
  EXPECT_EQ(layout->token_bytes(), (2 * 2 * 24 + 2 * 8) * sizeof(float));
  EXPECT_EQ(layout->block_bytes(), kernels::kBlockTokens * (2 * (24 + 32) + 8 + 16) * sizeof(float));
  EXPECT_EQ(layout->keys_bytes(kNothing), 0u);
  EXPECT_GE(layout->state_offset(kState), 5u);
  EXPECT_GE(layout->n_state_floats(), layout->state_offset(kState) + 40);
}

TEST(StateLayout, PlacesNeverOverlap) {
  const auto layout = make_layout();
  for (const BlockPlaces& places : {BlockPlaces::by_block(*layout), BlockPlaces::by_layer(*layout, 3)}) {
    std::vector<bool> is_taken(3 * layout->block_bytes());
    const auto take = [&](const BlockPlaces::Place& place, size_t block, size_t n_bytes) {
      for (size_t i = 0; i < n_bytes; ++i) {
        const size_t at = place.offset + block * place.step + i;
        ASSERT_FALSE(is_taken.at(at));
        is_taken[at] = true;
      }
    };
    for (size_t block = 0; block < 3; ++block) {
      for (size_t layer = 0; layer < layout->n_layers(); ++layer) {
        take(places.keys[layer], block, layout->keys_bytes(layer));
        take(places.values[layer], block, layout->values_bytes(layer));
      }
    }
    EXPECT_EQ(std::count(is_taken.begin(), is_taken.end(), false), 0);
  }
}

TEST(States, AForkStartsFromTheStatesOfItsPrefixAndLeavesThemAlone) {
  KvSequence first(make_layout());
  run(first, 70, 1);
  run(first, 3, 2);
  expect_states(first, 76);
  const auto prefix = std::move(first).seal();
  EXPECT_EQ(prefix->last_start(73), 73u);
  EXPECT_EQ(prefix->last_start(72), 0u) << "a state exists at one position only";
  for (const float value : {1.f, 5.f}) {
    KvSequence fork(prefix, 73);
    expect_states(fork, 76);
    run(fork, 2, value);
    run(fork, 1, value);
    expect_states(fork, 76 + 3 * value);
    EXPECT_EQ(value_at(fork, 72, kNarrowRows), 2);
    EXPECT_EQ(value_at(fork, 75, kNarrowRows), value);
    EXPECT_EQ(value_at(fork, 75, kRowsAndState), value);
  }
  KvSequence again(prefix, 73);
  expect_states(again, 76);
}

TEST(States, ARewindBringsTheMarkedStatesBack) {
  KvSequence kv(make_layout());
  run(kv, 10, 1);
  for (int round = 0; round < 3; ++round) {
    kv.mark();
    for (int pass = 0; pass < 4; ++pass) run(kv, 5, 3);
    expect_states(kv, 70);
    kv.rewind(10);
    kv.clear_to(30);
    expect_states(kv, 10);
  }
  run(kv, 1, 1);
  expect_states(kv, 11);
}

TEST(States, KeptStatesArePlacesToForkFrom) {
  KvSequence kv(make_layout());
  for (size_t part = 0; part < 4; ++part) {
    run(kv, 50, 1);
    kv.keep_states();
    kv.keep_states();  // the same place once more
  }
  run(kv, 7, 1);
  const auto prefix = std::move(kv).seal();
  ASSERT_EQ(prefix->states().size(), 5u);
  EXPECT_EQ(prefix->last_start(207), 207u);
  EXPECT_EQ(prefix->last_start(206), 200u);
  EXPECT_EQ(prefix->last_start(149), 100u);
  EXPECT_EQ(prefix->last_start(49), 0u);
  KvSequence fork(prefix, 100);
  expect_states(fork, 100);
  run(fork, 60, 2);
  const auto child = std::move(fork).seal();
  // Those of the parent beyond the fork are another timeline's.
  ASSERT_EQ(child->states().size(), 3u);
  EXPECT_EQ(child->n_shared_states(), 2u);
  EXPECT_EQ(child->last_start(159), 100u);
  KvSequence grandchild(child, 160);
  expect_states(grandchild, 220);
}

TEST(States, WhatIsRewoundIsNoPlaceToForkFrom) {
  KvSequence kv(make_layout());
  run(kv, 10, 1);
  kv.mark();
  run(kv, 10, 1);
  kv.keep_states();
  kv.rewind(10);
  kv.clear_to(20);
  run(kv, 15, 4);
  const auto prefix = std::move(kv).seal();
  ASSERT_EQ(prefix->states().size(), 1u);
  KvSequence fork(prefix, 25);
  expect_states(fork, 70);
}

TEST(States, AWriteToSealedStatesFaults) {
  KvSequence kv(make_layout());
  run(kv, 10, 1);
  kv.keep_states();
  run(kv, 10, 1);
  const auto prefix = std::move(kv).seal();
  for (const States& states : prefix->states()) {
    auto* floats = const_cast<float*>(states.floats.get());
    EXPECT_DEATH(floats[0] = 1, "");
    EXPECT_DEATH(floats[prefix->layout().n_state_floats() - 1] = 1, "");
  }
}

}  // namespace
}  // namespace kvfork::model
