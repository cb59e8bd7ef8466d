// Promise 3 over random cases: however a timeline came about, in which company it goes on, and on how many threads,
// ids and logits are those of one call from position 0.
//
// KVFORK_PROPERTY_CASES sets the number of cases (default 600), KVFORK_PROPERTY_SEED the first one's seed (default
// 1); a case depends on its seed alone. KVFORK_PROPERTY_SECONDS ends the test earlier, KVFORK_PROPERTY_SET names
// the only kernel set, and KVFORK_PROPERTY_DISTURB=1 mixes in calls that a callback or refused memory ends, under
// another floating-point environment; scripts/soak uses all of them.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kvfork/batch.h"
#include "kvfork/context.h"
#include "kvfork/error.h"
#include "kvfork/fork.h"
#include "kvfork/generate.h"
#include "kvfork/model.h"
#include "tests/support/disturbance.h"
#include "tests/support/each_setup.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace kvfork {
namespace {

using Ids = std::vector<int32_t>;

constexpr size_t kMaxThreads = 3;
constexpr size_t kLongestAnswer = 12;

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

size_t n_comparisons = 0;   // of logits at one position, and of ids of an answer
size_t n_disturbances = 0;  // calls that were left by a throw

bool same_bits(std::span<const float> a, std::span<const float> b) {
  ++n_comparisons;
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  size_t between(size_t low, size_t high) { return std::uniform_int_distribution<size_t>(low, high)(engine_); }
  bool one_in(size_t n) { return between(1, n) == 1; }
  // Lengths around a block's ends are where things go wrong.
  size_t length(size_t low, size_t high) {
    const size_t n = one_in(3) ? 64 * between(1, 3) + between(0, 2) - 1 : between(low, high);
    return std::clamp(n, low, high);
  }
  Ids ids(size_t n, size_t vocab_size) {
    Ids result(n);
    for (auto& id : result) id = static_cast<int32_t>(between(0, vocab_size - 1));
    return result;
  }
  GenerateOptions options() {
    GenerateOptions options;
    options.max_new_tokens = between(1, kLongestAnswer);
    options.eos_token_ids = {static_cast<int32_t>(between(0, 90))};
    options.fingerprint_logits = true;
    options.logprobs = true;
    if (one_in(3)) options.repetition_penalty = 1.3;
    if (one_in(4)) options.speculation = Speculation::Lookup;
    if (one_in(3)) return options;
    options.sampling.temperature = 0.3 * static_cast<double>(between(1, 6));
    options.sampling.seed = engine_();
    if (one_in(3)) options.sampling.top_k = between(1, 60);
    if (one_in(3)) options.sampling.top_p = 0.9;
    if (one_in(4)) options.sampling.min_p = 0.05;
    return options;
  }

 private:
  std::mt19937_64 engine_;
};

// One checkpoint in one mode on one kernel set, by number of threads.
struct World {
  std::string name;
  std::vector<std::shared_ptr<const Model>> models;

  const Model& plain() const { return *models[0]; }
  size_t vocab_size() const { return plain().info().vocab_size; }
  size_t room() const { return plain().info().max_position_embeddings - kLongestAnswer; }  // for requests
  size_t longest() const { return std::min<size_t>(200, room()); }
};

// Checkpoints of every family: rows, windows, experts, and layers with a state.
std::vector<std::filesystem::path> find_families() {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(KVFORK_SOURCE_DIR "/tests/golden/families"))
    folders.push_back(entry.path());
  std::ranges::sort(folders);
  return folders;
}

std::vector<test::Setup> chosen_setups() {
  std::vector<test::Setup> setups = test::each_setup();
  if (const char* only = std::getenv("KVFORK_PROPERTY_SET"))
    std::erase_if(setups, [only](const auto& setup) { return setup.kernel_set != only; });
  return setups;
}

// Nothing for a family that is not run yet: tests/e2e/families_test.py lists those.
std::optional<World> open_family(const std::filesystem::path& folder, const test::Setup& setup) {
  World world{.name = folder.filename().string() + " " + setup.name(), .models = {}};
  try {
    for (size_t n = 1; n <= kMaxThreads; ++n) world.models.push_back(Model::open(folder, setup.options(n)));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Unsupported) throw;
    return std::nullopt;
  }
  return world;
}

