// The JSON front: what is read, what is refused and where, what is written.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "base/json_text.h"
#include "base/json_tree.h"
#include "base/number.h"

namespace kvfork::base {
namespace {

std::string error_of(std::string text, const JsonRules& rules = {}) {
  try {
    JsonTree::parse(std::move(text), "x.json", rules);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::Corrupt);
    return error.what();
  }
  return "";
}

// The message of what `action` throws.
template <typename Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(JsonTree, ReadsValuesInTheOrderOfTheText) {
  const JsonTree tree =
      JsonTree::parse(R"( {"b": [1, -2.5e1, "x\n\u00e9\ud83d\ude00"], "a": {"c": null}, "b2": true} )", "x.json");
  const Json root = tree.root();
  std::vector<std::string> keys;
  for (const auto& [key, value] : root.members()) keys.emplace_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"b", "a", "b2"}));
  EXPECT_EQ(root.size(), 3u);
  const Json list = root.get("b");
  std::vector<Json> items;
  for (const Json item : list.items()) items.push_back(item);
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(items[0].as_int(), 1);
  EXPECT_EQ(items[1].as_double(), -25.0);
  EXPECT_EQ(items[2].as_string(), "x\né😀");
  EXPECT_EQ(items[2].raw(), R"("x\n\u00e9\ud83d\ude00")");
  EXPECT_TRUE(root.get("b2").as_bool());
  EXPECT_FALSE(root.get("a").find("c"));
  EXPECT_TRUE(root.get("a").has("c"));
  EXPECT_FALSE(root.has("c"));
  EXPECT_EQ(list.raw(), R"([1, -2.5e1, "x\n\u00e9\ud83d\ude00"])");
}

TEST(JsonTree, TheLastOfRepeatedKeysCounts) {
  const JsonTree tree = JsonTree::parse(R"({"a": 1, "a": 2, "\u0061": 3})", "x.json");
  EXPECT_EQ(tree.root().get("a").as_int(), 3);
}

TEST(JsonTree, IntegersKeepTheirDigits) {
  const JsonTree tree = JsonTree::parse(
      "[18446744073709551615, 1000000000000000019884624838656, -9223372036854775808, -1, 1.0, 300]", "x.json");
  std::vector<Json> items;
  for (const Json item : tree.root().items()) items.push_back(item);
  EXPECT_EQ(items[0].to<uint64_t>(), UINT64_MAX);
  EXPECT_EQ(items[0].to<int64_t>(), std::nullopt);
  EXPECT_EQ(items[0].as_int(), INT64_MAX);
  EXPECT_EQ(items[1].raw(), "1000000000000000019884624838656");
  EXPECT_EQ(items[1].as_double(), 1e30);
  EXPECT_EQ(items[2].as_int(), INT64_MIN);
  EXPECT_EQ(items[3].to<uint64_t>(), std::nullopt);
  EXPECT_EQ(items[4].to<int64_t>(), std::nullopt);
  EXPECT_EQ(items[5].to<uint8_t>(), std::nullopt);
}

TEST(JsonTree, ErrorsNameThePlace) {
  EXPECT_EQ(error_of("{\"a\": 1,\n \"b\" 2}"),
            "x.json: expected JSON with ':' at line 2, column 6 (byte 14), found something else");
  EXPECT_EQ(error_of("[1, 2"),
            "x.json: expected JSON with ',' or ']' at line 1, column 6 (byte 5), found the end of the text");
  EXPECT_EQ(error_of("[1] 2"),
            "x.json: expected JSON with the end of the text at line 1, column 5 (byte 4), found something else");
  EXPECT_EQ(error_of("[\"\xFF\"]"),
            "x.json: expected JSON with UTF-8 at line 1, column 3 (byte 2), found something else");
  EXPECT_EQ(error_of(""), "x.json: expected JSON, found an empty file");
  EXPECT_NE(error_of("version https://git-lfs.github.com/spec/v1\n").find("Git LFS pointer"), std::string::npos);
  EXPECT_NE(error_of("<!DOCTYPE html>").find("HTML"), std::string::npos);
}

