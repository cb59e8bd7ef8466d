// Text that no terminal acts on.
#include "base/visible_text.h"

#include <gtest/gtest.h>

namespace kvfork::base {
namespace {

TEST(VisibleText, ShowsControlsByTheirCode) {
  EXPECT_EQ(to_visible_text("a\x1b[31mb\x07\x7f"), "a\\u001B[31mb\\u0007\\u007F");
  EXPECT_EQ(to_visible_text("\xc2\x9b"
                            "2J"),
            "\\u009B2J");  // C1
  EXPECT_EQ(to_visible_text(std::string("\0x", 2)), "\\u0000x");
}

TEST(VisibleText, ShowsMarksThatReorderOrBreakLines) {
  EXPECT_EQ(to_visible_text("\u202Eabc\u202C\u2066\u2069\u200F\u061C"),
            "\\u202Eabc\\u202C\\u2066\\u2069\\u200F\\u061C");
  EXPECT_EQ(to_visible_text("\u2028"), "\\u2028");
}

TEST(VisibleText, LeavesTextAlone) {
  const std::string text = "Gr\u00FC\u00DFe, \u4F60\u597D \U0001F600 \u0627\u0644 'x' \"y\" \\u";
  EXPECT_EQ(to_visible_text(text), text);
}

TEST(VisibleText, LineBreaksStayOrBecomeSpaces) {
  EXPECT_EQ(to_visible_text("a\r\nb\tc"), "a  b c");
  EXPECT_EQ(to_visible_text("a\nb\tc", LineBreaks::Keep), "a\nb\tc");
  EXPECT_EQ(to_visible_text("a\rb", LineBreaks::Keep), "a\\u000Db");  // would overwrite the line
}

TEST(VisibleText, IllFormedBytesAreReplaced) {
  EXPECT_EQ(to_visible_text("\x9b"
                            "a\xff"),
            "\uFFFD"
            "a\uFFFD");
}

}  // namespace
}  // namespace kvfork::base