std::vector<World> make_worlds(const test::TempDir& dir) {
  const std::vector<test::TinyModel> shapes = {{.hidden_size = 32,
                                                .intermediate_size = 48,
                                                .num_attention_heads = 2,
                                                .num_key_value_heads = 1,
                                                .vocab_size = 97},
                                               {.family = "llama",
                                                .dtype = "F16",
                                                .hidden_size = 36,
                                                .intermediate_size = 50,
                                                .num_attention_heads = 3,
                                                .num_key_value_heads = 3,
                                                .head_dim = 18,
                                                .vocab_size = 101,
                                                .tie_word_embeddings = false},
                                               {.dtype = "F32",
                                                .hidden_size = 48,
                                                .intermediate_size = 64,
                                                .num_hidden_layers = 1,
                                                .num_attention_heads = 4,
                                                .num_key_value_heads = 2,
                                                .head_dim = 20,
                                                .vocab_size = 91}};
  std::vector<World> worlds;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const auto folder = dir.path() / std::to_string(i);
    std::filesystem::create_directory(folder);
    test::write_tiny_model(folder, shapes[i]);
    for (const auto& setup : chosen_setups()) {
      World world{.name = shapes[i].family + " " + shapes[i].dtype + " " + setup.name(), .models = {}};
      for (size_t n = 1; n <= kMaxThreads; ++n) world.models.push_back(Model::open(folder, setup.options(n)));
      worlds.push_back(std::move(world));
    }
  }
  return worlds;
}

// What one call from position 0 on one thread gives: the logits of every position, and the answer.
struct Truth {
  std::vector<float> rows;  // [ids.size(), vocab]
  Generation answer;
};

Truth find_truth(const Model& model, const Ids& ids, GenerateOptions options) {
  options.speculation = Speculation::Off;
  Truth truth;
  Fork fork = model.start();
  fork.append_scored(ids, [&](size_t, std::span<const float> rows) {
    truth.rows.insert(truth.rows.end(), rows.begin(), rows.end());
  });
  truth.answer = generate(fork, options);
  return truth;
}

void expect_equal(const Generation& found, const Generation& truth, const char* how) {
  n_comparisons += truth.ids.size();
  EXPECT_EQ(found.ids, truth.ids) << how;
  EXPECT_EQ(found.stop, truth.stop) << how;
  EXPECT_EQ(found.logit_fingerprints, truth.logit_fingerprints) << how;
  EXPECT_EQ(found.logprobs, truth.logprobs) << how;
  EXPECT_EQ(found.ids.size(), found.logit_fingerprints.size()) << how;
}

class Case {
 public:
  Case(const World& world, uint64_t seed, const std::string& scratch_file)
      : world_(world),
        random_(seed),
        model_(*world.models[random_.between(0, kMaxThreads - 1)]),
        scratch_file_(scratch_file),
        ids_(random_.ids(random_.length(1, world.longest()), world.vocab_size())),
        options_(random_.options()),
        truth_(find_truth(world.plain(), ids_, options_)) {}

  void run() {
    const size_t n_context = random_.between(1, ids_.size());
    auto context = walk(n_context);
    if (random_.one_in(100)) context = save_and_open(*context);
    const std::string hash = random_.one_in(8) ? context->hash() : "";
    random_.one_in(3) ? answer_in_batch(*context) : answer_alone(*context);
    if (!hash.empty()) {
      EXPECT_EQ(context->hash(), hash);
    }
  }

 private:
  std::span<const float> row(size_t n_tokens) const {
    return std::span(truth_.rows).subspan((n_tokens - 1) * world_.vocab_size(), world_.vocab_size());
  }

  // The first n_tokens ids in random calls, with contexts sealed on the way and forks that go back into them.
  std::shared_ptr<const Context> walk(size_t n_tokens) {
    Fork fork = model_.start();
    std::shared_ptr<const Context> context;
    while (true) {
      if (fork.size() < n_tokens)
        step(fork, std::min(n_tokens - fork.size(), random_.between(1, random_.one_in(2) ? 4 : 130)));
      const bool is_done = fork.size() == n_tokens;
      if (!is_done && !random_.one_in(4)) continue;
      context = std::move(fork).seal();
      EXPECT_TRUE(same_bits(context->logits(), row(context->size()))) << "sealed at " << context->size();
      if (is_done) return context;
      fork = random_.one_in(2) ? context->fork_unchecked()
                               : context->fork_unchecked(random_.between(1, context->size()));
    }
  }

