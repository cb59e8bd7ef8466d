// Fingerprints: by content, as docs/cache-file.md defines them; remembered only where nothing can have changed.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/mapped_file.h"
#include "base/sha256.h"
#include "base/thread_pool.h"
#include "kernels/select.h"
#include "prompt/text_fingerprint.h"
#include "saved/fingerprint_memory.h"
#include "saved/identity.h"
#include "saved/kernel_fingerprint.h"
#include "saved/weight_fingerprint.h"
#include "tests/support/temp_dir.h"

namespace kvfork::saved {
namespace {

namespace fs = std::filesystem;

class FingerprintTest : public testing::Test {
 protected:
  void SetUp() override { ::setenv("XDG_CACHE_HOME", cache().c_str(), 1); }

  fs::path cache() const { return dir_.path() / "cache"; }
  fs::path entry() const {
    for (const auto& found : fs::recursive_directory_iterator(cache())) {
      if (found.is_regular_file()) return found.path();
    }
    return {};
  }

  // A file old enough to be remembered.
  fs::path old_file(const std::string& content) const {
    const fs::path path = dir_.write("file", content);
    settle(path);
    return path;
  }
  // The file's times are set back; ctime cannot be, so the memory is asked in the name of a file that could.
  static void settle(const fs::path& path) {
    fs::last_write_time(path, std::chrono::file_clock::now() - std::chrono::hours(1));
  }
  static base::FileStamp stamp_of(const fs::path& path) { return base::File::open(path).stamp(); }

