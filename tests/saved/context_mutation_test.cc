// Saved contexts, changed at random. A change that the checksums see is refused, or the answers have the very same
// bits; one that comes with checksums that fit (which only a forger makes) may be anything but a crash.
//
// KVFORK_MUTATED_FILES sets how many files of each kind (default 300), KVFORK_MUTATION_SEED the first one's seed
// (default 1).

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "kvfork/context.h"
#include "kvfork/error.h"
#include "kvfork/fork.h"
#include "kvfork/inspect.h"
#include "kvfork/model.h"
#include "kvfork/prompt.h"
#include "kvfork/text.h"
#include "tests/support/fit_checksums.h"
#include "tests/support/temp_dir.h"

namespace kvfork {
namespace {

const std::string kCheckpoint = std::string(KVFORK_SOURCE_DIR) + "/tests/golden/checkpoints/qwen2-bf16-tied";

// More than a block of tokens, so that a child shares one.
const char* const kText =
    "You answer questions about orders of tents, stoves and sleeping bags. Be brief, and never guess. A refund "
    "takes nine days; "
    "an exchange takes four.";

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class Mutator {
 public:
  // `donor` is another sound file, whose bytes are right elsewhere.
  Mutator(uint64_t seed, const std::string& donor) : random_(seed), donor_(donor) {}

  std::string mutate(std::string file) {
    for (size_t n = between(1, 3); n > 0; --n) change(file);
    return file;
  }

 private:
  size_t between(size_t low, size_t high) { return std::uniform_int_distribution<size_t>(low, high)(random_); }

  // Half of the changes are where they do most: in the header.
  size_t place(const std::string& file) {
    if (file.empty()) return 0;
    uint64_t header = 0;
    std::memcpy(&header, file.data(), std::min<size_t>(8, file.size()));
    const size_t text_end = file.find("   ", 8);
    const size_t end = between(0, 1) == 0 && text_end != std::string::npos ? text_end : file.size();
    return between(0, end - 1);
  }

  void change(std::string& file) {
    const size_t at = place(file);
    const size_t n = std::min(between(1, between(0, 2) == 0 ? 9000 : 9), file.size() - std::min(at, file.size()));
    switch (between(0, 11)) {
      case 0:
        file.resize(at);
        break;
      case 1:
        file.append(between(1, 5000), static_cast<char>(between(0, 255)));
        break;
      case 2:
        file.insert(at, file.substr(place(file), n));
        break;
      case 3:
        file.erase(at, n);
        break;
      case 4:
        file.replace(at, n, std::string(n, between(0, 1) == 0 ? '\0' : '\xff'));
        break;
      case 5:
        splice(file, at, n);
        break;
      case 6:
        exchange(file, at, place(file), n);
        break;
      case 7:
        change_length(file);
        break;
      case 8:
        change_word(file);
        break;
      case 9:
        change_number(file);
        break;
      default:
        flip(file, at);
        break;
    }
  }

  void flip(std::string& file, size_t at) {
    if (!file.empty()) file[at] = static_cast<char>(file[at] ^ (1 << between(0, 7)));
  }

  void splice(std::string& file, size_t at, size_t n) {
    if (at + n <= donor_.size()) file.replace(at, n, donor_, at, n);
  }

  static void exchange(std::string& file, size_t a, size_t b, size_t n) {
    if (a > b) std::swap(a, b);
    if (a + n > b || b + n > file.size()) return;
    std::swap_ranges(file.begin() + static_cast<ptrdiff_t>(a), file.begin() + static_cast<ptrdiff_t>(a + n),
                     file.begin() + static_cast<ptrdiff_t>(b));
  }

  void change_length(std::string& file) {
    if (file.size() < 8) return;
    uint64_t length = 0;
    std::memcpy(&length, file.data(), 8);
    const uint64_t choices[] = {
        0, 1, length - 1, length + 1, length + 4096, file.size() - 8, file.size(), uint64_t{1} << 63, ~uint64_t{0}};
    length = choices[between(0, std::size(choices) - 1)];
    std::memcpy(file.data(), &length, 8);
  }

  // A token of the header's JSON becomes another; what follows stays where it is, in place of the padding.
  void replace_padded(std::string& file, size_t at, size_t n, const std::string& text) {
    const size_t padding = file.find("        ", at);
    file.replace(at, n, text);
    if (padding == std::string::npos) return;
    const size_t padding_now = padding + text.size() - n;
    if (text.size() > n && text.size() - n < 8) file.erase(padding_now, text.size() - n);
    if (text.size() < n) file.insert(padding_now, n - text.size(), ' ');
  }

  void change_word(std::string& file) {
    static const std::vector<std::string> words = {
        "F32",  "BF16",     "I64",     "U8",        "U64",       "layers.0.k",  "layers.0.v", "layers.1.k",
        "ids",  "logits",   "text",    "checksums", "parent_id", "first_block", "n_tokens",   "messages",
        "vars", "boundary", "message", "raw_text",  "id",        "true",        "false",      "format_version"};
    const auto word = [&] { return "\"" + words[between(0, words.size() - 1)] + "\""; };
    const std::string from = word();
    const size_t at = file.find(from, between(0, 1) == 0 ? 0 : place(file));
    if (at != std::string::npos) replace_padded(file, at, from.size(), word());
  }

  void change_number(std::string& file) {
    const size_t text_end = std::min(file.find("   ", 8), file.size());
    const size_t at = file.find_first_of("0123456789", place(file));
    if (at == std::string::npos || at >= text_end) return;
    const size_t end = std::min(file.find_first_not_of("0123456789", at), file.size());
    static const std::vector<std::string> numbers = {"0",
                                                     "1",
                                                     "2",
                                                     "16",
                                                     "63",
                                                     "64",
                                                     "65",
                                                     "-1",
                                                     "1e3",
                                                     "4096",
                                                     "2147483648",
                                                     "18446744073709551615",
                                                     "18446744073709551616",
                                                     "9223372036854775807",
                                                     "null",
                                                     "[]"};
    replace_padded(file, at, end - at, numbers[between(0, numbers.size() - 1)]);
  }

  std::mt19937_64 random_;
  const std::string& donor_;
};

// What a context is good for, as bits.
struct Answers {
  std::vector<int32_t> ids;
  std::string hash;
  std::vector<uint32_t> logits;  // its own, then those after more ids, from its end and from its middle

