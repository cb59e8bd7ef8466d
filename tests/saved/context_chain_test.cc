// The parents of saved contexts: a file that cannot be used hides none that can, and a wrong parent is never taken.

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "engine/context_state.h"
#include "kvfork/context.h"
#include "kvfork/error.h"
#include "kvfork/fork.h"
#include "kvfork/inspect.h"
#include "kvfork/model.h"
#include "tests/support/fit_checksums.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace kvfork {
namespace {

namespace fs = std::filesystem;

// Of the data, which keys come first in.
constexpr size_t kInKeys = 100;

double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class ContextChain : public testing::Test {
 protected:
  ContextChain() {
    ::setenv("XDG_CACHE_HOME", (dir_.path() / "cache").c_str(), 1);
    fs::create_directory(dir_.path() / "model");
    test::write_tiny_model(dir_.path() / "model", shape_);
    model_ = Model::open(dir_.path() / "model", {.n_threads = 1});
    fs::create_directory(dir_.path() / "saved");
    // Each is opened again, so that the next names its file.
    policy_id_ = save(*model_->prefill(ids(140)), "policy");
    customer_id_ = save(*grown(*model_->open_context(file("policy")), 70), "customer");
    const auto question = grown(*model_->open_context(file("customer")), 64);
    save(*question, "question");
    hash_ = question->hash();
    sound_ = base::read_file(file("policy"));
  }

  std::string file(const std::string& name) const { return (dir_.path() / "saved" / name).string(); }

  std::vector<int32_t> ids(size_t n) const {
    std::mt19937 random(1);
    std::vector<int32_t> result(n);
    for (auto& id : result) id = static_cast<int32_t>(random() % shape_.vocab_size);
    return result;
  }

  std::shared_ptr<const Context> grown(const Context& context, size_t n_tokens) const {
    Fork fork = context.fork_unchecked();
    fork.append(ids(n_tokens));
    return std::move(fork).seal();
  }

  std::string save(const Context& context, const std::string& name, bool flatten = false) const {
    context.save(file(name), {.flatten = flatten});
    return context.id();
  }

  void write(const std::string& name, const std::string& content) const {
    fs::remove_all(file(name));
    std::ofstream(file(name), std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
  }

  static std::string with_damaged_keys(std::string content) {
    uint64_t n_header = 0;
    std::memcpy(&n_header, content.data(), sizeof n_header);
    content[8 + n_header + kInKeys] = static_cast<char>(content[8 + n_header + kInKeys] ^ 1);
    return content;
  }

  static std::string with_damaged_header(std::string content) {
    const size_t at = content.find("kvfork_version\":\"") + std::strlen("kvfork_version\":\"");
    content[at] = static_cast<char>(content[at] ^ 1);
    return content;
  }

  // Metadata exchanged for something as long, with checksums that fit.
  static std::string forged(std::string content, const std::string& from, const std::string& to) {
    const size_t at = content.find(from);
    if (at == std::string::npos || from.size() != to.size()) ADD_FAILURE() << "nothing to forge";
    content.replace(at, from.size(), to);
    test::fit_checksums(std::as_writable_bytes(std::span(content)));
    return content;
  }

  // What opening says, "" when it is done; inspecting the chain must say the same.
  std::string refusal(ErrorCode code, const std::string& name, const OpenContextOptions& options = {}) const {
    std::string message;
    try {
      model_->open_context(file(name), options);
    } catch (const Error& error) {
      EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
      message = error.what();
    }
    const auto ancestors = inspect_ancestors(file(name), options.parent);
    const auto problem = ancestors.empty() ? std::nullopt : ancestors.back().problem;
    EXPECT_EQ(message, problem ? problem->what() : "");
    if (problem) {
      EXPECT_EQ(static_cast<int>(problem->code()), static_cast<int>(code));
    }
    return message;
  }

  void expect_says(const std::string& message, const std::vector<std::string>& parts) const {
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }

  struct Harm {
    const char* what;
    std::function<void()> make;
    ErrorCode code;
    std::vector<std::string> said;
  };

  // What may have come to stand where the parent's file was.
  std::vector<Harm> harms() const {
    const std::string another = base::read_file(file("question"));
    const std::string weights = base::read_file(dir_.path() / "model" / "model.safetensors");
    const std::string path = file("policy");
    return {
        {"damaged keys",
         [this] { write("policy", with_damaged_keys(sound_)); },
         ErrorCode::Corrupt,
         {path, "layers.0.k, block"}},
        {"a damaged header",
         [this] { write("policy", with_damaged_header(sound_)); },
         ErrorCode::Corrupt,
         {path, "header"}},
        {"cut", [this] { write("policy", sound_.substr(0, sound_.size() / 2)); }, ErrorCode::Corrupt, {path}},
        {"empty", [this] { write("policy", ""); }, ErrorCode::Corrupt, {path}},
        {"a text", [this] { write("policy", "Dear customer,\n"); }, ErrorCode::Corrupt, {path}},
        {"a model", [=, this] { write("policy", weights); }, ErrorCode::Corrupt, {path}},
        {"a folder",
         [=] { fs::remove_all(path), fs::create_directory(path); },
         ErrorCode::Io,
         {path, "regular file"}},
        {"another context",
         [=, this] { write("policy", another); },
         ErrorCode::InvalidArgument,
         {policy_id_, "once called policy, which is another context now"}},
        {"nothing",
         [=] { fs::remove_all(path); },
         ErrorCode::InvalidArgument,
         {policy_id_, "once called policy, found none"}},
    };
  }

  test::TinyModel shape_{.max_position_embeddings = 512};
  test::TempDir dir_;
  std::shared_ptr<const Model> model_;
  std::string policy_id_, customer_id_, hash_, sound_;
};

TEST_F(ContextChain, AFileThatCannotBeUsedHidesNoSoundOne) {
  for (const Harm& harm : harms()) {
    SCOPED_TRACE(harm.what);
    harm.make();
    for (const char* other : {"a copy", "z copy"}) {  // before it in the folder, and after it
      write(other, sound_);
      EXPECT_EQ(refusal(harm.code, "question"), "");
      const auto opened = model_->open_context(file("question"));
      EXPECT_EQ(opened->hash(), hash_);
      EXPECT_EQ(engine::state_of(*opened->parent()->parent()).storage->path(), file(other));
      fs::remove(file(other));
    }
  }
}

TEST_F(ContextChain, WhereNothingFitsTheFileWithTheParentsNameIsNamed) {
  for (const Harm& harm : harms()) {
    SCOPED_TRACE(harm.what);
    harm.make();
    for (const char* child : {"customer", "question"}) {
      const std::string message = refusal(harm.code, child);
      EXPECT_EQ(message.find(file("customer") + ": parent: "), 0u) << message;
      expect_says(message, harm.said);
      expect_says(message, {policy_id_, "found none"});
    }
  }
}

TEST_F(ContextChain, OneDamagedCopyHidesNoOtherAndIsNamedWhereThereIsNone) {
  fs::remove(file("policy"));
  write("a copy", with_damaged_keys(sound_));
  write("b copy", sound_);
  EXPECT_EQ(refusal(ErrorCode::Corrupt, "customer"), "");
  EXPECT_EQ(model_->open_context(file("question"))->hash(), hash_);
  fs::remove(file("b copy"));
  expect_says(refusal(ErrorCode::Corrupt, "customer"), {file("a copy"), "layers.0.k, block 0", policy_id_});
}

TEST_F(ContextChain, AParentWithoutItsOwnIsPassedOverForOneThatIsWhole) {
  save(*model_->open_context(file("customer")), "whole", /*flatten=*/true);
  fs::remove(file("policy"));
  const auto opened = model_->open_context(file("question"));
  EXPECT_EQ(opened->hash(), hash_);
  EXPECT_EQ(engine::state_of(*opened->parent()).storage->path(), file("whole"));
  EXPECT_EQ(refusal(ErrorCode::InvalidArgument, "question"), "");
  fs::remove(file("whole"));
  const std::string message = refusal(ErrorCode::InvalidArgument, "question");
  EXPECT_EQ(message.find(file("customer") + ": parent: expected a context file with the id " + policy_id_), 0u)
      << message;
}

TEST_F(ContextChain, AWrongParentIsRefused) {
  // Given: nothing else is looked for, though the right one is there.
  expect_says(refusal(ErrorCode::InvalidArgument, "question", {.parent = file("policy")}),
              {customer_id_, policy_id_, file("policy")});
  expect_says(refusal(ErrorCode::NotFound, "question", {.parent = file("absent")}), {file("absent")});
  write("copy", with_damaged_keys(base::read_file(file("customer"))));
  expect_says(refusal(ErrorCode::Corrupt, "question", {.parent = file("copy")}), {file("copy"), "layers.0.k"});
  fs::remove(file("copy"));
  // One that says that it is the parent, with checksums that fit: its id is not that of its ids.
  // The first differs in what the child takes from it, the second does not.
  for (const auto& [position, said] : {std::pair(3, ": its ids do not continue"), {139, ": id: it is not that"}}) {
    auto others = ids(140);
    others[static_cast<size_t>(position)] ^= 1;
    const std::string id = save(*model_->prefill(others), "policy");
    write("policy", forged(base::read_file(file("policy")), "\"id\":\"" + id, "\"id\":\"" + policy_id_));
    expect_says(refusal(ErrorCode::Corrupt, "question"), {file("policy"), said});
  }
  write("copy", sound_);
  EXPECT_EQ(refusal(ErrorCode::Corrupt, "question"), "");
}

TEST_F(ContextChain, AContextThatNamesItselfIsRefused) {
  const std::string content = base::read_file(file("customer"));
  write("customer", forged(content, "\"parent_id\":\"" + policy_id_, "\"parent_id\":\"" + customer_id_));
  for (int i = 0; i < 3; ++i) fs::copy(file("customer"), file("copy" + std::to_string(i)));
  EXPECT_NE(refusal(ErrorCode::Corrupt, "customer"), "");
  EXPECT_NE(refusal(ErrorCode::Corrupt, "question"), "");
}

TEST_F(ContextChain, ParentsNeedNotBeCheckedAtOnce) {
  write("policy", with_damaged_keys(sound_));
  write("z copy", sound_);
  const auto opened = model_->open_context(file("question"), {.parent = "", .check_parents = false});
  EXPECT_EQ(engine::state_of(*opened->parent()->parent()).storage->path(), file("policy"));
  EXPECT_THROW(opened->fork_unchecked(), Error);
}

TEST_F(ContextChain, InspectionListsTheFilesThatOpeningTakes) {
  const auto sound = inspect_ancestors(file("question"));
  ASSERT_EQ(sound.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const std::string path = file(i == 0 ? "customer" : "policy");
    EXPECT_EQ(sound[i].id, i == 0 ? customer_id_ : policy_id_);
    EXPECT_EQ(sound[i].file, path);
    EXPECT_EQ(sound[i].file_bytes, fs::file_size(path));
    EXPECT_EQ(sound[i].n_tokens, i == 0 ? 210u : 140u);
    EXPECT_FALSE(sound[i].problem);
  }
  EXPECT_TRUE(inspect_ancestors(file("policy")).empty());
  // The one with a problem is the last; those before it are sound.
  for (const bool is_there : {true, false}) {
    is_there ? write("policy", with_damaged_keys(sound_)) : static_cast<void>(fs::remove(file("policy")));
    const auto found = inspect_ancestors(file("question"));
    ASSERT_EQ(found.size(), 2u);
    EXPECT_FALSE(found[0].problem);
    EXPECT_TRUE(found[1].problem);
    EXPECT_EQ(found[1].id, policy_id_);
    EXPECT_EQ(found[1].file, is_there ? file("policy") : "");
  }
  fs::create_directory(file("away"));
  write("away/policy", sound_);
  EXPECT_EQ(refusal(ErrorCode::InvalidArgument, "customer", {.parent = file("away/policy")}), "");
}

// Files whose children do not know their names: every one is looked for among all.
TEST_F(ContextChain, LookingForParentsCostsWhatTheirFilesDo) {
  const auto seconds_of = [this](const std::string& folder, size_t depth) {
    fs::create_directory(file(folder));
    auto context = model_->prefill(ids(66));
    for (int32_t i = 0; i < static_cast<int32_t>(depth); ++i) {
      Fork fork = context->fork_unchecked(65);
      fork.append(std::vector<int32_t>{i % 50, i / 50});
      context->save(file(folder + "/" + std::to_string(i)));
      context = std::move(fork).seal();
    }
    context->save(file(folder + "/child"));
    double least = 1e9;
    for (int i = 0; i < 3; ++i) {  // the least of several, of processor time: the machine has other work
      const double start = thread_seconds();
      const auto opened = model_->open_context(file(folder + "/child"), {.check_parents = false});
      least = std::min(least, thread_seconds() - start);
      EXPECT_EQ(opened->id(), context->id());
    }
    return least;
  };
  const double few = seconds_of("few", 40);
  EXPECT_LT(seconds_of("many", 240), 15 * few);  // in proportion 6, one search for each 36
}

TEST_F(ContextChain, TheIdOfTheFileItselfIsCheckedToo) {
  write("policy", forged(sound_, "\"id\":\"" + policy_id_, "\"id\":\"" + std::string(64, 'a')));
  EXPECT_THROW(inspect_context(file("policy"), ContextCheck::All), Error);
}

}  // namespace
}  // namespace kvfork
