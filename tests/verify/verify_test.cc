// The checklist: a sound model passes all of it, and each planted fault fails exactly the check that is for it.

#include "kvfork/verify.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "engine/context_state.h"
#include "kvfork/error.h"
#include "kvfork/text.h"
#include "tests/support/each_setup.h"
#include "tests/support/temp_dir.h"
#include "verify/checks.h"

namespace kvfork {
namespace {

using checks::Ids;
using checks::VerifySubject;
using Names = std::set<std::string>;

const std::string kCheckpoint = std::string(KVFORK_SOURCE_DIR) + "/tests/golden/checkpoints/qwen2-bf16-tied";
const char* const kContext =
    "You answer questions about orders of tents, stoves and sleeping bags. Be brief, and never guess.";
const char* const kLongPrompt =
    "This one is longer than what the batch check takes, so that a fault which it alone meets is seen by no other "
    "check: "
    "the tent came after nine days, but one pole was bent, and the bag for the pegs was torn. What can I do?";
const std::vector<std::string> kPrompts = {"Hi", "What do I need?", "12345 67.89", kLongPrompt};

std::shared_ptr<const Model> shared_model() {
  static const auto model = Model::open(kCheckpoint, {.n_threads = 1});
  return model;
}

// Flips one bit of the context's memory, sealed as it is.
void flip_bit(const Context& context, size_t block, size_t byte_of_value = 2, std::byte mask = std::byte{0x40}) {
  const model::KvPrefix& kv = *engine::state_of(context).kv;
  auto* byte = const_cast<std::byte*>(kv.block(block).value(kv.layout(), 0, 0)) + byte_of_value;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto* start = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(byte) / page * page);
  ASSERT_EQ(::mprotect(start, page, PROT_READ | PROT_WRITE), 0);
  *byte ^= mask;
  ASSERT_EQ(::mprotect(start, page, PROT_READ), 0);
}

class Verify : public testing::Test {
 protected:
  Verify() : model_(shared_model()), prompter_(model_->shared_text(), model_->text().chat_template(), fixed()) {
    options_.prompts = kPrompts;
    options_.directory = dir_.path();
  }

  static FixedPart fixed() { return FixedPart::from_system_message(kContext); }

  template <typename Subject>
  std::vector<VerifyCheck> run(Subject& subject) {
    const Prompt prompt = prompter_.make_context(BoundaryMode::Message);
    context_ = model_->prefill(prompt.ids, {}, prompter_.make_origin(BoundaryMode::Message, prompt));
    if (damage_) damage_(*context_);
    return checks::Checks(subject, prompt.ids, context_, options_).run();
  }

  // Runs the checklist on a subject with a fault; `check` must fail, and no other.
  template <typename Subject, typename... Args>
  std::string expect_only(const std::string& check, Args&&... args) {
    Subject subject(model_, prompter_, BoundaryMode::Message, std::forward<Args>(args)...);
    std::string detail;
    for (const VerifyCheck& result : run(subject)) {
      EXPECT_FALSE(result.detail.empty()) << result.name;
      if (result.name == check) {
        EXPECT_EQ(result.pass, std::optional(false)) << result.name << ": " << result.detail;
        detail = result.detail;
      } else {
        EXPECT_EQ(result.pass, std::optional(true)) << result.name << ": " << result.detail;
      }
    }
    return detail;
  }

  static Names failed(const std::vector<VerifyCheck>& checks) {
    Names names;
    for (const VerifyCheck& check : checks) {
      if (!check.pass.value_or(true)) names.insert(check.name);
    }
    return names;
  }