  friend bool operator==(const Answers&, const Answers&) = default;
};

Answers ask(const Context& context) {
  Answers answers{.ids = {context.ids().begin(), context.ids().end()}, .hash = context.hash(), .logits = {}};
  const auto keep = [&](std::span<const float> logits) {
    const size_t size = answers.logits.size();
    answers.logits.resize(size + logits.size());
    std::memcpy(answers.logits.data() + size, logits.data(), logits.size_bytes());
  };
  keep(context.logits());
  const std::vector<int32_t> more = {7, 8, 9};
  for (const size_t n_tokens : {context.size(), context.size() / 2 + 1}) {
    Fork fork = context.fork_unchecked(n_tokens);
    fork.append(more);
    keep(fork.logits());
  }
  return answers;
}

class ContextMutation : public testing::Test {
 protected:
  ContextMutation() {
    ::setenv("XDG_CACHE_HOME", (dir_.path() / "cache").c_str(), 1);
    model_ = Model::open(kCheckpoint, {.n_threads = 1});
    const Prompter prompter(model_->shared_text(), model_->text().chat_template(),
                            FixedPart::from_system_message(kText));
    const Prompt prompt = prompter.make_context(BoundaryMode::Message);
    const auto parent = model_->prefill(prompt.ids, {}, prompter.make_origin(BoundaryMode::Message, prompt));
    parent->save(path("parent"));
    Fork fork = parent->fork_unchecked();
    fork.append(std::vector<int32_t>(90, 11));
    const auto child = std::move(fork).seal();
    child->save(path("child"));
    EXPECT_GT(inspect_context(path("child"), ContextCheck::Quick).n_parent_tokens, 0u);
    model_->prefill(std::vector<int32_t>(child->size(), 12))->save(path("donor"));
    donor_ = base::read_file(path("donor"));
    sound_.push_back({"parent", base::read_file(path("parent")), ask(*parent)});
    sound_.push_back({"child", base::read_file(path("child")), ask(*child)});
  }

  std::string path(const std::string& name) const { return (dir_.path() / name).string(); }

  // A new inode: nothing that is open sees the change.
  void write(const std::string& name, const std::string& content) const {
    std::filesystem::remove(path(name));
    std::ofstream(path(name), std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
  }

  struct Sound {
    std::string name;
    std::string content;
    Answers answers;
  };

  test::TempDir dir_;
  std::shared_ptr<const Model> model_;
  std::string donor_;
  std::vector<Sound> sound_;
};

TEST_F(ContextMutation, IsRefusedOrChangesNoBit) {
  const uint64_t first = number_from("KVFORK_MUTATION_SEED", 1);
  const uint64_t n_files = number_from("KVFORK_MUTATED_FILES", 300);
  size_t n_opened = 0;
  for (uint64_t seed = first; seed < first + n_files; ++seed) {
    SCOPED_TRACE("KVFORK_MUTATION_SEED=" + std::to_string(seed) + " KVFORK_MUTATED_FILES=1");
    const Sound& sound = sound_[seed % sound_.size()];
    const std::string content = Mutator(seed, donor_).mutate(sound.content);
    write(sound.name, content);
    bool is_refused = false;
    try {
      EXPECT_TRUE(ask(*model_->open_context(path("child"))) == sound_[1].answers);
    } catch (const Error&) {
      is_refused = true;
    }
    n_opened += !is_refused;
    EXPECT_EQ(is_refused, content != sound.content);
    // What is refused here is seen by `kvfork inspect --check` too.
    EXPECT_EQ(is_refused, [&] {
      try {
        inspect_context(path(sound.name), ContextCheck::All);
        return false;
      } catch (const Error&) {
        return true;
      }
    }());
    write(sound.name, sound.content);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_TRUE(ask(*model_->open_context(path("child"))) == sound_[1].answers);
  RecordProperty("opened", static_cast<int>(n_opened));
}

TEST_F(ContextMutation, WithChecksumsThatFitIsNoCrash) {
  const uint64_t first = number_from("KVFORK_MUTATION_SEED", 1);
  const uint64_t n_files = number_from("KVFORK_MUTATED_FILES", 300);
  size_t n_opened = 0;
  for (uint64_t seed = first; seed < first + n_files; ++seed) {
    SCOPED_TRACE("KVFORK_MUTATION_SEED=" + std::to_string(seed) + " KVFORK_MUTATED_FILES=1");
    const Sound& sound = sound_[seed % sound_.size()];
    std::string content = Mutator(seed, donor_).mutate(sound.content);
    try {
      test::fit_checksums(std::as_writable_bytes(std::span(content)));
    } catch (const Error&) {
    }
    write(sound.name, content);
    try {
      const auto opened = model_->open_context(path("child"));
      ++n_opened;
      ask(*opened);
      if (opened->origin() != nullptr)
        Prompter::from_origin(model_->shared_text(), opened->origin()).make_request("Hi");
    } catch (const Error&) {
    }
    write(sound.name, sound.content);
  }
  EXPECT_GT(n_opened, 0u) << "no file got past the checks; the test shows little";
  EXPECT_LT(n_opened, n_files);
}

}  // namespace
}  // namespace kvfork
