// Mapped files and memory regions: moves, protection, and errors that name the path.

#include <gtest/gtest.h>

#include <cstring>

#include "base/mapped_file.h"
#include "base/memory_region.h"
#include "kvfork/error.h"
#include "tests/support/temp_dir.h"

namespace kvfork::base {
namespace {

ErrorCode code_of(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "expected an error";
  return ErrorCode::Limit;
}

TEST(MappedFile, MapsAndMoves) {
  const test::TempDir dir;
  MappedFile file = MappedFile::open(dir.write("a", "hello"));
  ASSERT_EQ(file.bytes().size(), 5u);
  const MappedFile moved = std::move(file);
  EXPECT_EQ(std::memcmp(moved.bytes().data(), "hello", 5), 0);
  EXPECT_EQ(MappedFile::open(dir.write("empty", "")).bytes().size(), 0u);
}

TEST(MappedFile, SaysWhatIsWrong) {
  const test::TempDir dir;
  EXPECT_EQ(code_of([&] { MappedFile::open(dir.path() / "none"); }), ErrorCode::NotFound);
  EXPECT_EQ(code_of([&] { MappedFile::open(dir.path()); }), ErrorCode::Io);
  EXPECT_EQ(code_of([&] { read_file(dir.write("big", "12345"), 4); }), ErrorCode::Limit);
}

TEST(MemoryRegion, IsZeroedAndRefusesWritesOnceReadOnly) {
  MemoryRegion region = MemoryRegion::allocate(10000, "test");
  for (size_t i = 0; i < 10000; ++i) ASSERT_EQ(region.data()[i], std::byte{0});
  region.data()[9999] = std::byte{7};
  region.make_read_only();
  EXPECT_EQ(region.data()[9999], std::byte{7});
  EXPECT_DEATH(region.data()[0] = std::byte{1}, "");
}

TEST(MemoryRegion, RefusalIsALimitError) {
  EXPECT_EQ(code_of([] { MemoryRegion::allocate(size_t{1} << 60, "test"); }), ErrorCode::Limit);
}

}  // namespace
}  // namespace kvfork::base
