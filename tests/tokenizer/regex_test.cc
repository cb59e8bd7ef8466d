// Regular expressions of tokenizers as the tokenizers package finds them.

#include "tokenizer/regex.h"

#include <gtest/gtest.h>

#include <string>

namespace kvfork::tokenizer {
namespace {

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  std::vector<Span> spans;
  Regex::compile(pattern, "test").find_all(text, spans);
  std::vector<std::string> out;
  for (const Span& span : spans) out.emplace_back(text.substr(span.begin, span.size()));
  return out;
}

using Strings = std::vector<std::string>;

TEST(Regex, FindsByBytePositionInNonAsciiText) {
  EXPECT_EQ(matches(R"(\p{L}+)", "é1日本 x"), (Strings{"é", "日本", "x"}));
}

TEST(Regex, BracedQuantifierFollowedByPlusRepeatsTheGroup) {
  EXPECT_EQ(matches("a{1,2}+", "aaaaa"), (Strings{"aaaaa"}));
}

TEST(Regex, CaretAndDollarAreLineAnchors) {
  EXPECT_EQ(matches("^a|b$", "a\nab\nb"), (Strings{"a", "a", "b", "b"}));
}

// As the tokenizers package (Oniguruma) finds them.
TEST(Regex, WithoutCaseSeveralCharactersMayEqualOne) {
  EXPECT_EQ(matches("(?i)[a-cß]+", "ysſABxẞ"), (Strings{"sſAB", "ẞ"}));
  EXPECT_EQ(matches("(?i)ss", "ß ẞ Ss sſ"), (Strings{"ß", "ẞ", "Ss", "sſ"}));
  EXPECT_EQ(matches("(?i)ffi", "ﬃ FFI ﬀi fﬁ"), (Strings{"ﬃ", "FFI"}));
  EXPECT_EQ(matches("(?i)ﬆ+x", "stﬅSTx"), (Strings{"stﬅSTx"}));
  EXPECT_EQ(matches("(?i)[^ß]", "ssß"), (Strings{"s", "s"}));
  EXPECT_EQ(matches("(?i)i", "İıIi"), (Strings{"I", "i"}));
}

}  // namespace
}  // namespace kvfork::tokenizer
