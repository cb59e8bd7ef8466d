// Hub ids, revisions, file names and ETags.

#include "hub/names.h"

#include <gtest/gtest.h>

#include "kvfork/error.h"
#include "kvfork/hub.h"

namespace kvfork::hub {
namespace {

TEST(HubRef, ReadsIdsAndRevisions) {
  const auto ref = HubRef::parse("Qwen/Qwen2-0.5B-Instruct");
  ASSERT_TRUE(ref);
  EXPECT_EQ(ref->repo_id, "Qwen/Qwen2-0.5B-Instruct");
  EXPECT_EQ(ref->revision, "main");
  EXPECT_EQ(HubRef::parse("a/b@refs/pr/3")->revision, "refs/pr/3");
  EXPECT_EQ(HubRef::parse("gpt2@v1.0")->repo_id, "gpt2");
  EXPECT_TRUE(HubRef::parse("a/" + std::string(96, 'b')));
}

TEST(HubRef, RefusesWhatIsNoId) {
  for (const char* text : {"",         "@",           "a/",
                           "/a",       "a/b/c",       "a//b",
                           "a/b@",     "-a/b",        "a/b-",
                           "a/.b",     "a/b.",        "a/b..c",
                           "a/b--c",   "a/b.git",     "a b",
                           "a/b\n",    "../a",        "./a",
                           "~/a",      "a/b@..",      "a/b@x/../y",
                           "a/b@/x",   "a/b@x//y",    "a/b@x\\y",
                           "a/b@x\ny", "a\xc3\xa9/b", "https://huggingface.co/a/b"}) {
    EXPECT_FALSE(HubRef::parse(text)) << text;
  }
  EXPECT_FALSE(HubRef::parse("a/" + std::string(97, 'b')));
  EXPECT_FALSE(HubRef::parse(std::string_view("a/b\0c", 5)));
}

TEST(Names, StayInside) {
  for (const char* good : {"a", "a/b", "a.b/..c", "...", "a b", "\xc3\xa9"})
    EXPECT_TRUE(stays_inside(good)) << good;
  for (const char* bad : {"", ".", "..", "a/..", "../a", "/a", "a/", "a//b", "a/./b", "a\\b", "a\nb", "a\x7f"}) {
    EXPECT_FALSE(stays_inside(bad)) << bad;
  }
  EXPECT_FALSE(stays_inside(std::string(256, 'a')));
}

// huggingface_hub's _normalize_etag strips any of "W/" on the left, then quotes on both sides.
TEST(Names, NormalizeEtag) {
  EXPECT_EQ(normalize_etag("\"abc\"", "x"), "abc");
  EXPECT_EQ(normalize_etag("W/\"abc\"", "x"), "abc");
  EXPECT_EQ(normalize_etag("abc", "x"), "abc");
  for (const char* bad : {"", "\"\"", "\"..\"", "\"a/b\"", "\"../a\"", "W/\"/a\"", "\"a\\b\"", "\"a\tb\""}) {
    EXPECT_THROW(normalize_etag(bad, "x"), Error) << bad;
  }
  EXPECT_THROW(normalize_etag(std::string(245, 'a'), "x"), Error) << "no room for .incomplete";
}

TEST(Names, Commits) {
  EXPECT_TRUE(is_commit("0123456789abcdef0123456789abcdef01234567"));
  EXPECT_FALSE(is_commit("0123456789ABCDEF0123456789abcdef01234567"));
  EXPECT_FALSE(is_commit("0123456789abcdef0123456789abcdef0123456"));
}

TEST(Names, PercentEncode) {
  EXPECT_EQ(percent_encode("refs/pr/1", Slashes::Encode), "refs%2Fpr%2F1");
  EXPECT_EQ(percent_encode("a b/c+\xc3\xa9~", Slashes::Keep), "a%20b/c%2B%C3%A9~");
}

}  // namespace
}  // namespace kvfork::hub