  void step(Fork& fork, size_t n) {
    const size_t end = fork.size() + n;
    std::optional<test::ChangedFloatingPoint> changed;
    if (disturbs_ && random_.one_in(3)) changed.emplace(static_cast<unsigned>(random_.between(0, 3)));
    if (disturbs_ && random_.one_in(3)) disturb(fork, n);
    if (fork.size() < end) append(fork, end - fork.size());
  }

  // One call that a throw may end: of a callback, or because the system refuses memory. Whatever the fork holds
  // then must be right, and it must go on from there.
  void disturb(Fork& fork, size_t n) {
    const size_t first = fork.size();
    const auto part = std::span<const int32_t>(ids_).subspan(first, n);
    size_t n_before = random_.between(0, 2);
    const auto throw_in_turn = [&n_before] {
      if (n_before-- == 0) throw test::Disturbance();
    };
    try {
      switch (random_.between(0, 2)) {
        case 0:
          fork.append(part, [&](size_t) { throw_in_turn(); });
          break;
        case 1:
          fork.append_scored(part, [&](size_t, std::span<const float>) { throw_in_turn(); });
          break;
        default:
          append_without_memory(fork, part);
      }
    } catch (const test::Disturbance&) {
      ++n_disturbances;
    } catch (const Error& error) {
      ++n_disturbances;
      EXPECT_EQ(error.code(), ErrorCode::Limit) << error.what();
    }
    EXPECT_GE(fork.size(), first);
    EXPECT_LE(fork.size(), first + n);
    if (fork.size() == first) return;  // whether it has logits depends on where it began
    EXPECT_TRUE(same_bits(fork.logits(), row(fork.size()))) << "after a throw at " << fork.size();
  }

  static void append_without_memory(Fork& fork, std::span<const int32_t> part) {
    const test::RefusedMemory refused;
    fork.append(part);
  }

  void append(Fork& fork, size_t n) {
    const size_t first = fork.size();
    const auto part = std::span<const int32_t>(ids_).subspan(first, n);
    if (random_.one_in(2)) {
      fork.append(part);
    } else {
      fork.append_scored(part, [&](size_t, std::span<const float> rows) {
        const size_t at = scored_ * world_.vocab_size();
        n_comparisons += rows.size() / world_.vocab_size() - 1;
        EXPECT_TRUE(same_bits(rows, std::span(truth_.rows).subspan(first * world_.vocab_size() + at, rows.size())))
            << "scored call of " << n << " from " << first;
        scored_ += rows.size() / world_.vocab_size();
      });
      EXPECT_EQ(std::exchange(scored_, 0), n);
    }
    EXPECT_TRUE(same_bits(fork.logits(), row(fork.size()))) << "call of " << n << " from " << first;
  }

  std::shared_ptr<const Context> save_and_open(const Context& context) const {
    context.save(scratch_file_, {.flatten = true});
    return model_.open_context(scratch_file_);
  }

  void answer_alone(const Context& context) {
    const size_t n_shared = random_.one_in(2) ? context.size() : random_.between(1, context.size());
    Fork fork = context.fork_unchecked(n_shared);
    while (fork.size() < ids_.size()) step(fork, random_.between(1, ids_.size() - fork.size()));
    expect_equal(generate(fork, options_), truth_.answer, "alone");
  }

