// Saved contexts: the bits of one that was never saved, and a refusal for everything that could change them.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <vector>

#include "base/checksum.h"
#include "base/mapped_file.h"
#include "engine/context_state.h"
#include "kvfork/context.h"
#include "kvfork/error.h"
#include "kvfork/fork.h"
#include "kvfork/identity.h"
#include "kvfork/model.h"
#include "tests/support/each_setup.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace kvfork {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string read(const fs::path& path) {
  return base::read_file(path);
}

void write(const fs::path& path, const std::string& content) {
  fs::remove(path);  // a new inode: an open mapping of the old file keeps what it had
  std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
}

uint64_t header_bytes(const std::string& file) {
  uint64_t n = 0;
  std::memcpy(&n, file.data(), 8);
  return 8 + n;
}

Json header_of(const std::string& file) {
  return Json::parse(file.substr(8, header_bytes(file) - 8));
}

// The file with one metadata entry changed and checksums that fit.
std::string with_metadata(const std::string& file, const std::string& key, const std::string& value) {
  Json header = header_of(file);
  header["__metadata__"][key] = value;
  std::string text = header.dump();
  text.append(4096 - (text.size() + 8) % 4096, ' ');
  std::string result(8, '\0');
  const uint64_t n = text.size();
  std::memcpy(result.data(), &n, 8);
  result += text;
  const size_t data = result.size();
  result += file.substr(header_bytes(file));
  const auto range = header["checksums"]["data_offsets"].get<std::vector<size_t>>();
  std::vector<uint64_t> table((range[1] - range[0]) / 8);
  std::memcpy(table.data(), result.data() + data + range[0], range[1] - range[0]);
  table[0] = base::checksum_of(std::as_bytes(std::span(result).first(data)));
  table.back() = base::checksum_of(std::as_bytes(std::span(table).first(table.size() - 1)));
  std::memcpy(result.data() + data + range[0], table.data(), range[1] - range[0]);
  return result;
}

::testing::AssertionResult same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0)
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "bits differ";
}

class ContextFileTest : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("XDG_CACHE_HOME", (dir_.path() / "cache").c_str(), 1);
    fs::create_directory(model_dir());
    test::write_tiny_model(model_dir(), shape_);
  }

  fs::path model_dir() const { return dir_.path() / "model"; }
  std::string file(const std::string& name = "context.kvfork") const { return (dir_.path() / name).string(); }

  std::shared_ptr<const Model> open(const ModelOptions& options = {.n_threads = 1}) const {
    return Model::open(model_dir(), options);
  }

  std::vector<int32_t> ids(size_t n, uint32_t seed = 1) const {
    std::mt19937 random(seed);
    std::vector<int32_t> result(n);
    for (auto& id : result) id = static_cast<int32_t>(random() % shape_.vocab_size);
    return result;
  }

  std::vector<float> continued(const Context& context, size_t n_tokens, std::span<const int32_t> more) const {
    Fork fork = context.fork_unchecked(n_tokens);
    fork.append(more);
    return {fork.logits().begin(), fork.logits().end()};
  }

  // The message of the Error, which must have this code; "" when there is none.
  template <typename Action>
  std::string message_of(ErrorCode code, const Action& action) const {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "nothing was refused";
    return "";
  }

  void expect_one_file() const {
    for (const auto& entry : fs::directory_iterator(dir_.path())) {
      EXPECT_TRUE(!entry.is_regular_file() || entry.path() == file()) << entry.path();
    }
  }

  bool opens_whole(const std::shared_ptr<const Model>& model, const std::string& path) const {
    try {
      model->open_context(path)->check();
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  test::TinyModel shape_{.max_position_embeddings = 512};
  test::TempDir dir_;
};

// The first key byte of a block.
const std::byte* key_of(const Context& context, size_t block) {
  const model::KvPrefix& kv = *engine::state_of(context).kv;
  return kv.block(block).key(kv.layout(), 0, 0);
}

TEST_F(ContextFileTest, OpensWithTheBitsOfOneThatWasNeverSaved) {
  for (const auto& setup : test::each_setup()) {
    SCOPED_TRACE(setup.name());
    const auto model = open(setup.options(2));
    for (const size_t size : {1, 15, 63, 64, 65, 200}) {
      const auto context = model->prefill(ids(size));
      const uint64_t n_bytes = context->save(file());
      EXPECT_EQ(n_bytes, fs::file_size(file()));
      const auto opened = model->open_context(file());
      EXPECT_TRUE(
          std::equal(opened->ids().begin(), opened->ids().end(), context->ids().begin(), context->ids().end()));
      EXPECT_TRUE(same_bits(opened->logits(), context->logits()));
      EXPECT_EQ(opened->hash(), context->hash());
      EXPECT_EQ(opened->id(), context->id());
      EXPECT_EQ(opened->kv_bytes(), context->kv_bytes());
      const auto more = ids(70, 2);
      EXPECT_TRUE(same_bits(continued(*opened, size, more), continued(*context, size, more))) << size;
      EXPECT_TRUE(same_bits(continued(*opened, size / 2 + 1, more), continued(*context, size / 2 + 1, more)))
          << size;
      EXPECT_TRUE(same_bits(opened->fork_unchecked().logits(), context->logits()));
    }
  }
}

TEST_F(ContextFileTest, KeysAndValuesAreUsedWhereTheFileIsMapped) {
  const auto model = open();
  model->prefill(ids(200))->save(file());
  const auto opened = model->open_context(file());
  EXPECT_EQ(engine::state_of(*opened).kv->own_bytes(), 0u);
  auto* keys = const_cast<std::byte*>(key_of(*opened, 1));
  EXPECT_DEATH(*keys = std::byte{1}, "");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(key_of(*opened, 0)) % 4096, 0u);
}

