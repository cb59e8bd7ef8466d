// UTF-8: code points, the first ill-formed byte, and replacement as Python does it.

#include "base/utf8.h"

#include <gtest/gtest.h>

namespace kvfork::base {
namespace {

TEST(Utf8, EveryCodePointGoesThereAndBack) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, c);
    const CodePoint decoded = decode_utf8(text, 0);
    ASSERT_TRUE(decoded.valid) << std::hex << static_cast<uint32_t>(c);
    ASSERT_EQ(decoded.code_point, c);
    ASSERT_EQ(decoded.n_bytes, text.size());
  }
}

TEST(Utf8, FindsTheFirstIllFormedByte) {
  EXPECT_EQ(find_invalid_utf8("h\xC3\xA9llo"), 6u);
  EXPECT_EQ(find_invalid_utf8("ab\xFF"), 2u);
  EXPECT_EQ(find_invalid_utf8("ab\xC0\x80"), 2u);        // overlong
  EXPECT_EQ(find_invalid_utf8("\xED\xA0\x80"), 0u);      // surrogate
  EXPECT_EQ(find_invalid_utf8("\xF4\x90\x80\x80"), 0u);  // beyond U+10FFFF
  EXPECT_EQ(find_invalid_utf8("ok\xE2\x82"), 2u);        // cut short
}

// Expected values are those of Python's bytes.decode("utf-8", errors="replace").
TEST(Utf8, ReplacesMaximalSubparts) {
  EXPECT_EQ(to_valid_utf8("a\xE2\x82z"), "a\uFFFDz");
  EXPECT_EQ(to_valid_utf8("\xF0\x9F\x98"), "\uFFFD");
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(to_valid_utf8("\xC3\x28"), "\uFFFD(");
  EXPECT_EQ(to_valid_utf8("plain \xC3\xA9"), "plain \u00E9");
}

}  // namespace
}  // namespace kvfork::base
