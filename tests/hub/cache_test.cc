// The shared huggingface cache: layout, locks, digests and partial downloads.

#include "hub/cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/mapped_file.h"
#include "base/sha256.h"
#include "hub/blob_writer.h"
#include "hub/digest.h"
#include "kvfork/error.h"
#include "tests/support/temp_dir.h"

namespace kvfork::hub {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

void write(const fs::path& path, std::string_view content) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

class CacheTest : public ::testing::Test {
 protected:
  test::TempDir dir_;
  RepoCache cache_{dir_.path(), "org/tiny", Links::Try};
};

TEST_F(CacheTest, LayoutIsHuggingfaceHubs) {
  EXPECT_EQ(cache_.folder(), dir_.path() / "models--org--tiny");
  EXPECT_EQ(cache_.lock_path("e"), dir_.path() / ".locks/models--org--tiny/e.lock");
  write(cache_.blob_path("e"), "content");
  cache_.place_file("e", kCommit, "a/b.json", true);
  EXPECT_EQ(fs::read_symlink(cache_.file_path(kCommit, "a/b.json")), "../../../blobs/e");
  EXPECT_EQ(base::read_file(cache_.file_path(kCommit, "a/b.json")), "content");
  cache_.place_file("e", kCommit, "c.json", false);
  EXPECT_EQ(fs::read_symlink(cache_.file_path(kCommit, "c.json")), "../../blobs/e");
}

TEST_F(CacheTest, WithoutLinksANewBlobMovesAndAnOldOneIsCopied) {
  const RepoCache plain(dir_.path(), "org/tiny", Links::Copy);
  write(plain.blob_path("new"), "new");
  plain.place_file("new", kCommit, "a.json", true);
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(plain.file_path(kCommit, "a.json"))));
  EXPECT_FALSE(fs::exists(plain.blob_path("new")));
  write(plain.blob_path("old"), "old");
  plain.place_file("old", kCommit, "b.json", false);
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(plain.file_path(kCommit, "b.json"))));
  EXPECT_TRUE(fs::exists(plain.blob_path("old")));
  for (const auto& entry : fs::directory_iterator(plain.folder())) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("tmp_")) << entry.path();
  }
}

TEST_F(CacheTest, RefsNameCommitsAndNothingElse) {
  EXPECT_EQ(cache_.find_commit("main"), std::nullopt);
  EXPECT_EQ(cache_.find_commit(kCommit), kCommit);
  cache_.make_folders(kCommit);
  cache_.write_ref("main", kCommit);
  cache_.write_ref("refs/pr/1", kCommit);
  EXPECT_EQ(base::read_file(cache_.folder() / "refs/main"), kCommit);
  EXPECT_EQ(cache_.find_commit("refs/pr/1"), kCommit);
  EXPECT_EQ(cache_.find_commit("refs"), std::nullopt);
  for (const char* hostile : {"../../../etc", "", "a/b", ".."}) {
    write(cache_.folder() / "refs/hostile", hostile);
    EXPECT_EQ(cache_.find_commit("hostile"), std::nullopt) << hostile;
  }
}

TEST_F(CacheTest, DanglingLinksDoNotCount) {
  fs::create_directories(cache_.snapshot_path(kCommit));
  fs::create_symlink("../../blobs/gone", cache_.file_path(kCommit, "a.json"));
  EXPECT_FALSE(cache_.has_file(kCommit, "a.json"));
  write(cache_.blob_path("e"), "x");
  cache_.place_file("e", kCommit, "a.json", false);
  EXPECT_TRUE(cache_.has_file(kCommit, "a.json"));
}

TEST_F(CacheTest, SpaceIsChecked) {
  cache_.check_space(1);
  EXPECT_THROW(cache_.check_space(uint64_t{1} << 62), Error);
}