  void answer_in_batch(const Context& context) {
    std::vector<BatchRequest> requests;
    std::vector<Generation> truths;
    const size_t n_requests = random_.between(1, 6);
    const size_t own_place = random_.between(0, n_requests - 1);
    for (size_t i = 0; i < n_requests; ++i) {
      Ids ids = ids_;
      size_t n_cached = context.size();
      GenerateOptions options = options_;
      if (i != own_place) {
        n_cached = random_.one_in(2) ? context.size() : random_.between(1, context.size());
        ids.resize(n_cached);
        const size_t least = n_cached == context.size() ? 0 : 1;
        const size_t room = world_.room() - n_cached;
        const Ids own = random_.ids(random_.between(least, std::min<size_t>(room, random_.one_in(5) ? 80 : 9)),
                                    world_.vocab_size());
        ids.insert(ids.end(), own.begin(), own.end());
        options = random_.options();
      }
      truths.push_back(i == own_place ? truth_.answer : find_truth(world_.plain(), ids, options).answer);
      requests.push_back({.request = Request::unchecked(std::move(ids), n_cached), .options = std::move(options)});
    }
    size_t n_answers = 0;
    answer_all(context, requests, {.max_width = random_.between(1, n_requests)},
               {.on_answer = [&](size_t index, const BatchAnswer& answer) {
                 ++n_answers;
                 ASSERT_FALSE(answer.error) << answer.error->what();
                 expect_equal(answer.generation, truths.at(index), "in a batch");
               }});
    EXPECT_EQ(n_answers, n_requests);
  }

  const World& world_;
  Random random_;
  const Model& model_;
  const std::string& scratch_file_;
  Ids ids_;
  GenerateOptions options_;
  Truth truth_;
  size_t scored_ = 0;  // rows of the scored call at hand
  const bool disturbs_ = number_from("KVFORK_PROPERTY_DISTURB", 0) != 0;
};

// Calls run(seed) for as many cases as are asked for, in the time that is allowed, until one has failed. Returns
// how many there were.
template <class Run>
uint64_t for_cases(uint64_t usual_number, const Run& run) {
  const uint64_t n_cases = number_from("KVFORK_PROPERTY_CASES", usual_number);
  const uint64_t first_seed = number_from("KVFORK_PROPERTY_SEED", 1);
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(number_from("KVFORK_PROPERTY_SECONDS", 1'000'000));
  uint64_t seed = first_seed;
  for (; seed < first_seed + n_cases && std::chrono::steady_clock::now() < end; ++seed) {
    run(seed);
    if (testing::Test::HasFailure()) break;
  }
  return seed - first_seed;
}

// A folder for saved contexts, and for what is remembered of weight files.
class PropertyFolder {
 public:
  PropertyFolder() { ::setenv("XDG_CACHE_HOME", (dir_.path() / "cache").c_str(), 1); }
  const test::TempDir& dir() const { return dir_; }
  void run(const World& world, uint64_t seed) const {
    SCOPED_TRACE(world.name + ", KVFORK_PROPERTY_SEED=" + std::to_string(seed) + " KVFORK_PROPERTY_CASES=1");
    Case(world, seed, scratch_file_).run();
  }

 private:
  test::TempDir dir_;
  std::string scratch_file_ = (dir_.path() / "context").string();
};

TEST(Property, SplitsNestsBatchesSeedsAndThreadsChangeNoBit) {
  const PropertyFolder folder;
  const std::vector<World> worlds = make_worlds(folder.dir());
  const uint64_t n_run = for_cases(600, [&](uint64_t seed) { folder.run(worlds[seed % worlds.size()], seed); });
  std::printf("%llu cases, %zu comparisons, %zu calls left by a throw\n", static_cast<unsigned long long>(n_run),
              n_comparisons, n_disturbances);
}

TEST(Property, AnyTimelineOfAnyFamilyHasTheBitsOfOneCall) {
  const auto folders = find_families();
  const auto setups = chosen_setups();
  ASSERT_GT(folders.size(), 50u);
  ASSERT_FALSE(setups.empty());
  const PropertyFolder folder;
  uint64_t n_run = 0;
  for_cases(300, [&](uint64_t seed) {
    const auto world = open_family(folders[seed % folders.size()], setups[seed / folders.size() % setups.size()]);
    if (!world) return;
    folder.run(*world, seed);
    ++n_run;
  });
  std::printf("%llu cases, %zu comparisons\n", static_cast<unsigned long long>(n_run), n_comparisons);
  const uint64_t n_cases = number_from("KVFORK_PROPERTY_CASES", 300);
  if (!HasFailure() && n_cases >= folders.size()) {
    EXPECT_GT(n_run, n_cases / 2);
  }
}

}  // namespace
}  // namespace kvfork
