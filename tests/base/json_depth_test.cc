// The count of nested brackets in a JSON text.

#include "base/json_depth.h"

#include <gtest/gtest.h>

#include <string>

namespace kvfork::base {
namespace {

std::string nested(size_t depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

TEST(JsonDepth, CountsBracketsOutsideStrings) {
  EXPECT_FALSE(is_too_deep_json(nested(kMaxJsonDepth)));
  EXPECT_TRUE(is_too_deep_json(nested(kMaxJsonDepth + 1)));
  EXPECT_FALSE(is_too_deep_json('"' + nested(10000) + '"'));
  EXPECT_FALSE(is_too_deep_json("\"\\\"" + std::string(10000, '[') + '"'));
  std::string wide;
  for (int i = 0; i < 1000; ++i) wide += "{\"a\":[1]},";
  EXPECT_FALSE(is_too_deep_json(wide));
  EXPECT_TRUE(is_too_deep_json(std::string(10000, '{')));
  EXPECT_FALSE(is_too_deep_json("]]]]"));
}

}  // namespace
}  // namespace kvfork::base
