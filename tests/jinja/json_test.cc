// JSON as Python's json module reads it.
#include <gtest/gtest.h>

#include "tests/jinja/render.h"

namespace kvfork::jinja {
namespace {

std::string shown(const std::string& json, const std::string& source = "{{ x }}") {
  RenderInput input;
  input.variables.emplace_back("x", json);
  return Template::parse(source, "t").render(input).text;
}

ErrorCode code_of(const std::string& json) {
  try {
    shown(json);
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::NotFound;
}

TEST(JsonReader, ReadsWhatPythonReads) {
  EXPECT_EQ(shown(" [1, -0, 2.50, 1e3, true, null, \"a\"] "), "[1, 0, 2.5, 1000.0, True, None, 'a']");
  EXPECT_EQ(shown("[NaN, Infinity, -Infinity, 1e999, 1E-400]"), "[nan, inf, -inf, inf, 0.0]");
  EXPECT_EQ(shown("{\"a\": 1, \"b\": 2, \"a\": 3}"), "{'a': 3, 'b': 2}");
  EXPECT_EQ(shown("\"\\u00e9\\ud83d\\ude00\\n\\/\""), "é😀\n/");
  EXPECT_EQ(shown("123456789012345678901234567890"), "123456789012345678901234567890");
  EXPECT_EQ(shown("-9223372036854775808"), "-9223372036854775808");
  EXPECT_EQ(shown("{}"), "{}");
}

TEST(JsonReader, KeepsLoneSurrogatesUntilTheyArePrinted) {
  EXPECT_EQ(shown("\"\\ud800x\"", "{{ x|length }}{{ x|tojson(true) }}"), "2\"\\ud800x\"");
  EXPECT_EQ(code_of("\"\\ud800\""), ErrorCode::Template);
}

TEST(JsonReader, RefusesWhatPythonRefuses) {
  for (const char* json :
       {"",      " ",        "[1,]", "[1 2]", "{\"a\" 1}", "{a: 1}", "{\"a\": 1,}", "'a'",       "01",
        "1.",    ".5",       "+1",   "tru",   "nan",       "\"a",    "\"\\x\"",     "\"\\u12\"", "\"\n\"",
        "[1] 2", "{\"a\":}", "[",    "-",     "--1",       "1e",     "\"\x01\"",    "\xFF",      "[1]]"}) {
    EXPECT_EQ(code_of(json), ErrorCode::Corrupt) << json;
  }
}

TEST(JsonReader, BigIntegersPrintAndCompareButDoNotCompute) {
  EXPECT_EQ(
      shown("18446744073709551616", "{{ x }}|{{ x|tojson }}|{{ x > 1 }}|{{ x == x }}|{{ x is integer }}|{{ -x }}"),
      "18446744073709551616|18446744073709551616|True|True|True|-18446744073709551616");
  EXPECT_THROW(shown("18446744073709551616", "{{ x + 1 }}"), Error);
}

TEST(JsonReader, ManyKeysAreFound) {
  std::string json = "{";
  for (int i = 0; i < 1000; ++i) json += (i ? ",\"k" : "\"k") + std::to_string(i) + "\":" + std::to_string(i);
  EXPECT_EQ(
      shown(json + "}", "{{ x.k0 + x.k8 + x.k9 + x['k999'] }}{{ 'k500' in x }}{{ 'k1000' in x }}{{ x|length }}"),
      "1016TrueFalse1000");
}

}  // namespace
}  // namespace kvfork::jinja
