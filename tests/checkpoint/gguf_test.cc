// GGUF files, sound and hostile, and dequantization against the values of the gguf package.

#include "checkpoint/gguf.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>

#include "checkpoint/safetensors.h"
#include "tests/checkpoint/support.h"
#include "tests/support/raw_gguf.h"
#include "tests/support/raw_safetensors.h"

namespace kvfork::checkpoint {
namespace {

using test::as_bytes;
using test::expect_error;
using test::GgufBuilder;
using test::raw;
using test::raw_gguf_string;

GgufFile parse(std::string_view file) {
  return GgufFile::parse(as_bytes(file), "F");
}

void expect_corrupt(const GgufBuilder& gguf, std::string_view part) {
  const std::string file = gguf.build();
  expect_error(
      ErrorCode::Corrupt, [&] { parse(file); }, "F: ", part);
}

TEST(Gguf, ReadsMetadataOfEveryType) {
  GgufBuilder gguf;
  gguf.add_raw("u8", 0, raw(uint8_t{200}));
  gguf.add_raw("i8", 1, raw(int8_t{-3}));
  gguf.add_raw("u16", 2, raw(uint16_t{60000}));
  gguf.add_raw("i16", 3, raw(int16_t{-300}));
  gguf.add_raw("u32", 4, raw(uint32_t{4000000000}));
  gguf.add_raw("i32", 5, raw(int32_t{-70000}));
  gguf.add("f32", 1.5f);
  gguf.add("yes", true);
  gguf.add("text", "héllo");
  gguf.add_raw("u64", 10, raw(uint64_t{1} << 40));
  gguf.add_raw("i64", 11, raw(-(int64_t{1} << 40)));
  gguf.add_raw("f64", 12, raw(0.1));
  gguf.add("strings", std::vector<std::string>{"a", "", "c"});
  gguf.add("integers", std::vector<int32_t>{1, -2});
  gguf.add_raw("floats", 9, raw(uint32_t{6}) + raw(uint64_t{2}) + raw(0.5f) + raw(-1.0f));
  gguf.add_raw("nested", 9, raw(uint32_t{9}) + raw(uint64_t{1}) + raw(uint32_t{0}) + raw(uint64_t{2}) + "ab");
  const std::string bytes = gguf.build();
  const GgufFile file = parse(bytes);
  EXPECT_EQ(file.values().size(), 16u);
  EXPECT_EQ(file.find_integer("u8"), 200);
  EXPECT_EQ(file.find_integer("i8"), -3);
  EXPECT_EQ(file.find_integer("u16"), 60000);
  EXPECT_EQ(file.find_integer("i16"), -300);
  EXPECT_EQ(file.find_integer("u32"), 4000000000);
  EXPECT_EQ(file.find_integer("i32"), -70000);
  EXPECT_EQ(file.find_number("f32"), 1.5);
  EXPECT_EQ(file.find_number("u8"), 200.0);
  EXPECT_EQ(file.find_bool("yes"), true);
  EXPECT_EQ(file.find_string("text"), "héllo");
  EXPECT_EQ(file.find_integer("u64"), int64_t{1} << 40);
  EXPECT_EQ(file.find_integer("i64"), -(int64_t{1} << 40));
  EXPECT_EQ(file.find_number("f64"), 0.1);
  EXPECT_EQ(file.find_strings("strings"), (std::vector<std::string_view>{"a", "", "c"}));
  EXPECT_EQ(file.find_integers("integers"), (std::vector<int32_t>{1, -2}));
  EXPECT_EQ(file.find_numbers("floats"), (std::vector<float>{0.5f, -1.0f}));
  EXPECT_EQ(file.find_string("none"), std::nullopt);
  EXPECT_EQ(file.find_strings("none"), std::nullopt);
  expect_error(
      ErrorCode::Corrupt, [&] { file.find_string("u8"); }, "F: u8: expected a string");
  expect_error(
      ErrorCode::Corrupt, [&] { file.find_integer("f32"); }, "F: f32: expected an integer");
  expect_error(
      ErrorCode::Corrupt, [&] { file.find_number("text"); }, "F: text: expected a number");
  expect_error(
      ErrorCode::Corrupt, [&] { file.find_bool("u8"); }, "F: u8: expected a bool");
  expect_error(
      ErrorCode::Corrupt, [&] { file.find_strings("integers"); }, "F: integers: expected an array of strings");
  expect_error(
      ErrorCode::Corrupt, [&] { file.find_integers("strings"); }, "F: strings: expected an array");
  expect_error(
      ErrorCode::Corrupt, [&] { file.find_numbers("nested"); }, "F: nested: expected an array");
  expect_error(
      ErrorCode::Corrupt, [&] { file.architecture(); }, "F: general.architecture is missing");
}

TEST(Gguf, ReadsTensorsOutermostFirst) {
  GgufBuilder gguf;
  gguf.version = 2;
  gguf.add("general.architecture", "gemma3");
  gguf.add_tensor("a", {3, 2}, 0, std::string(24, 'x'));
  gguf.add_tensor("q", {32, 2}, 3, std::string(40, 'y'));
  gguf.add_tensor("future", {32}, 77, "");
  const std::string bytes = gguf.build();
  const GgufFile file = parse(bytes);
  EXPECT_EQ(file.architecture(), "gemma3");
  const GgufTensor* a = file.find_tensor("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(a->n_bytes, 24u);
  EXPECT_EQ(static_cast<char>(a->data[23]), 'x');
  const GgufTensor* q = file.find_tensor("q");
  EXPECT_EQ(q->type->name, "Q4_1");
  EXPECT_EQ(q->n_bytes, 40u);
  EXPECT_EQ(static_cast<char>(q->data[0]), 'y');
  EXPECT_EQ(file.find_tensor("future")->type, nullptr);
  EXPECT_EQ(file.find_tensor("b"), nullptr);
}

TEST(Gguf, HonoursTheAlignmentInTheFile) {
  GgufBuilder gguf;
  gguf.alignment = 128;
  gguf.add("general.alignment", uint32_t{128});
  gguf.add_tensor("a", {1}, 0, raw(1.0f));
  gguf.add_tensor("b", {1}, 0, raw(2.0f));
  const std::string bytes = gguf.build();
  const GgufFile file = parse(bytes);
  EXPECT_EQ(file.find_tensor("b")->data - file.find_tensor("a")->data, 128);
  EXPECT_EQ(file.find_tensor("b")->data[3], std::byte{0x40});
}

TEST(Gguf, RefusesOtherFilesAndVersions) {
  expect_error(
      ErrorCode::Corrupt, [] { parse(""); }, "F: ", "truncated");
  expect_error(
      ErrorCode::Corrupt, [] { parse("GGML...................."); }, "F: expected a GGUF file");
  GgufBuilder gguf;
  gguf.version = 1;
  const std::string old = gguf.build();
  expect_error(
      ErrorCode::Unsupported, [&] { parse(old); }, "F: expected GGUF version 2 or 3, found 1");
  gguf.version = 0x03000000;
  const std::string swapped = gguf.build();
  expect_error(
      ErrorCode::Unsupported, [&] { parse(swapped); }, "F: big-endian");
}

TEST(Gguf, RefusesBadMetadata) {
  GgufBuilder twice;
  twice.add("k", uint32_t{1});
  twice.add("k", "x");
  expect_corrupt(twice, "the metadata key k occurs twice");
  GgufBuilder unknown;
  unknown.add_raw("k", 13, raw(uint64_t{0}));
  expect_corrupt(unknown, "k: unknown value type 13");
  GgufBuilder empty;
  empty.add("", uint32_t{1});
  expect_corrupt(empty, "is empty, not UTF-8");
  GgufBuilder long_string;
  long_string.add_raw("k", 8, raw(~uint64_t{0}));
  expect_corrupt(long_string, "expected 18446744073709551615 bytes for k");
  GgufBuilder overflow;
  overflow.add_raw("k", 9, raw(uint32_t{10}) + raw(uint64_t{1} << 61));
  expect_corrupt(overflow, "k: an array of 2305843009213693952 elements overflows");
  GgufBuilder many_strings;
  many_strings.add_raw("k", 9, raw(uint32_t{8}) + raw(~uint64_t{0}));
  expect_corrupt(many_strings, "truncated");
  GgufBuilder alignment;
  alignment.add("general.alignment", uint32_t{24});
  expect_corrupt(alignment, "general.alignment");
  GgufBuilder zero;
  zero.add("general.alignment", uint32_t{0});
  expect_corrupt(zero, "general.alignment");
}

TEST(Gguf, BoundsTheNestingOfArrays) {
  std::string bytes;
  for (int i = 0; i < 100; ++i) bytes += raw(uint32_t{9}) + raw(uint64_t{1});
  GgufBuilder gguf;
  gguf.add_raw("k", 9, bytes);
  const std::string file = gguf.build();
  expect_error(
      ErrorCode::Limit, [&] { parse(file); }, "F: k: arrays are nested");
}

TEST(Gguf, RefusesCountsThatCannotFit) {
  for (const uint64_t n : {uint64_t{1000}, ~uint64_t{0}}) {
    const std::string tensors = "GGUF" + raw(uint32_t{3}) + raw(n) + raw(uint64_t{0}) + std::string(100, '\0');
    expect_error(
        ErrorCode::Corrupt, [&] { parse(tensors); }, "F: ", "cannot fit");
    const std::string values = "GGUF" + raw(uint32_t{3}) + raw(uint64_t{0}) + raw(n) + std::string(100, '\0');
    expect_error(
        ErrorCode::Corrupt, [&] { parse(values); }, "F: ", "cannot fit");
  }
}

TEST(Gguf, RefusesBadTensors) {
  const auto with_info = [](std::vector<uint64_t> shape, uint32_t type, uint64_t offset) {
    GgufBuilder gguf;
    gguf.add_tensor("first", {8}, 0, std::string(32, 'x'));
    gguf.add_tensor_info("t", shape, type, offset);
    return gguf;
  };
  expect_corrupt(with_info({8}, 0, 32), "t: expected 32 bytes at offset 32");
  expect_corrupt(with_info({8}, 0, uint64_t{1} << 62), "t: expected 32 bytes at offset");
  expect_corrupt(with_info({8}, 0, 8), "t: expected an offset that is a multiple of 32");
  expect_corrupt(with_info({8}, 0, 0), "overlaps");
  expect_corrupt(with_info({8, 8, 8, 8, 8}, 0, 0), "at most 4 dimensions");
  expect_corrupt(with_info({uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0), "t: the tensor's size overflows");
  expect_corrupt(with_info({uint64_t{1} << 62}, 0, 0), "t: the tensor's size overflows");
  expect_corrupt(with_info({33}, 3, 32), "t: expected rows of a multiple of 32");
  expect_corrupt(with_info({16, 2}, 3, 32), "t: expected rows of a multiple of 32");
  GgufBuilder twice;
  twice.add_tensor("t", {1}, 0, raw(1.0f));
  twice.add_tensor("t", {1}, 0, raw(1.0f));
  expect_corrupt(twice, "the tensor t occurs twice");
  GgufBuilder name;
  name.add_tensor("\xff", {1}, 0, raw(1.0f));
  expect_corrupt(name, "is empty, not UTF-8");
}

TEST(Gguf, EveryTruncationIsRefused) {
  GgufBuilder gguf;
  test::add_tiny_llama(gguf);
  gguf.add("tokens", std::vector<std::string>{"a", "b"});
  const std::string file = gguf.build();
  for (size_t n = 0; n < file.size(); ++n) {
    SCOPED_TRACE(n);
    expect_error(
        ErrorCode::Corrupt, [&] { parse(std::string_view(file).substr(0, n)); }, "F: ");
  }
  EXPECT_NO_THROW(parse(file));
}

std::string split_part(uint16_t number, uint16_t count, int32_t n_tensors, std::string_view tensor) {
  GgufBuilder gguf;
  if (number == 0) gguf.add("general.architecture", "llama");
  gguf.add_raw("split.no", 2, raw(number));
  gguf.add_raw("split.count", 2, raw(count));
  gguf.add_raw("split.tensors.count", 5, raw(n_tensors));
  gguf.add_tensor(tensor, {1}, 0, raw(static_cast<float>(number)));
  return gguf.build();
}

TEST(Gguf, OpensSplitFiles) {
  const test::TempDir dir;
  const auto path = [&](const char* name) { return dir.path() / name; };
  test::write_file(path("m-00001-of-00002.gguf"), split_part(0, 2, 2, "a"));
  expect_error(
      ErrorCode::NotFound, [&] { GgufFile::open(path("m-00001-of-00002.gguf")); }, "m-00002-of-00002.gguf");
  test::write_file(path("m-00002-of-00002.gguf"), split_part(1, 2, 2, "b"));
  const GgufFile file = GgufFile::open(path("m-00001-of-00002.gguf"));
  EXPECT_EQ(file.architecture(), "llama");
  EXPECT_EQ(file.tensors().size(), 2u);
  ASSERT_NE(file.find_tensor("b"), nullptr);
  EXPECT_EQ(file.find_tensor("b")->data[3], std::byte{0x3f});
  expect_error(
      ErrorCode::InvalidArgument, [&] { GgufFile::open(path("m-00002-of-00002.gguf")); }, "-00001-of-00002.gguf");

  test::write_file(path("m-00002-of-00002.gguf"), split_part(1, 2, 2, "a"));
  expect_error(
      ErrorCode::Corrupt, [&] { GgufFile::open(path("m-00001-of-00002.gguf")); }, "the tensor a occurs twice");
  test::write_file(path("m-00001-of-00002.gguf"), split_part(0, 2, 3, "c"));
  expect_error(
      ErrorCode::Corrupt, [&] { GgufFile::open(path("m-00001-of-00002.gguf")); }, "split.tensors.count");
  test::write_file(path("renamed.gguf"), split_part(0, 2, 2, "a"));
  expect_error(
      ErrorCode::InvalidArgument, [&] { GgufFile::open(path("renamed.gguf")); }, "-00001-of-00002.gguf");
}

// Every type that can be dequantized, against the `gguf` package's values for the same blocks, bit for bit.
TEST(GgmlType, DequantizesAsTheReference) {
  const Safetensors goldens = Safetensors::open(test::golden() / "gguf" / "dequantize.safetensors");
  size_t n_types = 0;
  for (const GgmlType& type : ggml_types()) {
    if (type.dequantize == nullptr || type.name == "F32" || type.name == "BF16") continue;
    SCOPED_TRACE(type.name);
    ++n_types;
    const TensorView* blocks = goldens.find_tensor(std::string(type.name) + ".blocks");
    const TensorView* values = goldens.find_tensor(std::string(type.name) + ".values");
    ASSERT_NE(blocks, nullptr);
    ASSERT_NE(values, nullptr);
    ASSERT_EQ(blocks->n_bytes % type.block_bytes, 0u);
    const size_t n_blocks = blocks->n_bytes / type.block_bytes;
    ASSERT_GT(n_blocks, 0u);
    ASSERT_EQ(values->n_bytes, n_blocks * type.block_elements * sizeof(float));
    std::vector<float> expected(n_blocks * type.block_elements);
    std::memcpy(expected.data(), values->data, values->n_bytes);
    std::vector<float> found(expected.size(), -1);
    type.dequantize(blocks->data, n_blocks, found.data());
    for (size_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(expected[i])) << i << ": " << found[i];
  }
  EXPECT_EQ(n_types, 13u);
}

TEST(GgmlType, WidensBf16AndKeepsSpecials) {
  const uint16_t in[] = {0x3f80, 0xc000, 0x7f80, 0x0001};
  float out[4];
  find_ggml_type(30)->dequantize(reinterpret_cast<const std::byte*>(in), 4, out);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], -2.0f);
  EXPECT_EQ(out[2], std::numeric_limits<float>::infinity());
  EXPECT_EQ(std::bit_cast<uint32_t>(out[3]), 0x00010000u);
  const uint16_t halves[] = {0x7c00, 0xfc00, 0x7e00, 0x8000};
  find_ggml_type(1)->dequantize(reinterpret_cast<const std::byte*>(halves), 4, out);
  EXPECT_EQ(out[0], std::numeric_limits<float>::infinity());
  EXPECT_EQ(out[1], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(out[2] != out[2]);
  EXPECT_EQ(std::bit_cast<uint32_t>(out[3]), 0x80000000u);
}

}  // namespace
}  // namespace kvfork::checkpoint
