// Text from servers and the environment: URLs, waits, indexes, GGUF part names.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

#include "hub/http.h"
#include "hub/model_files.h"
#include "hub/reply_errors.h"
#include "hub/settings.h"
#include "hub/stall_timer.h"
#include "hub/url.h"
#include "kvfork/error.h"

namespace kvfork::hub {
namespace {

TEST(Url, OriginHoldsThePort) {
  EXPECT_EQ(parse_url("https://Hub.Example/a?b", "x").origin, "https://hub.example:443");
  EXPECT_EQ(parse_url("http://127.0.0.1:8080", "x").origin, "http://127.0.0.1:8080");
  EXPECT_NE(parse_url("http://a/", "x").origin, parse_url("https://a/", "x").origin);
  EXPECT_THROW(parse_url("no url", "x"), Error);
  EXPECT_THROW(parse_url("https://user:word@host/", "x"), Error);
}

TEST(Url, Redirects) {
  const Url base = parse_url("https://hub.example/org/tiny/resolve/main/a.json?x=1", "x");
  EXPECT_EQ(resolve_location(base, "/b").full, "https://hub.example/b");
  EXPECT_EQ(resolve_location(base, "b").full, "https://hub.example/org/tiny/resolve/main/b");
  EXPECT_EQ(resolve_location(base, "//other.example/b").origin, "https://other.example:443");
  EXPECT_EQ(resolve_location(base, "http://hub.example/b").scheme, "http");
  EXPECT_THROW(resolve_location(base, "https://user@hub.example/b"), Error);
  EXPECT_THROW(resolve_location(base, "http://[broken/"), Error);
  EXPECT_TRUE(is_relative("/a:b"));
  EXPECT_TRUE(is_relative("a/b"));
  EXPECT_FALSE(is_relative("//host/a"));
  EXPECT_FALSE(is_relative("http://host/a"));
}

TEST(Url, MessagesShowNoSecrets) {
  EXPECT_EQ(printable_url("https://a/b?signature=x"), "https://a/b");
  EXPECT_EQ(printable_url("https://user:word@a/b#c"), "https://a/b");
  EXPECT_EQ(printable_url("https://a/b\nc"), "https://a/b c");
}

TEST(StallTimer, RetryAfter) {
  EXPECT_EQ(parse_retry_after("120"), Milliseconds(120000));
  EXPECT_EQ(parse_retry_after("0"), Milliseconds(0));
  EXPECT_EQ(parse_retry_after("-5"), Milliseconds(0));
  EXPECT_GT(*parse_retry_after("99999999999999999999999"), std::chrono::hours(24));
  EXPECT_FALSE(parse_retry_after("soon"));
  EXPECT_FALSE(parse_retry_after(""));
  char date[64];
  const std::time_t in_an_hour = std::time(nullptr) + 3600;
  std::strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", std::gmtime(&in_an_hour));
  EXPECT_NEAR(static_cast<double>(parse_retry_after(date)->count()), 3600e3, 5e3);
  EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT"), Milliseconds(0));
}

TEST(StallTimer, EndsWaitsAtItsBound) {
  StallTimer timer(Milliseconds(1500));
  EXPECT_FALSE(timer.wait(1, Milliseconds(2000)));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(timer.wait(1, Milliseconds(0)));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, Milliseconds(250));
  EXPECT_LT(timer.left(), Milliseconds(1300));
  timer.progress();
  EXPECT_GT(timer.left(), Milliseconds(1300));
  timer.stop();
  EXPECT_FALSE(timer.wait(1, Milliseconds(0)));
}

TEST(Plan, ShardNames) {
  EXPECT_EQ(parse_shard_names(R"({"weight_map": {"a": "y", "b": "x", "c": "y"}})", "s"),
            (std::vector<std::string>{"x", "y"}));
  for (const char* bad :
       {"", "{}", "[]", R"({"weight_map": {}})", R"({"weight_map": {"a": 1}})", R"({"weight_map": {"a": "../x"}})",
        R"({"weight_map": {"a": "/x"}})", R"({"weight_map": {"a": ""}})", R"({"weight_map": {"a": "x\u0000y"}})"}) {
    EXPECT_THROW(parse_shard_names(bad, "s"), Error) << bad;
  }
}

TEST(Plan, GgufParts) {
  EXPECT_EQ(gguf_parts("a.gguf"), (std::vector<std::string>{"a.gguf"}));
  EXPECT_EQ(
      gguf_parts("d/a-00002-of-00003.gguf"),
      (std::vector<std::string>{"d/a-00001-of-00003.gguf", "d/a-00002-of-00003.gguf", "d/a-00003-of-00003.gguf"}));
  for (const char* single :
       {"a-00001-of-00000.gguf", "a-0001-of-00002.gguf", "a-00001-of-0000x.gguf", "a-00001-of-99999.gguf"}) {
    EXPECT_EQ(gguf_parts(single), (std::vector<std::string>{single}));
  }
}

TEST(Plan, SmallFiles) {
  const std::vector<std::string> listed = {"README.md",
                                           "tokenizer.json",
                                           "config.json",
                                           "model.safetensors",
                                           "model.safetensors.index.json",
                                           "additional_chat_templates/a.jinja",
                                           "additional_chat_templates/a.txt",
                                           "sub/config.json",
                                           "pytorch_model.bin"};
  EXPECT_EQ(choose_small_files(listed, {}),
            (std::vector<std::string>{"config.json", "tokenizer.json", "additional_chat_templates/a.jinja"}));
  PullOptions gguf;
  gguf.gguf_file = "x.gguf";
  EXPECT_TRUE(choose_small_files(listed, gguf).empty());
}

TEST(Explanation, WhatMayPass) {
  const auto done = [](int status) {
    Reply reply;
    reply.status = status;
    return reply;
  };
  for (const int status : {408, 429, 500, 502, 503, 504}) EXPECT_TRUE(is_transient(done(status))) << status;
  for (const int status : {200, 206, 304, 400, 401, 403, 404, 416, 501})
    EXPECT_FALSE(is_transient(done(status))) << status;
}

TEST(Explanation, PrintableText) {
  EXPECT_EQ(printable("a\r\nb\x1b[31m"), "a  b\\u001B[31m");
  EXPECT_EQ(printable("\xff"), "\xef\xbf\xbd");
  EXPECT_LE(printable(std::string(100000, 'x')).size(), 300U);
}

// Python's os.path.expanduser and expandvars.
TEST(Settings, ExpandPath) {
  ::setenv("HOME", "/home/me", 1);
  ::setenv("KVFORK_TEST_X", "x", 1);
  ::unsetenv("KVFORK_TEST_Y");
  EXPECT_EQ(expand_path("~"), "/home/me");
  EXPECT_EQ(expand_path("~/a"), "/home/me/a");
  EXPECT_EQ(expand_path("a~/b"), "a~/b");
  EXPECT_EQ(expand_path("/$KVFORK_TEST_X/${KVFORK_TEST_X}y/$KVFORK_TEST_Y/${KVFORK_TEST_Y}/$"),
            "/x/xy/$KVFORK_TEST_Y/${KVFORK_TEST_Y}/$");
  EXPECT_EQ(expand_path("${unclosed"), "${unclosed");
}

}  // namespace
}  // namespace kvfork::hub
