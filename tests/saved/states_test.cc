// Contexts of models whose layers have a state: where forks start, what is run again, and what is kept.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/context_state.h"
#include "engine/fork_state.h"
#include "kvfork/context.h"
#include "kvfork/fork.h"
#include "kvfork/generate.h"
#include "kvfork/model.h"
#include "tests/support/each_setup.h"
#include "tests/support/temp_dir.h"

namespace kvfork {
namespace {

constexpr const char* kFamilies[] = {"lfm2-5", "qwen3_5-5"};

// A golden checkpoint with room for more tokens than its config has.
class RoomyModel {
 public:
  explicit RoomyModel(const char* family) {
    const std::filesystem::path from = std::filesystem::path(KVFORK_SOURCE_DIR "/tests/golden/families") / family;
    std::filesystem::copy_file(from / "model.safetensors", dir_.path() / "model.safetensors");
    std::ifstream file(from / "config.json");
    std::string config{std::istreambuf_iterator<char>(file), {}};
    const std::string limit = "\"max_position_embeddings\": 512";
    const size_t at = config.find(limit);
    EXPECT_NE(at, std::string::npos);
    config.replace(at, limit.size(), "\"max_position_embeddings\": 9000");
    std::ofstream(dir_.path() / "config.json") << config;
  }
  std::shared_ptr<const Model> open(const ModelOptions& options = {.n_threads = 2}) const {
    return Model::open(dir_.path(), options);
  }

 private:
  test::TempDir dir_;
};

std::vector<int32_t> make_ids(size_t n) {
  std::vector<int32_t> ids(n);
  for (size_t i = 0; i < n; ++i) ids[i] = static_cast<int32_t>(i * i * 7 % 90);
  return ids;
}

Generation answer(Fork& fork) {
  return generate(fork, {.max_new_tokens = 6, .fingerprint_logits = true});
}

TEST(ContextOfStates, KeepsPlacesAndForksStartAtTheLastOneBefore) {
  for (const char* family : kFamilies) {
    const RoomyModel roomy(family);
    for (const auto& setup : test::each_setup()) {
      SCOPED_TRACE(std::string(family) + " " + setup.name());
      const auto model = roomy.open(setup.options(2));
      EXPECT_GT(model->info().state_bytes, 0u);
      constexpr size_t n = 1300;
      const auto ids = make_ids(n);
      std::vector<size_t> progress;
      const auto context = model->prefill(ids, [&](size_t done) { progress.push_back(done); });
      ASSERT_FALSE(progress.empty());
      EXPECT_EQ(progress.back(), n);
      EXPECT_EQ(context->last_start(n), n);
      EXPECT_EQ(context->last_start(n - 1), (n - 1) / 512 * 512);
      for (const size_t at : {n, n - 1, size_t{513}, size_t{512}, size_t{100}}) {
        Fork fork = context->fork_unchecked(at);
        EXPECT_EQ(fork.size(), at);
        EXPECT_EQ(fork.shared_ids().size(), context->last_start(at));
        const std::vector<int32_t> more = {3, 1, 4, 1, 5};
        fork.append(more);
        std::vector<int32_t> whole(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(at));
        whole.insert(whole.end(), more.begin(), more.end());
        Fork uncached = model->start();
        uncached.append(whole);
        EXPECT_EQ(answer(fork).logit_fingerprints, answer(uncached).logit_fingerprints) << at;
      }
    }
  }
}

TEST(ContextOfStates, PlacesAreBounded) {
  const RoomyModel roomy("lfm2-5");
  const auto context = roomy.open()->prefill(make_ids(8900));
  const size_t n_places = engine::state_of(*context).kv->states().size();
  EXPECT_LE(n_places, 9u);
  EXPECT_GE(n_places, 6u);
}

TEST(ContextOfStates, AWriteThroughASealedStateFaults) {
  const RoomyModel roomy("qwen3_5-5");
  const auto model = roomy.open();
  const auto context = model->prefill(make_ids(70));
  const auto& kv = *engine::state_of(*context).kv;
  ASSERT_FALSE(kv.states().empty());
  for (const model::States& states : kv.states()) {
    auto* floats = const_cast<float*>(states.floats.get());
    EXPECT_DEATH(*floats = 1, "");
  }
}

TEST(ContextOfStates, SavedFilesHoldTheStatesOfEveryPlace) {
  const test::TempDir dir;
  ::setenv("XDG_CACHE_HOME", (dir.path() / "cache").c_str(), 1);
  const std::string file = (dir.path() / "context").string(), child_file = (dir.path() / "child").string();
  for (const char* family : kFamilies) {
    SCOPED_TRACE(family);
    const RoomyModel roomy(family);
    const auto model = roomy.open();
    constexpr size_t n = 1100;
    const auto context = model->prefill(make_ids(n));
    context->save(file);
    const auto opened = model->open_context(file);
    EXPECT_EQ(opened->hash(), context->hash());
    EXPECT_EQ(opened->last_start(n - 1), context->last_start(n - 1));
    Fork fork = context->fork_unchecked(700);
    fork.append(make_ids(100));
    const auto child = std::move(fork).seal();
    child->save(child_file);
    const auto opened_child = model->open_context(child_file);
    EXPECT_EQ(opened_child->hash(), child->hash());
    Fork a = child->fork_unchecked(), b = opened_child->fork_unchecked();
    EXPECT_EQ(answer(a).logit_fingerprints, answer(b).logit_fingerprints);
    // A place of the parent behind the fork belongs to another timeline.
    EXPECT_LE(opened_child->last_start(799), 700u);
  }
}

TEST(ContextOfStates, AForkCostsTheSameAtAnyLengthAndCopiesOnItsFirstWrite) {
  const RoomyModel roomy("lfm2-5");
  const auto model = roomy.open();
  for (const size_t n : {70u, 1000u}) {
    const auto context = model->prefill(make_ids(n));
    Fork fork = context->fork_unchecked();
    EXPECT_EQ(engine::state_of(fork).kv.own_bytes(), 0u);
  }
}

}  // namespace
}  // namespace kvfork