  test::TempDir dir_;
  std::shared_ptr<const Model> model_;
  Prompter prompter_;
  VerifyOptions options_;
  std::shared_ptr<const Context> context_;
  std::function<void(const Context&)> damage_;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(Verify, ASoundModelPassesEverythingInEverySetup) {
  const std::vector<std::string> names = {"boundary",   "parity",    "logit_bits", "empty",
                                          "whitespace", "isolation", "limit",      "fork_cost",
                                          "batch",      "sampling",  "save_open",  "refusal"};
  options_.prompts.clear();
  for (const auto& setup : test::each_setup()) {
    SCOPED_TRACE(setup.name());
    const auto model = Model::open(kCheckpoint, setup.options(2));
    const Prompter prompter(model->shared_text(), model->text().chat_template(), fixed());
    std::vector<std::string> seen;
    options_.on_check = [&](const VerifyCheck& check) { seen.push_back(check.name); };
    const VerifyReport report = verify(model, prompter, BoundaryMode::Message, nullptr, options_);
    EXPECT_TRUE(report.pass);
    EXPECT_EQ(seen, names);
    EXPECT_GT(report.n_context_tokens, 10u);
    for (const VerifyCheck& check : report.checks) {
      EXPECT_EQ(check.pass, std::optional(true)) << check.name << ": " << check.detail;
      EXPECT_FALSE(check.detail.empty()) << check.name;
    }
  }
}

TEST_F(Verify, EveryBoundaryModeAndPlainTextPass) {
  for (const BoundaryMode mode : {BoundaryMode::Message, BoundaryMode::Probe, BoundaryMode::Longest}) {
    SCOPED_TRACE(boundary_mode_name(mode));
    for (const VerifyCheck& check : verify(model_, prompter_, mode, nullptr, options_).checks)
      EXPECT_EQ(check.pass, std::optional(true)) << check.name << ": " << check.detail;
  }
  FixedPart raw;
  raw.raw_text = "Once upon a time there was a tent.";
  const Prompter plain(model_->shared_text(), model_->text().chat_template(), raw);
  options_.prompts = {" It was red", " Its owner said: hello"};
  const auto context = model_->prefill(plain.make_context(BoundaryMode::Message).ids);
  for (const VerifyCheck& check : verify(model_, plain, BoundaryMode::Message, context, options_).checks)
    EXPECT_NE(check.pass, std::optional(false)) << check.name << ": " << check.detail;
}

TEST_F(Verify, ATemplateThatBreaksTheBoundaryForSomePromptsFailsBoundaryAlone) {
  const std::string source = model_->text().chat_template().source(ChatTemplate::Tools::Absent);
  // Once a question holds a 7, the system message is rendered in another way.
  const std::string breaking =
      "{% if '7' in messages[-1].content %}<|im_start|>system\nseven<|im_end|>{% endif %}" + source;
  const Prompter prompter(model_->shared_text(), model_->text().chat_template().with_source(breaking), fixed());
  const VerifyReport report = verify(model_, prompter, BoundaryMode::Message, nullptr, options_);
  EXPECT_FALSE(report.pass);
  EXPECT_EQ(failed(report.checks), Names{"boundary"});
  EXPECT_TRUE(contains(report.checks[0].detail, "position ")) << report.checks[0].detail;
  EXPECT_TRUE(contains(report.checks[0].detail, "id ")) << report.checks[0].detail;
}

TEST_F(Verify, ATemplateThatAlwaysBreaksTheBoundaryLeavesTheRestNotRun) {
  const std::string breaking = "{{ messages|length }}{% for m in messages %}{{ m.content }}{% endfor %}";
  const Prompter prompter(model_->shared_text(), model_->text().chat_template().with_source(breaking), fixed());
  const VerifyReport report = verify(model_, prompter, BoundaryMode::Message, nullptr, options_);
  EXPECT_FALSE(report.pass);
  EXPECT_EQ(failed(report.checks), Names{"boundary"});
  for (size_t i = 1; i < report.checks.size(); ++i) {
    EXPECT_EQ(report.checks[i].pass, std::nullopt) << report.checks[i].name;
    EXPECT_TRUE(contains(report.checks[i].detail, "not run")) << report.checks[i].detail;
  }
}

TEST_F(Verify, PromptsThatAreNoTextAreRefused) {
  options_.prompts = {"fine", "not \xFF fine"};
  try {
    verify(model_, prompter_, BoundaryMode::Message, nullptr, options_);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::InvalidArgument);
  }
}

TEST_F(Verify, PromptsBeyondTheLimitAreSaidToLeaveNoRoom) {
  options_.prompts = {std::string(20000, 'x')};
  const VerifyReport report = verify(model_, prompter_, BoundaryMode::Message, nullptr, options_);
  EXPECT_EQ(report.checks[0].pass, std::optional(true));
  EXPECT_EQ(report.checks[1].pass, std::nullopt);
}

TEST_F(Verify, ACopiedContextHasTheSameBitsInOtherMemory) {
  const auto context = model_->prefill(prompter_.make_context(BoundaryMode::Message).ids);
  const auto copy = copy_context(*context);
  EXPECT_EQ(copy->hash(), context->hash());
  EXPECT_NE(engine::state_of(*copy).kv->block(0).base, engine::state_of(*context).kv->block(0).base);
  const std::string hash = context->hash();
  flip_bit(*copy, 0);
  EXPECT_NE(copy->hash(), hash);
  EXPECT_EQ(context->hash(), hash);
}

// Faults. Each class breaks one step.

struct MergesAcrossTheJoin : VerifySubject {
  using VerifySubject::VerifySubject;
  Prompt make_request(std::string_view text) override {
    Prompt prompt = VerifySubject::make_request(text);
    if (text.starts_with("\n")) {
      const size_t n = prompter().make_context(mode()).ids.size();
      prompt.ids[n - 1] += 1;
      prompt.ids.erase(prompt.ids.begin() + static_cast<ptrdiff_t>(n));
    }
    return prompt;
  }
};

TEST_F(Verify, ATokenizerThatMergesAcrossTheJoinFailsBoundary) {
  options_.prompts.push_back("\nbegins with a newline");
  const std::string detail = expect_only<MergesAcrossTheJoin>("boundary");
  const size_t n = prompter_.make_context(BoundaryMode::Message).ids.size();
  EXPECT_TRUE(contains(detail, "position " + std::to_string(n - 1))) << detail;
}

// Breaks the answer to one prompt.
struct BreaksAnswer : VerifySubject {
  using Break = std::function<void(Generation&)>;
  BreaksAnswer(std::shared_ptr<const Model> model, const Prompter& prompter, BoundaryMode mode, std::string text,
               Break broken)
      : VerifySubject(std::move(model), prompter, mode),
        ids_(prompter.make_request(text).ids),
        break_(std::move(broken)) {}
  Generation answer(const Context& context, size_t n_cached, Ids request, const GenerateOptions& options) override {
    Generation generation = VerifySubject::answer(context, n_cached, request, options);
    if (std::ranges::equal(request, ids_)) break_(generation);
    return generation;
  }