TEST(JsonTree, RefusesWhatIsNotJson) {
  using namespace std::string_literals;
  for (const std::string& text : {" "s,           "[1,]"s,        "[1 2]"s,
                                  "{\"a\" 1}"s,   "{a: 1}"s,      "{\"a\": 1,}"s,
                                  "'a'"s,         "01"s,          "1."s,
                                  ".5"s,          "+1"s,          "tru"s,
                                  "nan"s,         "\"a"s,         "\"\\x\""s,
                                  "\"\\u12\""s,   "\"\n\""s,      "{\"a\":}"s,
                                  "["s,           "-"s,           "--1"s,
                                  "1e"s,          "\"\x01\""s,    "[1]]"s,
                                  "1\0"s,         "\"\0\""s,      "\"\\\0\""s,
                                  "\0"s,          "NaN"s,         "Infinity"s,
                                  "-Infinity"s,   "\"\\ud800\""s, "\"\\udc00\\ud800\""s,
                                  "\"\\ud800\\"s, "}"s,           "]"s,
                                  "{]"s,          "[}"s})
    EXPECT_NE(error_of(text), "") << text;
  EXPECT_NE(error_of("nul", JsonRules::python()), "");
  EXPECT_NE(error_of("-Inf", JsonRules::python()), "");
}

TEST(JsonTree, ReadsWhatPythonWrites) {
  const JsonTree tree =
      JsonTree::parse(R"({"time_step_limit": [0.0, Infinity], "x": [NaN, -Infinity], "s": "\ud800"})", "x.json",
                      JsonRules::python());
  std::vector<double> numbers;
  for (const char* key : {"time_step_limit", "x"}) {
    const Json list = tree.root().get(key);
    for (const Json item : list.items()) numbers.push_back(item.as_double());
  }
  EXPECT_EQ(numbers[0], 0.0);
  EXPECT_EQ(numbers[1], HUGE_VAL);
  EXPECT_TRUE(std::isnan(numbers[2]));
  EXPECT_EQ(numbers[3], -HUGE_VAL);
  EXPECT_EQ(tree.root().get("s").as_string(), "\xED\xA0\x80");
}

TEST(JsonTree, DepthIsBounded) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(error_of(nested(kMaxJsonDepth)), "");
  EXPECT_EQ(error_of(nested(kMaxJsonDepth + 1)),
            "x.json: expected JSON of at most 400 values inside one another, found more at line 1, column 401 "
            "(byte 400)");
  EXPECT_EQ(error_of(nested(1000), {.max_depth = 1000}), "");
  EXPECT_NE(error_of(std::string(1000000, '['), {.max_depth = 2000000}), "");  // in constant stack
  std::string wide = "[";
  for (int i = 0; i < 1000; ++i) wide += "{\"a\":[1]},";
  EXPECT_EQ(error_of(wide + "0]"), "");
}

TEST(JsonTree, WrongKindsNameFieldAndValue) {
  const JsonTree tree = JsonTree::parse(R"({"a": {"b": [0, {"c": "text"}]}, "n": null})", "x.json");
  const Json root = tree.root();
  Json item = root;
  for (const Json each : root.get("a").get("b").items()) item = each;
  EXPECT_EQ(message_of([&] { item.get("c").as_int(); }),
            "x.json.a.b[1].c: expected an integer, found the string \"text\"");
  EXPECT_EQ(message_of([&] { item.items(); }), "x.json.a.b[1]: expected a list (a JSON array), found an object");
  EXPECT_EQ(message_of([&] { root.get("n"); }), "x.json: expected a field \"n\", found none");
  EXPECT_EQ(message_of([&] { root.get("a").get("b").find("x"); }), "x.json.a.b: expected an object, found a list");
}