TEST_F(ContextFileTest, TheSameContextGivesTheSameFileHoweverItWasMade) {
  const auto model = open();
  const auto whole = ids(150);
  // The second ends among the keys that are copied together with those of position 70.
  for (const size_t n_tokens : {150, 73}) {
    const auto all = std::span<const int32_t>(whole).first(n_tokens);
    model->prefill(all)->save(file("a"));
    // Forks inside a longer context: nothing of its later tokens may be left in the block that is shared in part.
    auto longer = ids(190, 7);
    std::copy(all.begin(), all.begin() + 70, longer.begin());
    Fork fork = model->prefill(longer)->fork_unchecked(70);
    fork.append(all.subspan(70));
    std::move(fork).seal()->save(file("b"), {.flatten = true});
    EXPECT_EQ(read(file("a")), read(file("b"))) << n_tokens;
  }
}

TEST_F(ContextFileTest, EveryDamageIsRefused) {
  const auto model = open();
  model->prefill(ids(70))->save(file());
  const std::string sound = read(file());
  ASSERT_TRUE(opens_whole(model, file()));
  std::mt19937 random(3);
  const auto refused = [&](const std::string& content, const std::string& what) {
    write(file(), content);
    EXPECT_FALSE(opens_whole(model, file())) << what;
    EXPECT_THROW(model->open_context(file())->fork_unchecked(), Error) << what;
  };
  // Keys and values come first in the data; damage to anything else is seen without looking at them.
  const size_t keys_begin = header_bytes(sound);
  const size_t values_end = keys_begin + header_of(sound)["ids"]["data_offsets"][0].get<size_t>();
  const auto flip = [&](size_t position) {
    std::string damaged = sound;
    damaged[position] = static_cast<char>(damaged[position] ^ (1 << random() % 8));
    refused(damaged, "byte " + std::to_string(position));
    if (position < keys_begin || position >= values_end) {
      EXPECT_THROW(model->open_context(file()), Error) << "byte " << position << ", at once";
    }
  };
  const size_t json_end = sound.find_last_of('}', keys_begin) + 1;
  for (size_t position = 0; position < keys_begin; position += position < json_end ? 1 : 1 + random() % 97)
    flip(position);
  const char* asked = std::getenv("KVFORK_DAMAGE_CASES");
  const int n_cases = asked == nullptr ? 700 : std::atoi(asked);
  for (int i = 0; i < n_cases; ++i) flip(random() % sound.size());
  const auto table = header_of(sound)["checksums"]["data_offsets"].get<std::vector<size_t>>();
  for (size_t position = table[0]; position < table[1]; ++position) flip(header_bytes(sound) + position);
  for (size_t position = sound.size() - 50; position < sound.size(); ++position) flip(position);
  for (int i = 0; i < 60; ++i) {
    const size_t size = i < 10 ? static_cast<size_t>(i) : random() % sound.size();
    refused(sound.substr(0, size), "cut to " + std::to_string(size));
  }
  for (const size_t n : {1, 7, 8, 64, 4096}) {
    refused(sound + std::string(n, '\0'), "zeros appended");
    refused(sound + sound.substr(sound.size() - n), "bytes appended");
  }
  // Two blocks exchanged, each sound by itself.
  const size_t data = header_bytes(sound);
  const size_t block = engine::state_of(*model->prefill(ids(70))).kv->layout().keys_bytes(0);
  refused(sound.substr(0, data) + sound.substr(data + block, block) + sound.substr(data, block) +
              sound.substr(data + 2 * block),
          "blocks exchanged");
  write(file(), sound);
  EXPECT_TRUE(opens_whole(model, file()));
}

