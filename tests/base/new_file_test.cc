// Replacing files: what stays of the old one, and what is left when it fails.
#include "base/new_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "base/mapped_file.h"
#include "kvfork/error.h"
#include "tests/support/temp_dir.h"

namespace kvfork::base {
namespace {

namespace fs = std::filesystem;

void put(const fs::path& path, std::string_view text) {
  NewFile file = NewFile::create(path, 0);
  file.write(text);
  file.commit();
}

mode_t mode_of(const fs::path& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 07777;
}

class NewFileTest : public ::testing::Test {
 protected:
  size_t n_files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(dir_.path()), fs::directory_iterator()));
  }
  test::TempDir dir_;
  fs::path path_ = dir_.path() / "file";
};

TEST_F(NewFileTest, KeepsTheModeOfWhatItReplaces) {
  for (const mode_t mode : {0600, 0640, 0444, 0755}) {
    std::ofstream(path_) << "old";
    ::chmod(path_.c_str(), mode);
    put(path_, "new");
    EXPECT_EQ(mode_of(path_), mode);
    EXPECT_EQ(read_file(path_), "new");
    fs::remove(path_);
  }
  const mode_t mask = ::umask(027);
  put(path_, "new");
  ::umask(mask);
  EXPECT_EQ(mode_of(path_), 0640);  // a new name: what the process gives its files
}

TEST_F(NewFileTest, KeepsTheOwnerWhereItMay) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may give files away";
  std::ofstream(path_) << "old";
  ASSERT_EQ(::chown(path_.c_str(), 1234, 4321), 0);
  put(path_, "new");
  struct stat status {};
  ::stat(path_.c_str(), &status);
  EXPECT_EQ(status.st_uid, 1234U);
  EXPECT_EQ(status.st_gid, 4321U);
}

TEST_F(NewFileTest, ReplacesTheTargetOfALinkAndKeepsTheLink) {
  std::ofstream(dir_.path() / "target") << "old";
  ::chmod((dir_.path() / "target").c_str(), 0600);
  fs::create_symlink("target", path_);
  put(path_, "new");
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_EQ(read_file(dir_.path() / "target"), "new");
  EXPECT_EQ(mode_of(dir_.path() / "target"), 0600);
}

TEST_F(NewFileTest, LeavesNothingWithoutCommit) {
  put(path_, "old");
  {
    NewFile file = NewFile::create(path_, 1 << 20);
    file.write("half");
  }
  EXPECT_EQ(read_file(path_), "old");
  EXPECT_EQ(n_files(), 1U);
}

TEST_F(NewFileTest, ManyWritersLeaveOneWholeFile) {
  std::vector<std::thread> threads;
  for (char c = 'a'; c < 'i'; ++c) {
    threads.emplace_back([this, c] {
      for (int i = 0; i < 20; ++i) put(path_, std::string(50000, c));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string found = read_file(path_);
  EXPECT_EQ(found, std::string(50000, found.at(0)));
  EXPECT_EQ(n_files(), 1U);
}

TEST_F(NewFileTest, WritesIntoDevicesOnlyWhereAsked) {
  EXPECT_THROW(NewFile::create("/dev/null", 0), Error);
  NewFile file = NewFile::create("/dev/null", 0, NewFile::Devices::WriteInto);
  file.write("gone");
  file.commit();
  NewFile full = NewFile::create("/dev/full", 0, NewFile::Devices::WriteInto);
  EXPECT_THROW(full.write("x"), Error);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(NewFileTest, EveryRefusalIsAnErrorThatNamesThePath) {
  std::ofstream(path_) << "x";
  fs::create_symlink("loop", dir_.path() / "loop");
  for (const fs::path& path :
       {fs::path(), dir_.path(), dir_.path() / "no" / "x", dir_.path() / std::string(300, 'a'),
        path_ / "below-a-file", dir_.path() / "loop", fs::path(std::string(5000, 'a'))}) {
    try {
      put(path, "x");
      ADD_FAILURE() << "expected an error for " << path;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace kvfork::base