TEST(JsonText, WritesValues) {
  const std::vector<int> ids = {1, 2};
  const std::map<std::string, double> map = {{"x", 0.5}, {"y", 1e-7}};
  const JsonText text = {{"ids", ids},
                         {"none", nullptr},
                         {"flag", true},
                         {"map", map},
                         {"big", UINT64_MAX},
                         {"real", 3.0},
                         {"nan", std::nan("")},
                         {"maybe", std::optional<int>()},
                         {"inner", {{"s", "a\"\n\x01\xFF\u00e9"}}},
                         {"empty", std::vector<std::string>()}};
  EXPECT_EQ(text.text(),
            "{\"ids\":[1,2],\"none\":null,\"flag\":true,\"map\":{\"x\":0.5,\"y\":1e-07},\"big\":"
            "18446744073709551615,\"real\":3.0,"
            "\"nan\":null,\"maybe\":null,\"inner\":{\"s\":\"a\\\"\\n\\u0001\xEF\xBF\xBD\u00e9\"},\"empty\":[]}");
}

TEST(JsonText, GrowsAndCopiesWhatWasRead) {
  const JsonTree tree =
      JsonTree::parse(R"( { "b" : [1.50, 12345678901234567890123 ], "a" : "\u0041\/" } )", "x.json");
  JsonText object = JsonText::object();
  object.add("kept", tree.root());
  object.add("raw", JsonText::raw(std::string(tree.root().get("b").raw())));
  JsonText list = JsonText::list();
  list.push_back(object);
  list.push_back(nullptr);
  EXPECT_EQ(
      list.text(),
      R"([{"kept":{"b":[1.5,12345678901234567890123],"a":"A/"},"raw":[1.50, 12345678901234567890123 ]},null])");
}

TEST(JsonText, CanonicalTextsAreEqualForEqualFiles) {
  const auto canonical = [](const char* text) { return canonical_json(JsonTree::parse(text, "x").root(), "out"); };
  EXPECT_EQ(
      canonical(R"({"b": 1e0, "a": {"out": "é😀"}, "out": 2, "n": 1000000000000000019884624838656, "b": 0.000001})"),
      R"({"a":{"out":"\u00e9\ud83d\ude00"},"b":1e-06,"n":1e+30})");
}

TEST(Number, ReadsAsPythonDoes) {
  for (const auto& [text, value] : std::map<std::string, double>{{"0", 0},
                                                                 {"-0.5", -0.5},
                                                                 {"1e3", 1000},
                                                                 {"1E+3", 1000},
                                                                 {"1e999", HUGE_VAL},
                                                                 {"-1e999", -HUGE_VAL},
                                                                 {"1e-999", 0},
                                                                 {"0.1", 0.1},
                                                                 {"5e-324", 5e-324},
                                                                 {"0." + std::string(400, '0') + "1e402", 10},
                                                                 {"1" + std::string(400, '0') + "e-400", 1}}) {
    const auto found = parse_double(text);
    ASSERT_TRUE(found) << text;
    EXPECT_EQ(*found, value) << text;
  }
  for (const char* text : {"", "-", "inf", "nan", "-inf", "1x", "0x1", "1,5", " 1", "1 ", "e5"})
    EXPECT_FALSE(parse_double(text)) << text;
}

TEST(Number, PrintsTheShortestText) {
  for (const auto& [value, text] : std::map<double, std::string>{{0.1, "0.1"},
                                                                 {1, "1.0"},
                                                                 {1e15, "1000000000000000.0"},
                                                                 {1e16, "1e+16"},
                                                                 {1e-4, "0.0001"},
                                                                 {1e-5, "1e-05"},
                                                                 {123.456, "123.456"},
                                                                 {-2.5e-300, "-2.5e-300"}})
    EXPECT_EQ(print_double(value), text);
  EXPECT_EQ(print_double(1e15, 15), "1e+15");
}

}  // namespace
}  // namespace kvfork::base
