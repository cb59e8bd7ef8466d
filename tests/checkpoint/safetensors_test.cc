// safetensors files, sound and hostile.

#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include "tests/checkpoint/support.h"
#include "tests/support/raw_safetensors.h"

namespace kvfork::checkpoint {
namespace {

using test::as_bytes;
using test::expect_error;
using test::raw_safetensors;

Safetensors parse(std::string_view file) {
  return Safetensors::parse(as_bytes(file), "F");
}

void expect_corrupt(std::string_view header, size_t n_data, std::string_view part) {
  const std::string file = raw_safetensors(header, n_data);
  SCOPED_TRACE(header);
  expect_error(
      ErrorCode::Corrupt, [&] { parse(file); }, "F: ", part);
}

TEST(Safetensors, ReadsTensorsAndMetadataInPlace) {
  const std::string file = raw_safetensors(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[3,11]},)"
      R"("a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"e":{"dtype":"F16","shape":[0,4],"data_offsets":[11,11]},)"
      R"("s":{"dtype":"BF16","shape":[],"data_offsets":[11,13]}}  )",
      13);
  const Safetensors tensors = parse(file);
  EXPECT_EQ(tensors.metadata().at("format"), "pt");
  ASSERT_EQ(tensors.tensors().size(), 4u);
  EXPECT_EQ(tensors.file_bytes(), file.size());
  const TensorView* b = tensors.find_tensor("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, DType::F32);
  EXPECT_EQ(b->shape, (std::vector<uint64_t>{2, 1}));
  EXPECT_EQ(b->n_bytes, 8u);
  EXPECT_EQ(b->data, as_bytes(file).data() + file.size() - 13 + 3);
  EXPECT_EQ(tensors.find_tensor("e")->n_bytes, 0u);
  EXPECT_EQ(tensors.find_tensor("s")->n_bytes, 2u);
  EXPECT_EQ(tensors.find_tensor("c"), nullptr);
}

TEST(Safetensors, AcceptsAFileWithoutTensors) {
  EXPECT_TRUE(parse(raw_safetensors("{}", 0)).tensors().empty());
}

TEST(Safetensors, RefusesBadLengths) {
  expect_error(
      ErrorCode::Corrupt, [] { parse(""); }, "F: ", "at least 8 bytes, found 0");
  expect_error(
      ErrorCode::Corrupt, [] { parse("\1\0\0\0\0\0\0"); }, "F: ", "truncated");
  const std::string zero(8, '\0');
  expect_error(
      ErrorCode::Corrupt, [&] { parse(zero); }, "F: ", "empty header");
  const std::string huge(8, '\xff');
  expect_error(
      ErrorCode::Corrupt, [&] { parse(huge); }, "F: ", "100000000");
  // 100,000,001, one more than the format allows.
  const std::string above_limit("\x01\xe1\xf5\x05\0\0\0\0{}", 10);
  expect_error(
      ErrorCode::Corrupt, [&] { parse(above_limit); }, "F: ", "found a length of 100000001");
  const std::string past_end("\x03\0\0\0\0\0\0\0{}", 10);
  expect_error(
      ErrorCode::Corrupt, [&] { parse(past_end); }, "F: ", "truncated");
}

TEST(Safetensors, RefusesBadHeaders) {
  expect_corrupt(" {}", 0, "start with '{'");
  expect_corrupt("[]", 0, "start with '{'");
  expect_corrupt("{", 0, "header: expected JSON");
  expect_corrupt("{} x", 0, "line 1, column 4");
  expect_corrupt("{\"\xff\":1}", 0, "UTF-8");
  expect_corrupt(R"({"a":1})", 0, "a: expected an object");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[1]}})", 1, "found no data_offsets");
  expect_corrupt(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, "found no dtype");
  expect_corrupt(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "found no shape");
  expect_corrupt(R"({"a":{"dtype":1,"shape":[1],"data_offsets":[0,1]}})", 1, "dtype: expected a string");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 1, "shape: expected a list");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, "non-negative");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, "non-negative");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "data_offsets [begin, end]");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1, "data_offsets [begin, end]");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1, "found the key x");
  expect_corrupt(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "empty name");
  expect_corrupt(R"({"a\nb":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "control character");
  expect_corrupt(R"({"__metadata__":[]})", 0, "__metadata__: expected an object");
  expect_corrupt(R"({"__metadata__":{"a":1}})", 0, "__metadata__: a: expected a string");
  const std::string file = raw_safetensors(R"({"a":{"dtype":"F7","shape":[1],"data_offsets":[0,1]}})", 1);
  expect_error(
      ErrorCode::Unsupported, [&] { parse(file); }, "F: a: unknown dtype \"F7\"");
}

TEST(Safetensors, RefusesDuplicates) {
  expect_corrupt(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
      2, "the tensor a occurs twice");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", 1,
                 "a: shape occurs twice");
  expect_corrupt(R"({"__metadata__":{},"__metadata__":{}})", 0, "__metadata__ occurs twice");
  expect_corrupt(R"({"__metadata__":{"k":"1","k":"2"}})", 0, "the key k occurs twice");
}

TEST(Safetensors, RefusesBadLayouts) {
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 3, "expected 2 bytes of data");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3, "a hole before it");
  expect_corrupt(
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
      3, "overlaps another");
  expect_corrupt(
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})",
      4, "a hole before it");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}})", 2, "within 2 bytes");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,9]}})", 2, "within 2 bytes");
  expect_corrupt(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
                 "expected 8 bytes for F32 [2], found 4");
  expect_corrupt(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, "F4 [3]");
}

TEST(Safetensors, RefusesSizesThatOverflow) {
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "overflows");
  expect_corrupt(R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0, "overflows");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0, "overflows");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,18446744073709551615]}})",
                 0, "within 0 bytes");
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string file = raw_safetensors(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4);
  for (size_t n = 0; n < file.size(); ++n) {
    SCOPED_TRACE(n);
    expect_error(
        ErrorCode::Corrupt, [&] { parse(file.substr(0, n)); }, "F: ");
  }
}

TEST(Safetensors, OpenNamesThePath) {
  expect_error(
      ErrorCode::NotFound, [] { Safetensors::open("/nonexistent/m.safetensors"); }, "/nonexistent/m.safetensors");
  const test::TempDir dir;
  test::write_file(dir.path() / "m.safetensors", "{}");
  expect_error(
      ErrorCode::Corrupt, [&] { Safetensors::open(dir.path() / "m.safetensors"); },
      (dir.path() / "m.safetensors").string());
}

TEST(DType, NamesGoBothWays) {
  for (int i = 0; i <= static_cast<int>(DType::C64); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(find_dtype(dtype_name(dtype)), dtype);
    EXPECT_GT(dtype_bits(dtype), 0u);
  }
  EXPECT_EQ(find_dtype("F31"), std::nullopt);
}

}  // namespace
}  // namespace kvfork::checkpoint