TEST(ReadableSize, Steps) {
  EXPECT_EQ(readable_size(999), "999 bytes");
  EXPECT_EQ(readable_size(1000), "1.0 KB");
  EXPECT_EQ(readable_size(999'960), "1.0 MB");
  EXPECT_EQ(readable_size(988'097'824), "988.1 MB");
}

TEST_F(CacheTest, LockKeepsOthersOut) {
  const std::atomic<bool> stop = false;
  const fs::path file = cache_.lock_path("e");
  auto held = std::make_unique<BlobLock>(file, "none", std::chrono::milliseconds(100), stop);
  EXPECT_THROW(BlobLock(file, "none", std::chrono::milliseconds(100), stop), Error);
  std::thread releases([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    held.reset();
  });
  BlobLock(file, "none", std::chrono::milliseconds(5000), stop);
  releases.join();
}

TEST_F(CacheTest, LockFollowsAFileThatWasReplaced) {
  const std::atomic<bool> stop = false;
  const fs::path file = cache_.lock_path("e");
  fs::create_directories(file.parent_path());
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT, 0666);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  fs::remove(file);  // what some versions of filelock do before they let go
  BlobLock(file, "none", std::chrono::milliseconds(1000), stop);
  ::close(fd);
}

TEST_F(CacheTest, LockWaitsWhileTheFileGrows) {
  const std::atomic<bool> stop = false;
  const fs::path growing = dir_.path() / "growing";
  auto held = std::make_unique<BlobLock>(cache_.lock_path("e"), growing, std::chrono::milliseconds(100), stop);
  std::thread writer([&] {
    for (int i = 1; i <= 10; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      write(growing, std::string(static_cast<size_t>(i), 'x'));
    }
    held.reset();
  });
  EXPECT_NO_THROW(BlobLock(cache_.lock_path("e"), growing, std::chrono::milliseconds(400), stop));
  writer.join();
}

// Known answers: `printf hello | git hash-object --stdin`, `printf hello | sha1sum`.
TEST_F(CacheTest, Digests) {
  write(dir_.path() / "hello", "hello");
  EXPECT_TRUE(matches_sha1(dir_.path() / "hello", "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0"));
  EXPECT_TRUE(matches_sha1(dir_.path() / "hello", "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d"));
  EXPECT_FALSE(matches_sha1(dir_.path() / "hello", "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434e"));
  EXPECT_EQ(etag_kind(std::string(64, 'a')), EtagKind::Sha256);
  EXPECT_EQ(etag_kind(std::string(40, 'a')), EtagKind::GitSha1);
  EXPECT_EQ(etag_kind(std::string(64, 'A')), EtagKind::Opaque);
}

std::string noise(size_t n_bytes) {
  std::string out(n_bytes, '\0');
  uint32_t state = 12345;
  for (char& c : out) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return out;
}

TEST_F(CacheTest, WriterHashesInPiecesOfAnySize) {
  for (const size_t size : {size_t{0}, size_t{1}, (size_t{1} << 20) - 1, size_t{1} << 20, (size_t{5} << 20) + 17}) {
    for (const size_t piece : {size_t{997}, size_t{16384}, size_t{3} << 20}) {
      const std::string content = noise(size);
      BlobWriter writer(dir_.path() / "x.incomplete", size, BlobWriter::Hash::Sha256);
      for (size_t i = 0; i < size; i += piece) writer.append(std::string_view(content).substr(i, piece));
      EXPECT_EQ(writer.size(), size);
      EXPECT_EQ(writer.sha256(), base::sha256_hex(content)) << size << " in " << piece;
      writer.publish(dir_.path() / "x");
      EXPECT_EQ(base::read_file(dir_.path() / "x"), content);
      EXPECT_FALSE(fs::exists(dir_.path() / "x.incomplete"));
    }
  }
}

TEST_F(CacheTest, WriterGoesOnFromWhatIsThere) {
  const std::string content = noise(3'000'000);
  for (const size_t present : {size_t{1}, size_t{1'048'576}, size_t{2'999'999}}) {
    write(dir_.path() / "y.incomplete", content.substr(0, present));
    BlobWriter writer(dir_.path() / "y.incomplete", content.size(), BlobWriter::Hash::Sha256);
    EXPECT_EQ(writer.size(), present);
    writer.append(std::string_view(content).substr(present));
    EXPECT_EQ(writer.sha256(), base::sha256_hex(content));
    writer.publish(dir_.path() / "y");
    EXPECT_EQ(base::read_file(dir_.path() / "y"), content);
  }
}

TEST_F(CacheTest, WriterStartsEmptyFromTooMuch) {
  write(dir_.path() / "z.incomplete", "too much");
  BlobWriter writer(dir_.path() / "z.incomplete", 5, BlobWriter::Hash::Sha256);
  EXPECT_EQ(writer.size(), 0U);
  writer.append("abc");
  writer.clear();
  writer.append("hello");
  EXPECT_EQ(writer.sha256(), base::sha256_hex("hello"));
  writer.publish(dir_.path() / "z");
  EXPECT_EQ(base::read_file(dir_.path() / "z"), "hello");
}

}  // namespace
}  // namespace kvfork::hub