TEST_F(ContextFileTest, KeysAndValuesAreCheckedAtTheFirstFork) {
  const auto model = open();
  model->prefill(ids(70))->save(file());
  std::string damaged = read(file());
  damaged[header_bytes(damaged) + 1000] = static_cast<char>(damaged[header_bytes(damaged) + 1000] ^ 4);
  write(file(), damaged);
  const auto opened = model->open_context(file());
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(message_of(ErrorCode::Corrupt, [&] { opened->fork_unchecked(); }).find("layers.0.k, block 0"),
              std::string::npos);
    message_of(ErrorCode::Corrupt, [&] { opened->fork_unchecked(3); });
    message_of(ErrorCode::Corrupt, [&] { opened->check(); });
    message_of(ErrorCode::Corrupt, [&] { opened->hash(); });
    message_of(ErrorCode::Corrupt, [&] { opened->save(file("copy")); });
  }
}

TEST_F(ContextFileTest, AFileThatIsCutOrChangedWhileOpenIsNoticed) {
  const auto model = open();
  model->prefill(ids(200))->save(file());
  const auto opened = model->open_context(file());
  Fork fork = opened->fork_unchecked();
  const std::string sound = read(file());
  {
    std::fstream stream(file(), std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(static_cast<std::streamoff>(header_bytes(sound)) + 500);
    stream.put(static_cast<char>(sound[header_bytes(sound) + 500] ^ 1));
  }
  fs::last_write_time(file(), fs::last_write_time(file()) + std::chrono::seconds(5));
  message_of(ErrorCode::Corrupt, [&] { opened->fork_unchecked(); });
  message_of(ErrorCode::Corrupt, [&] { fork.append(ids(3)); });
  {
    std::fstream stream(file(), std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(static_cast<std::streamoff>(header_bytes(sound)) + 500);
    stream.put(sound[header_bytes(sound) + 500]);
  }
  fs::last_write_time(file(), fs::last_write_time(file()) + std::chrono::seconds(5));
  fork.append(ids(3));
  fs::resize_file(file(), sound.size() / 2);
  message_of(ErrorCode::Corrupt, [&] { opened->fork_unchecked(); });
  message_of(ErrorCode::Corrupt, [&] { fork.append(ids(3)); });
  EXPECT_EQ(opened->logits().size(), shape_.vocab_size);
  EXPECT_GE(opened->logits()[0], -1e30f);
}

TEST_F(ContextFileTest, AnotherModelModeOrVersionIsRefusedByName) {
  const auto setups = test::each_setup();
  const auto model = open();
  model->prefill(ids(70))->save(file());
  const auto refusal = [&](const Model& other, const std::string& path) {
    return message_of(ErrorCode::InvalidArgument, [&] { other.open_context(path); });
  };
  const auto expect_field = [&](const std::string& message, const std::string& field, const std::string& expected,
                                const std::string& found) {
    EXPECT_NE(message.find(": " + field + ": expected " + expected), std::string::npos) << message;
    EXPECT_NE(message.find("found " + found), std::string::npos) << message;
  };
  const Identity identity = model->identity();

  // One bit of one weight, in a copy.
  const fs::path tuned = dir_.path() / "tuned";
  fs::copy(model_dir(), tuned);
  std::string weights = read(tuned / "model.safetensors");
  weights.back() = static_cast<char>(weights.back() ^ 1);
  write(tuned / "model.safetensors", weights);
  const auto tuned_model = Model::open(tuned, {.n_threads = 1});
  expect_field(refusal(*tuned_model, file()), "weights", tuned_model->identity().weights, identity.weights);

  const fs::path reconfigured = dir_.path() / "reconfigured";
  fs::copy(model_dir(), reconfigured);
  Json config = Json::parse(read(reconfigured / "config.json"));
  config["rms_norm_eps"] = 1e-5;
  write(reconfigured / "config.json", config.dump());
  const auto reconfigured_model = Model::open(reconfigured, {.n_threads = 1});
  expect_field(refusal(*reconfigured_model, file()), "config", reconfigured_model->identity().config,
               identity.config);

  expect_field(refusal(*open({.mode = ComputeMode::BFloat16, .n_threads = 1}), file()), "dtype", "bfloat16",
               "float32");
  for (const auto& setup : setups) {
    if (setup.kernel_set == identity.kernel_set || setup.mode != ComputeMode::Float32) continue;
    expect_field(refusal(*open(setup.options()), file()), "kernel_set", setup.kernel_set, identity.kernel_set);
  }

  const std::string sound = read(file());
  const auto edited = [&](const std::string& key, const std::string& value) {
    write(file("edited"), with_metadata(sound, key, value));
    return refusal(*model, file("edited"));
  };
  expect_field(edited("format_version", "2"), "format_version", "1", "'2'");
  expect_field(edited("kernel_bits", std::string(64, 'a')), "kernel_bits", identity.kernel_bits,
               std::string(64, 'a'));
  expect_field(edited("architecture", "LlamaForCausalLM"), "architecture", "Qwen2ForCausalLM", "LlamaForCausalLM");
  // The editing itself is not what is refused.
  write(file("edited"), with_metadata(sound, "comment", "x"));
  EXPECT_TRUE(opens_whole(model, file("edited")));
  // Ids that are not those of the id.
  write(file("edited"), with_metadata(sound, "id", std::string(64, 'a')));
  message_of(ErrorCode::Corrupt, [&] { model->open_context(file("edited")); });
}

TEST_F(ContextFileTest, ACopiedModelIsTheSameModel) {
  open()->prefill(ids(70))->save(file());
  const fs::path copy = dir_.path() / "elsewhere";
  fs::copy(model_dir(), copy);
  EXPECT_EQ(Model::open(copy, {.n_threads = 2})->open_context(file())->fork_unchecked().size(), 70u);
}

TEST_F(ContextFileTest, EveryBitOfTheWeightsCountsAndTheirFingerprintIsRemembered) {
  const auto old = std::chrono::file_clock::now() - std::chrono::hours(1);
  const fs::path weights = model_dir() / "model.safetensors";
  const std::string before = open()->identity().weights;
  fs::last_write_time(weights, old);
  std::string bytes = read(weights);
  std::mt19937 random(4);
  for (int i = 0; i < 20; ++i) {
    const size_t position = header_bytes(bytes) + random() % (bytes.size() - header_bytes(bytes));
    const char kept = bytes[position];
    bytes[position] = static_cast<char>(bytes[position] ^ (1 << random() % 8));
    write(weights, bytes);
    fs::last_write_time(weights, old);
    EXPECT_NE(open()->identity().weights, before);
    bytes[position] = kept;
  }
  write(weights, bytes);
  EXPECT_EQ(open()->identity().weights, before);
}

TEST_F(ContextFileTest, NestedContextsNameTheirParents) {
  for (const auto& setup : test::each_setup()) {
    SCOPED_TRACE(setup.name());
    const auto model = open(setup.options());
    const auto whole = ids(300);
    const std::span<const int32_t> all(whole);
    const auto make_child = [&](const Context& parent, size_t from, size_t to) {
      Fork fork = parent.fork_unchecked(from);
      fork.append(all.subspan(from, to - from));
      return std::move(fork).seal();
    };
    const auto policy = model->prefill(all.first(140));
    const auto customer = make_child(*policy, 135, 200);  // starts inside its parent
    const auto question = make_child(*customer, 200, 230);
    policy->save(file("policy"));
    customer->save(file("customer"));
    question->save(file("question"));
    EXPECT_LT(fs::file_size(file("question")), fs::file_size(file("policy")));
    const auto opened = model->open_context(file("question"));
    EXPECT_EQ(opened->hash(), question->hash());
    EXPECT_EQ(opened->parent()->parent()->id(), policy->id());
    EXPECT_TRUE(same_bits(continued(*opened, 230, all.subspan(230)), continued(*question, 230, all.subspan(230))));

    // A child of an opened context, and the whole in one file.
    make_child(*opened, 230, 300)->save(file("deeper"));
    EXPECT_EQ(model->open_context(file("deeper"))->size(), 300u);
    opened->save(file("flat"), {.flatten = true});
    model->prefill(all.first(230))->save(file("never nested"));
    EXPECT_EQ(read(file("flat")), read(file("never nested")));

    // The parent is known by what it holds, not by its name.
    fs::rename(file("policy"), file("another name"));
    EXPECT_EQ(model->open_context(file("question"))->hash(), question->hash());
    fs::create_directories(dir_.path() / "away");
    fs::rename(file("another name"), file("away/policy"));
    EXPECT_NE(
        message_of(ErrorCode::InvalidArgument, [&] { model->open_context(file("customer")); }).find(policy->id()),
        std::string::npos);
    EXPECT_EQ(model->open_context(file("customer"), {.parent = file("away/policy")})->hash(), customer->hash());
    message_of(ErrorCode::InvalidArgument,
               [&] { model->open_context(file("customer"), {.parent = file("flat")}); });

    // Damage in a parent is damage.
    std::string damaged = read(file("away/policy"));
    damaged[header_bytes(damaged) + 100] = static_cast<char>(damaged[header_bytes(damaged) + 100] ^ 1);
    write(file("away/policy"), damaged);
    message_of(ErrorCode::Corrupt,
               [&] { model->open_context(file("customer"), {.parent = file("away/policy")})->fork_unchecked(); });
    message_of(ErrorCode::Corrupt,
               [&] { model->open_context(file("customer"), {.parent = file("away/policy")})->check(); });
    for (const char* name : {"customer", "question", "deeper", "flat", "never nested"}) fs::remove(file(name));
  }
}

TEST_F(ContextFileTest, SavingOverAFileKeepsTheOldOneUntilTheNewIsWhole) {
  const auto model = open();
  const auto first = model->prefill(ids(70));
  first->save(file());
  const auto opened = model->open_context(file());
  model->prefill(ids(80, 2))->save(file());
  EXPECT_EQ(opened->hash(), first->hash());
  EXPECT_EQ(model->open_context(file())->size(), 80u);
  expect_one_file();
}

TEST_F(ContextFileTest, AFullDiskLeavesTheOldFileAndNoOther) {
  const auto model = open();
  model->prefill(ids(70))->save(file());
  const std::string before = read(file());
  const auto larger = model->prefill(ids(400));
  ::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t limit : {rlim_t{0}, rlim_t{5000}, rlim_t{100'000}}) {
    rlimit kept{};
    ::getrlimit(RLIMIT_FSIZE, &kept);
    const rlimit small{limit, kept.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
    EXPECT_NE(message_of(ErrorCode::Io, [&] { larger->save(file()); }), "");
    ::setrlimit(RLIMIT_FSIZE, &kept);
    EXPECT_EQ(read(file()), before);
    expect_one_file();
  }
  message_of(ErrorCode::NotFound, [&] { larger->save(file("nowhere/context")); });
  message_of(ErrorCode::Io, [&] { larger->save(model_dir().string()); });
}

TEST_F(ContextFileTest, WritersOfOneNameAllSucceedAndOneWinsWhole) {
  const auto model = open();
  std::vector<std::shared_ptr<const Context>> contexts;
  for (uint32_t i = 0; i < 4; ++i) contexts.push_back(model->prefill(ids(60 + 30 * i, i)));
  std::vector<std::thread> threads;
  for (const auto& context : contexts) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) context->save(file());
    });
  }
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(!fs::exists(file()) || opens_whole(model, file()));
  }
  for (auto& thread : threads) thread.join();
  const std::string id = model->open_context(file())->id();
  EXPECT_TRUE(
      std::any_of(contexts.begin(), contexts.end(), [&](const auto& context) { return context->id() == id; }));
  expect_one_file();
}

TEST_F(ContextFileTest, AKillWhileSavingLeavesNothingThatOpensAndIsNotWhole) {
  std::mt19937 random(5);
  const auto model = open();
  for (int round = 0; round < 8; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {  // the parent's threads are not here: a model of its own
      const auto own = open();
      const auto context = own->prefill(ids(300, 9));
      while (true) context->save(file());
    }
    ::usleep(20'000 + static_cast<useconds_t>(random() % 120'000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
    for (const auto& entry : fs::directory_iterator(dir_.path())) {
      const bool counts = entry.is_regular_file() && entry.path().extension() != ".tmp";
      EXPECT_TRUE(!counts || opens_whole(model, entry.path())) << entry.path();
    }
  }
  EXPECT_TRUE(fs::exists(file())) << "no round got as far as a file; the test shows nothing";
}

}  // namespace
}  // namespace kvfork