 private:
  std::vector<int32_t> ids_;
  Break break_;
};

void change_id(Generation& generation) {
  generation.ids.back() ^= 1;
}
void change_logits(Generation& generation) {
  generation.logit_fingerprints.back() ^= 1;
}

TEST_F(Verify, AnotherIdFailsParity) {
  EXPECT_TRUE(contains(expect_only<BreaksAnswer>("parity", kLongPrompt, change_id), "This one is longer"));
}

TEST_F(Verify, AnAnswerCutShortFailsParity) {
  expect_only<BreaksAnswer>("parity", kLongPrompt, [](Generation& generation) { generation.ids.pop_back(); });
}

TEST_F(Verify, AnotherLogitBitFailsLogitBits) {
  expect_only<BreaksAnswer>("logit_bits", kLongPrompt, change_logits);
}

TEST_F(Verify, AnotherAnswerToAnEmptyRequestFailsEmpty) {
  expect_only<BreaksAnswer>("empty", "", change_id);
  expect_only<BreaksAnswer>("empty", "", change_logits);
}

TEST_F(Verify, AnotherAnswerToWhitespaceFailsWhitespace) {
  expect_only<BreaksAnswer>("whitespace", "\n", change_id);
  expect_only<BreaksAnswer>("whitespace", " \t\n  \n", change_logits);
}

TEST_F(Verify, AFlippedKvBitFailsWhatIsComparedWithTheUncachedPath) {
  damage_ = [](const Context& context) { flip_bit(context, 0); };
  VerifySubject subject(model_, prompter_, BoundaryMode::Message);
  const Names names = failed(run(subject));
  EXPECT_TRUE(names.contains("logit_bits"));
  for (const std::string& name : names)
    EXPECT_TRUE((Names{"parity", "logit_bits", "empty", "whitespace", "isolation", "sampling"}.contains(name)))
        << name;
}

// One bit low in one value, as it looks to one request: the ids are the same, and only the logits show it.
struct FlipsAKvBit : VerifySubject {
  using VerifySubject::VerifySubject;
  Generation answer(const Context& context, size_t n_cached, Ids request, const GenerateOptions& options) override {
    if (!std::ranges::equal(request, ids_)) return VerifySubject::answer(context, n_cached, request, options);
    const auto damaged = copy_context(context);
    flip_bit(*damaged, 0, 1, std::byte{0x08});
    return VerifySubject::answer(*damaged, n_cached, request, options);
  }
  std::vector<int32_t> ids_ = prompter().make_request(kLongPrompt).ids;
};

TEST_F(Verify, OneKvBitThatChangesNoIdFailsLogitBits) {
  EXPECT_TRUE(contains(expect_only<FlipsAKvBit>("logit_bits"), "This one is longer"));
}

// From some token of the context on all positions are one too low when the last id of one answer is picked. The
// token is one without which the id is the same, so that only the logits show it.
struct WrongPosition : VerifySubject {
  using VerifySubject::VerifySubject;
  Generation answer(const Context& context, size_t n_cached, Ids request, const GenerateOptions& options) override {
    Generation right = VerifySubject::answer(context, n_cached, request, options);
    if (!std::ranges::equal(request, ids_)) return right;
    GenerateOptions last = options;
    last.max_new_tokens = 1;
    for (size_t lost = n_cached - 1; lost > 0; --lost) {
      Fork shifted = fork(context, lost);
      append(shifted, request.subspan(lost + 1));
      append(shifted, Ids(right.ids).first(right.ids.size() - 1));
      const Generation wrong = generate(shifted, last, {});
      if (wrong.ids[0] != right.ids.back()) continue;
      right.logit_fingerprints.back() = wrong.logit_fingerprints[0];
      return right;
    }
    ADD_FAILURE() << "no token of the context can be lost without another id";
    return right;
  }
  std::vector<int32_t> ids_ = prompter().make_request(kLongPrompt).ids;
};

TEST_F(Verify, AWrongPositionFailsLogitBits) {
  EXPECT_TRUE(contains(expect_only<WrongPosition>("logit_bits"), "This one is longer"));
}

// Two forks that are alive at once share their tail: what one appends shows up in the other.
struct SharedTail : VerifySubject {
  using VerifySubject::VerifySubject;
  void append(Fork& fork, Ids ids) override {
    if (last_ != nullptr && last_ != &fork && !fork.own_ids().empty()) VerifySubject::append(fork, {&last_id_, 1});
    VerifySubject::append(fork, ids);
    last_ = &fork;
    last_id_ = ids.empty() ? 0 : ids.back();
  }
  const Fork* last_ = nullptr;
  int32_t last_id_ = 0;
};

TEST_F(Verify, ATailSharedByTwoForksFailsIsolation) {
  EXPECT_TRUE(contains(expect_only<SharedTail>("isolation"), "beside another fork"));
}

// What the request with the marker wrote last is still there for the one that follows it.
struct StaleBlock : VerifySubject {
  using VerifySubject::VerifySubject;
  Generation answer(const Context& context, size_t n_cached, Ids request, const GenerateOptions& options) override {
    Fork forked = fork(context, n_cached);
    if (was_marked_) append(forked, marked_.subspan(marked_.size() - 3));
    append(forked, request.subspan(n_cached));
    was_marked_ = std::ranges::equal(request, marked_);
    return generate(forked, options, {});
  }
  std::vector<int32_t> ids_ = prompter().make_request(checks::kMarkerPrompt).ids;
  Ids marked_ = ids_;
  bool was_marked_ = false;
};

TEST_F(Verify, AStaleBlockOfTheMarkedRequestFailsIsolation) {
  expect_only<StaleBlock>("isolation");
}

// A request writes into the context that it was forked from.
struct WritesToContext : VerifySubject {
  using VerifySubject::VerifySubject;
  std::shared_ptr<const Context> prefill(Ids ids) override {
    second_ = VerifySubject::prefill(ids);
    return second_;
  }
  Generation answer(const Context& context, size_t n_cached, Ids request, const GenerateOptions& options) override {
    Generation generation = VerifySubject::answer(context, n_cached, request, options);
    if (&context == second_.get()) flip_bit(context, 0);
    return generation;
  }
  std::shared_ptr<const Context> second_;
};

TEST_F(Verify, ARequestThatWritesToItsContextFailsIsolation) {
  expect_only<WritesToContext>("isolation");
}

struct AllowsOneTokenMore : VerifySubject {
  using VerifySubject::VerifySubject;
  Generation generate(Fork& fork, const GenerateOptions& options,
                      const std::function<bool(int32_t)>& on_token) override {
    GenerateOptions fewer = options;
    const size_t limit = model().info().max_position_embeddings;
    if (fork.size() + options.max_new_tokens == limit + 1) --fewer.max_new_tokens;
    return VerifySubject::generate(fork, fewer, on_token);
  }
};

struct AllowsOneTokenLess : VerifySubject {
  using VerifySubject::VerifySubject;
  Generation generate(Fork& fork, const GenerateOptions& options,
                      const std::function<bool(int32_t)>& on_token) override {
    if (fork.size() + options.max_new_tokens >= model().info().max_position_embeddings)
      throw Error(ErrorCode::Limit, "context limit: one less");
    return VerifySubject::generate(fork, options, on_token);
  }
};

struct RefusesAfterWork : VerifySubject {
  using VerifySubject::VerifySubject;
  Generation generate(Fork& fork, const GenerateOptions& options,
                      const std::function<bool(int32_t)>& on_token) override {
    const int32_t id = 5;
    if (fork.size() + options.max_new_tokens > model().info().max_position_embeddings) fork.append({&id, 1});
    return VerifySubject::generate(fork, options, on_token);
  }
};

struct DropsTheTokenBeyondTheLimit : VerifySubject {
  using VerifySubject::VerifySubject;
  void append(Fork& fork, Ids ids) override {
    if (fork.size() + ids.size() <= model().info().max_position_embeddings) VerifySubject::append(fork, ids);
  }
};

TEST_F(Verify, ALimitThatIsOffByOneFailsLimit) {
  EXPECT_TRUE(contains(expect_only<AllowsOneTokenMore>("limit"), "2049 tokens"));
  EXPECT_TRUE(contains(expect_only<AllowsOneTokenLess>("limit"), "2048 tokens"));
  EXPECT_TRUE(contains(expect_only<RefusesAfterWork>("limit"), "after work"));
  EXPECT_TRUE(contains(expect_only<DropsTheTokenBeyondTheLimit>("limit"), "one token more"));
}

struct CopiesTheContext : VerifySubject {
  using VerifySubject::VerifySubject;
  Fork fork(const Context& context, size_t n_tokens) override {
    return copy_context(context)->fork_unchecked(n_tokens);
  }
};

// Fast to fork, but each fork comes to hold a copy of the context.
struct HoldsTheContext : VerifySubject {
  using VerifySubject::VerifySubject;
  void append(Fork& fork, Ids ids) override {
    VerifySubject::append(fork, ids);
    copies_.push_back(copy_context(*fork.context()));
  }
  std::vector<std::shared_ptr<const Context>> copies_;
};

TEST_F(Verify, AForkThatCopiesItsContextFailsForkCost) {
  EXPECT_TRUE(contains(expect_only<CopiesTheContext>("fork_cost"), "grows with the context"));
  EXPECT_TRUE(contains(expect_only<HoldsTheContext>("fork_cost"), "memory grows"));
}

struct MixesRows : VerifySubject {
  using VerifySubject::VerifySubject;
  std::vector<BatchAnswer> answer_all(const Context& context, std::span<const BatchRequest> requests,
                                      size_t width) override {
    auto answers = VerifySubject::answer_all(context, requests, width);
    if (width == 13) std::swap(answers[4], answers[5]);
    return answers;
  }
};

struct ChangesABitInCompany : VerifySubject {
  using VerifySubject::VerifySubject;
  std::vector<BatchAnswer> answer_all(const Context& context, std::span<const BatchRequest> requests,
                                      size_t width) override {
    auto answers = VerifySubject::answer_all(context, requests, width);
    if (width == 16) answers.back().generation.logit_fingerprints.back() ^= 1;
    return answers;
  }
};

struct LosesARequest : VerifySubject {
  using VerifySubject::VerifySubject;
  std::vector<BatchAnswer> answer_all(const Context& context, std::span<const BatchRequest> requests,
                                      size_t width) override {
    auto answers = VerifySubject::answer_all(context, requests, width);
    if (width == 1 && requests.size() == 2) answers.back() = {};
    return answers;
  }
};

TEST_F(Verify, ABatchThatMixesRowsFailsBatch) {
  EXPECT_TRUE(contains(expect_only<MixesRows>("batch"), "width 13"));
  EXPECT_TRUE(contains(expect_only<ChangesABitInCompany>("batch"), "width 16"));
  EXPECT_TRUE(contains(expect_only<LosesARequest>("batch"), "width 1"));
}

// Draws with the seed that make_seed makes of the one asked for, on the paths named.
struct ChangesSeed : VerifySubject {
  enum Paths { kCached = 1, kUncached = 2, kBatched = 4, kAll = 7 };
  ChangesSeed(std::shared_ptr<const Model> model, const Prompter& prompter, BoundaryMode mode, int paths,
              std::function<uint64_t(uint64_t)> make_seed)
      : VerifySubject(std::move(model), prompter, mode), paths_(paths), make_seed_(std::move(make_seed)) {}

