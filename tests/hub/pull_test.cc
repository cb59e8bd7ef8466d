// The public API against the loopback Hub of tests/hub_server.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/mapped_file.h"
#include "kvfork/error.h"
#include "kvfork/hub.h"
#include "tests/support/temp_dir.h"

namespace kvfork {
namespace {

// serve.py as a child: its address, and what it was asked for.
class HubProcess {
 public:
  HubProcess() {
    int to_child[2];
    int from_child[2];
    if (::pipe2(to_child, O_CLOEXEC) != 0 || ::pipe2(from_child, O_CLOEXEC) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(to_child[0], 0);
      ::dup2(from_child[1], 1);
      ::execlp("python3", "python3", KVFORK_SOURCE_DIR "/tests/hub_server/serve.py", nullptr);
      ::_exit(127);
    }
    ::close(to_child[0]);
    ::close(from_child[1]);
    in_ = ::fdopen(from_child[0], "r");
    out_ = to_child[1];
    url_ = read_line();
  }
  ~HubProcess() {
    ::close(out_);
    std::fclose(in_);
    ::waitpid(pid_, nullptr, 0);
  }
  HubProcess(const HubProcess&) = delete;
  HubProcess& operator=(const HubProcess&) = delete;

  const std::string& url() const { return url_; }

  std::vector<std::string> requests() {
    if (::write(out_, "\n", 1) != 1) return {"cannot ask"};
    return nlohmann::json::parse(read_line()).get<std::vector<std::string>>();
  }

 private:
  std::string read_line() {
    std::string line;
    for (int c = 0; (c = std::fgetc(in_)) != EOF && c != '\n';) line += static_cast<char>(c);
    return line;
  }

  pid_t pid_ = -1;
  std::FILE* in_ = nullptr;
  int out_ = -1;
  std::string url_;
};

class PullTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (hub_.url().empty()) GTEST_SKIP() << "python3 is not installed";
    for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN",
                             "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_ETAG_TIMEOUT",
                             "HF_HUB_DOWNLOAD_TIMEOUT", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"}) {
      ::unsetenv(name);
    }
    ::setenv("HF_ENDPOINT", hub_.url().c_str(), 1);
    ::setenv("HF_HOME", dir_.path().c_str(), 1);
  }

  static bool asked_for_weights(const std::vector<std::string>& requests) {
    return std::any_of(requests.begin(), requests.end(), [](const auto& r) {
      return r.find("model-0") != std::string::npos || r.find("/store/") != std::string::npos;
    });
  }

  HubProcess hub_;
  test::TempDir dir_;
  const HubRef ref_ = *HubRef::parse("org/tiny");
};

TEST_F(PullTest, BringsEverything) {
  const Snapshot snapshot = pull(ref_);
  EXPECT_FALSE(snapshot.from_cache);
  EXPECT_EQ(snapshot.commit.size(), 40U);
  EXPECT_EQ(snapshot.files_downloaded.size(), 7U);
  for (const char* name :
       {"config.json", "tokenizer.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) {
    EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::path(snapshot.directory) / name)) << name;
  }
  hub_.requests();
  const Snapshot again = pull({.repo_id = "org/tiny", .revision = snapshot.commit});
  EXPECT_TRUE(again.from_cache);
  EXPECT_EQ(again.directory, snapshot.directory);
  EXPECT_TRUE(hub_.requests().empty());
}

TEST_F(PullTest, ConfigIsShownBeforeAnyWeight) {
  std::string seen;
  PullOptions options;
  options.check_config = [&](std::string_view text) {
    seen = text;
    throw Error(ErrorCode::Unsupported, "not this one");
  };
  try {
    pull(ref_, options);
    FAIL() << "the error of check_config was lost";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::Unsupported);
    EXPECT_STREQ(error.what(), "not this one");
  }
  EXPECT_NE(seen.find("Qwen2ForCausalLM"), std::string::npos);
  EXPECT_FALSE(asked_for_weights(hub_.requests()));
}

TEST_F(PullTest, SmallFilesOnly) {
  PullOptions options;
  options.files = PullFiles::Small;
  const Snapshot small = pull(ref_, options);
  const auto requests = hub_.requests();
  EXPECT_FALSE(requests.empty());
  EXPECT_FALSE(asked_for_weights(requests));
  EXPECT_TRUE(std::filesystem::exists(small.directory + "/model.safetensors.index.json"));
  options.local_files_only = true;
  EXPECT_EQ(pull(ref_, options).directory, small.directory);
  options.files = PullFiles::All;
  EXPECT_THROW(pull(ref_, options), Error) << "there are no weights yet";
  EXPECT_TRUE(hub_.requests().empty());
}

TEST_F(PullTest, ProgressAddsUp) {
  std::map<std::string, uint64_t> last;
  uint64_t total = 0;
  uint64_t done = 0;
  PullOptions options;
  options.max_connections = 3;
  options.on_progress = [&](const PullProgress& progress) {
    EXPECT_LE(progress.file_done, progress.file_total);
    EXPECT_LE(progress.done, progress.total);
    EXPECT_GE(progress.file_done, last[progress.file]) << "no step back without a restart";
    last[progress.file] = progress.file_done;
    done = progress.done;
    total = progress.total;
  };
  const Snapshot snapshot = pull(ref_, options);
  EXPECT_EQ(last.size(), 7U);
  EXPECT_EQ(done, total);
  EXPECT_EQ(total, snapshot.bytes_downloaded);
}

TEST_F(PullTest, NoticesWhenACopyStandsIn) {
  const Snapshot first = pull(ref_);
  ::setenv("HF_ENDPOINT", "http://127.0.0.1:1", 1);
  std::string notice;
  PullOptions options;
  options.on_notice = [&](const std::string& text) { notice += text; };
  const Snapshot second = pull(ref_, options);
  EXPECT_TRUE(second.from_cache);
  EXPECT_EQ(second.directory, first.directory);
  EXPECT_NE(notice.find(first.commit), std::string::npos) << notice;
}

TEST_F(PullTest, RefusesMalformedInput) {
  EXPECT_THROW(pull({.repo_id = "../x"}), Error);
  EXPECT_THROW(pull({.repo_id = "org/tiny", .revision = "../x"}), Error);
  PullOptions options;
  options.gguf_file = "../x.gguf";
  EXPECT_THROW(pull(ref_, options), Error);
  EXPECT_TRUE(hub_.requests().empty());
}

TEST_F(PullTest, ManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::vector<std::string> directories(4);
  for (auto& directory : directories) threads.emplace_back([&] { directory = pull(ref_).directory; });
  for (auto& thread : threads) thread.join();
  for (const auto& directory : directories) EXPECT_EQ(directory, directories[0]);
}

}  // namespace
}  // namespace kvfork