  test::TempDir dir_;
};

TEST_F(FingerprintTest, IsTheHashOfThePiecesHashes) {
  std::mt19937 random(1);
  const base::ThreadPool pool(2);
  for (const size_t n : {size_t{0}, size_t{5}, size_t{4} << 20, (size_t{4} << 20) + 1, size_t{9} << 20}) {
    std::string bytes(n, '\0');
    for (size_t i = 0; i < n; i += 997) bytes[i] = static_cast<char>(random());
    base::Sha256 whole;
    for (size_t at = 0; at < n; at += size_t{4} << 20) {
      base::Sha256 piece;
      piece.add(std::string_view(bytes).substr(at, size_t{4} << 20));
      std::array<std::byte, 32> digest;
      piece.finish(digest);
      whole.add(digest);
    }
    EXPECT_EQ(fingerprint_pieces(std::as_bytes(std::span(bytes)), pool), whole.hex()) << n;
  }
  EXPECT_EQ(base::sha256_hex(std::string_view("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_F(FingerprintTest, AYoungFileIsNotRemembered) {
  const fs::path path = dir_.write("file", "content");
  remember_fingerprint(path.string(), stamp_of(path), std::string(64, 'a'));
  EXPECT_EQ(recall_fingerprint(stamp_of(path)), "");
}

class RememberedTest : public FingerprintTest {
 protected:
  void SetUp() override {
    FingerprintTest::SetUp();
    path_ = old_file("content");
    ::sleep(4);  // ctime cannot be set back
    remember_fingerprint(path_.string(), stamp_of(path_), kFingerprint);
    ASSERT_EQ(recall_fingerprint(stamp_of(path_)), kFingerprint);
  }
  const std::string kFingerprint = std::string(60, 'a') + "0123";
  fs::path path_;
};

TEST_F(RememberedTest, OnlyOfAFileInExactlyThatState) {
  const base::FileStamp stamp = stamp_of(path_);
  for (const auto change : {&base::FileStamp::device, &base::FileStamp::inode, &base::FileStamp::size}) {
    base::FileStamp other = stamp;
    other.*change += 1;
    EXPECT_EQ(recall_fingerprint(other), "");
  }
  for (const auto change : {&base::FileStamp::mtime_ns, &base::FileStamp::ctime_ns}) {
    base::FileStamp other = stamp;
    other.*change += 1;
    EXPECT_EQ(recall_fingerprint(other), "");
  }
  // The same size and the same mtime, but other content.
  std::fstream(path_, std::ios::in | std::ios::out).put('K');
  fs::last_write_time(path_, fs::file_time_type(std::chrono::nanoseconds(0)));
  EXPECT_EQ(recall_fingerprint(stamp_of(path_)), "");

  // Damage anywhere in the entry, or a part of it, is no memory.
  const std::string sound = base::read_file(entry());
  for (size_t i = 0; i < sound.size(); ++i) {
    std::string damaged = sound;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    std::ofstream(entry(), std::ios::binary) << damaged;
    EXPECT_EQ(recall_fingerprint(stamp), "") << i;
    std::ofstream(entry(), std::ios::binary) << sound.substr(0, i);
    EXPECT_EQ(recall_fingerprint(stamp), "") << i;
  }
  std::ofstream(entry(), std::ios::binary) << sound;
  EXPECT_EQ(recall_fingerprint(stamp), kFingerprint);

  // A memory that cannot be written, or is not there, is no error.
  fs::remove_all(cache());
  std::ofstream(cache()) << "a file where a directory should be";
  remember_fingerprint(path_.string(), stamp, kFingerprint);
  EXPECT_EQ(recall_fingerprint(stamp), "");
  ::unsetenv("XDG_CACHE_HOME");
  ::setenv("HOME", "not absolute", 1);
  remember_fingerprint(path_.string(), stamp, kFingerprint);
  EXPECT_EQ(recall_fingerprint(stamp), "");
}

TEST(KernelFingerprint, IsStableAndTellsSetsApart) {
  std::vector<std::string> seen;
  for (const auto* set : kernels::supported_kernel_sets()) {
    ASSERT_EQ(kernels::prepare_kernel_set(*set), 0) << set->name;
    const std::string fingerprint = fingerprint_kernels(*set);
    EXPECT_EQ(fingerprint, fingerprint_kernels(*set));
    EXPECT_EQ(std::count(seen.begin(), seen.end(), fingerprint), 0) << set->name;
    seen.push_back(fingerprint);
  }
}

// Each kernel counts: a table with one of them changed has another fingerprint.
TEST(KernelFingerprint, EveryKernelCounts) {
  const kernels::KernelTable& sound = *kernels::find_kernel_set("portable");
  const std::string before = fingerprint_kernels(sound);
  const auto changed = [&](auto change) {
    kernels::KernelTable table = sound;
    change(table);
    return fingerprint_kernels(table);
  };
  static const kernels::KernelTable* original = &sound;
  EXPECT_NE(before, changed([](auto& t) {
              t.matmul = [](const kernels::MatmulArgs& a) noexcept {
                original->matmul(a);
                a.y[a.y_stride + 3] += 1e-4f;
              };
            }));
  EXPECT_NE(before, changed([](auto& t) {
              t.norm = [](const kernels::NormArgs& a) noexcept {
                kernels::NormArgs other = a;
                other.eps *= 2;
                original->norm(other);
              };
            }));
  EXPECT_NE(before, changed([](auto& t) { t.rope = [](const kernels::RopeArgs&) noexcept {}; }));
  EXPECT_NE(before, changed([](auto& t) {
              t.activate_mul = [](kernels::Activation, float, const float*, const float*, size_t, float*) noexcept {
              };
            }));
  EXPECT_NE(before, changed([](auto& t) { t.add = [](float*, const float*, size_t) noexcept {}; }));
  EXPECT_NE(before, changed([](auto& t) { t.store_kv = [](const kernels::StoreKvArgs&) noexcept {}; }));
  EXPECT_NE(before, changed([](auto& t) {
              t.attention = [](const kernels::AttentionArgs& a) noexcept {
                original->attention(a);
                a.result.out[0] *= 1.0000002f;
              };
            }));
  EXPECT_NE(before, changed([](auto& t) {
              t.attention_merge = [](const kernels::AttentionResult&, const kernels::AttentionResult&, size_t,
                                     size_t) noexcept {};
            }));
  EXPECT_NE(before,
            changed([](auto& t) { t.attention_finish = [](const float*, float, size_t, float*) noexcept {}; }));
}

TEST(KernelFingerprint, KernelsForStatesCountForModelsThatHaveThem) {
  const kernels::KernelTable& sound = *kernels::find_kernel_set("portable");
  static const kernels::KernelTable* original = &sound;
  EXPECT_NE(fingerprint_kernels(sound), fingerprint_kernels(sound, true));
  const auto expect_counts = [&](auto change) {
    kernels::KernelTable table = sound;
    change(table);
    EXPECT_NE(fingerprint_kernels(sound, true), fingerprint_kernels(table, true));
    EXPECT_EQ(fingerprint_kernels(sound), fingerprint_kernels(table));
  };
  expect_counts([](auto& t) { t.multiply = [](float*, const float*, size_t) noexcept {}; });
  expect_counts([](auto& t) {
    t.convolve = [](const kernels::ConvolutionArgs& a) noexcept {
      original->convolve(a);
      a.y[a.y_stride] *= 1.0000002f;
    };
  });
  expect_counts([](auto& t) {
    t.recur = [](const kernels::RecurrenceArgs& a) noexcept {
      original->recur(a);
      a.next_state[a.state_stride] *= 1.0000002f;
    };
  });
}

TEST(Revision, IsReadFromASnapshotPath) {
  const std::string commit = "0123456789abcdef0123456789abcdef01234567";
  EXPECT_EQ(find_revision("/c/models--a--b/snapshots/" + commit), commit);
  EXPECT_EQ(find_revision("/c/models--a--b/snapshots/" + commit + "/model.gguf"), commit);
  EXPECT_EQ(find_revision("/c/snapshots/main/"), "");
  EXPECT_EQ(find_revision("/c/" + commit), "");
  EXPECT_EQ(find_revision("model"), "");
}

}  // namespace
}  // namespace kvfork::saved