  Generation answer(const Context& context, size_t n_cached, Ids request, const GenerateOptions& options) override {
    return VerifySubject::answer(context, n_cached, request, changed(options, kCached));
  }
  Generation answer_uncached(Ids request, const GenerateOptions& options) override {
    return VerifySubject::answer_uncached(request, changed(options, kUncached));
  }
  std::vector<BatchAnswer> answer_all(const Context& context, std::span<const BatchRequest> requests,
                                      size_t width) override {
    std::vector<BatchRequest> other(requests.begin(), requests.end());
    for (BatchRequest& request : other) request.options = changed(request.options, kBatched);
    return VerifySubject::answer_all(context, other, width);
  }

 private:
  GenerateOptions changed(GenerateOptions options, Paths path) {
    if ((paths_ & path) != 0) options.sampling.seed = make_seed_(options.sampling.seed);
    return options;
  }
  int paths_;
  std::function<uint64_t(uint64_t)> make_seed_;
};

TEST_F(Verify, ASamplerThatIgnoresOrChangesItsSeedFailsSampling) {
  const auto ignore = [](uint64_t) { return uint64_t{0}; };
  EXPECT_TRUE(contains(expect_only<ChangesSeed>("sampling", ChangesSeed::kAll, ignore), "draw the same ids"));
  EXPECT_TRUE(contains(expect_only<ChangesSeed>("sampling", ChangesSeed::kUncached, ignore), "uncached"));
  EXPECT_TRUE(contains(expect_only<ChangesSeed>("sampling", ChangesSeed::kBatched, ignore), "in a batch"));
  uint64_t count = 0;
  const auto advance = [&count](uint64_t seed) { return seed + ++count; };
  EXPECT_TRUE(contains(expect_only<ChangesSeed>("sampling", ChangesSeed::kCached, advance), "drawn again"));
}

struct LosesABlock : VerifySubject {
  using VerifySubject::VerifySubject;
  std::shared_ptr<const Context> open(const std::string& path) override {
    auto opened = copy_context(*VerifySubject::open(path));
    flip_bit(*opened, engine::state_of(*opened).kv->n_blocks() - 1);
    return opened;
  }
};

struct CutsTheFile : VerifySubject {
  using VerifySubject::VerifySubject;
  void save(const Context& context, const std::string& path) override {
    VerifySubject::save(context, path);
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  }
};

struct OpensAnything : VerifySubject {
  using VerifySubject::VerifySubject;
  std::shared_ptr<const Context> open(const std::string& path) override {
    try {
      auto opened = VerifySubject::open(path);
      opened->check();
      good_ = opened;
    } catch (const Error&) {
    }
    return good_;
  }
  std::shared_ptr<const Context> good_;
};

struct ForgetsAnId : VerifySubject {
  using VerifySubject::VerifySubject;
  void save(const Context& context, const std::string& path) override {
    model().prefill(context.ids().first(context.size() - 1))->save(path);
  }
};

TEST_F(Verify, ASaveThatLosesSomethingFailsSaveOpen) {
  EXPECT_TRUE(contains(expect_only<LosesABlock>("save_open"), "keys and values"));
  expect_only<CutsTheFile>("save_open");
  EXPECT_TRUE(contains(expect_only<OpensAnything>("save_open"), "one bit flipped"));
  EXPECT_TRUE(contains(expect_only<ForgetsAnId>("save_open"), "token ids"));
}

TEST_F(Verify, ADirectoryThatCannotBeWrittenToIsNoFailure) {
  options_.directory = "/proc/nothing-here";
  VerifySubject subject(model_, prompter_, BoundaryMode::Message);
  for (const VerifyCheck& check : run(subject)) {
    EXPECT_EQ(check.pass, check.name == "save_open" ? std::nullopt : std::optional(true))
        << check.name << ": " << check.detail;
  }
}

struct ServesAnything : VerifySubject {
  using VerifySubject::VerifySubject;
  size_t count_cached(Ids context, Ids, BoundaryMode) override { return context.size(); }
};

struct ComparesTheFirstIdOnly : VerifySubject {
  using VerifySubject::VerifySubject;
  size_t count_cached(Ids context, Ids request, BoundaryMode mode) override {
    return VerifySubject::count_cached(context.first(1), request, mode) - 1 + context.size();
  }
};

struct SaysNothing : VerifySubject {
  using VerifySubject::VerifySubject;
  size_t count_cached(Ids context, Ids request, BoundaryMode mode) override {
    try {
      return VerifySubject::count_cached(context, request, mode);
    } catch (const Error& error) {
      throw Error(error.code(), "boundary: no");
    }
  }
};

struct BatchServesAnything : VerifySubject {
  using VerifySubject::VerifySubject;
  std::vector<BatchAnswer> answer_all(const Context& context, std::span<const BatchRequest> requests,
                                      size_t width) override {
    std::vector<BatchRequest> other(requests.begin(), requests.end());
    for (auto& [request, options] : other) {
      std::vector<int32_t> ids = request.ids();
      std::copy_n(context.ids().begin(), request.n_cached(), ids.begin());
      request = Request::unchecked(std::move(ids), request.n_cached());
    }
    return VerifySubject::answer_all(context, other, width);
  }
};

TEST_F(Verify, ARequestOfAnotherContextThatIsServedFailsRefusal) {
  expect_only<ServesAnything>("refusal");
  EXPECT_TRUE(contains(expect_only<ComparesTheFirstIdOnly>("refusal"), "not refused"));
  EXPECT_TRUE(contains(expect_only<SaysNothing>("refusal"), "does not name position"));
  EXPECT_TRUE(contains(expect_only<BatchServesAnything>("refusal"), "batch"));
}

TEST_F(Verify, AStepThatThrowsFailsItsCheck) {
  struct Throws : VerifySubject {
    using VerifySubject::VerifySubject;
    std::shared_ptr<const Context> prefill(Ids) override { throw Error(ErrorCode::Corrupt, "planted: a fault"); }
  };
  EXPECT_TRUE(contains(expect_only<Throws>("isolation"), "planted: a fault"));
}

}  // namespace
}  // namespace kvfork
