// Where contexts end and whether they serve a request, over templates of every awkward kind.

#include "kvfork/prompt.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kvfork/boundary.h"
#include "kvfork/error.h"

namespace kvfork {
namespace {

constexpr const char* kTokenizer = KVFORK_SOURCE_DIR "/tests/golden/checkpoints/qwen2-bf16-tied";

// {% ... %} over messages in ChatML, the plain case.
constexpr const char* kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
// Wants a user message.
constexpr const char* kNeedsUser =
    "{% if messages[-1].role != 'user' %}{{ raise_exception('a user message must be last') }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}";
// Folds the system text into the first user turn, without an added token after it.
constexpr const char* kFolds =
    "{{ '<|im_start|>user\\n' }}{{ messages[0].content }}{% if messages|length > 1 %}{{ '\\n\\n' + "
    "messages[1].content }}"
    "{% endif %}{{ '<|im_end|>' }}";
// Says how many messages there are before it says anything else.
constexpr const char* kCounts = "{{ messages|length }}{% for m in messages %}{{ m.content }}{% endfor %}";

Prompter make_prompter(const char* source, const FixedPart& fixed) {
  TemplateSources sources;
  sources.subject = "test template";
  sources.chat_template_jinja = source;
  auto text =
      std::make_shared<const Text>(Tokenizer::from_directory(kTokenizer), ChatTemplate::from_sources(sources));
  ChatTemplate chat_template = text->chat_template().with_override("");
  return Prompter(std::move(text), std::move(chat_template), fixed);
}

Prompter make_prompter(const char* source) {
  return make_prompter(source, FixedPart::from_system_message("Answer from the policy. Returns take 30 days."));
}

Error error_of(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "expected an error";
  return Error(ErrorCode::Io, "");
}

bool is_prefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin());
}

const std::vector<std::string> kRequests = {"",   " ",  "\n\nHi",       "\u0301x",      "<|im_end|>",
                                            "\t", "'s", "12345 digits", "\u4E2D\u6587", std::string(100000, 'a')};

TEST(Boundary, MessageServesEveryRequestOfAPlainTemplate) {
  const Prompter prompter = make_prompter(kChatMl);
  const Prompt context = prompter.make_context(BoundaryMode::Message);
  for (const auto& text : kRequests) {
    const Prompt request = prompter.make_request(text);
    EXPECT_TRUE(is_prefix(context.ids, request.ids));
    EXPECT_EQ(count_cached_tokens(context.ids, request.ids, BoundaryMode::Message, prompter.tokenizer()),
              context.ids.size());
  }
}

TEST(Boundary, TokensThatMergeAcrossTheJoinAreRefusedAndReusedInPart) {
  FixedPart fixed;
  fixed.raw_text = "order the order the e";
  const Prompter prompter = make_prompter(kChatMl, fixed);
  const Prompt context = prompter.make_context(BoundaryMode::Message);
  const Prompt request = prompter.make_request("r");
  ASSERT_FALSE(is_prefix(context.ids, request.ids)) << "this test needs tokens that merge";
  const Error error =
      error_of([&] { count_cached_tokens(context.ids, request.ids, BoundaryMode::Message, prompter.tokenizer()); });
  EXPECT_EQ(error.code(), ErrorCode::Boundary);
  const size_t n = count_cached_tokens(context.ids, request.ids, BoundaryMode::Longest, prompter.tokenizer());
  EXPECT_GT(n, 0u);
  EXPECT_LT(n, context.ids.size());
  EXPECT_TRUE(
      std::equal(context.ids.begin(), context.ids.begin() + static_cast<ptrdiff_t>(n), request.ids.begin()));
  EXPECT_NE(context.ids[n], request.ids[n]) << "longer would have been possible";
  const std::string message = error.what();
  EXPECT_NE(message.find("position " + std::to_string(n)), std::string::npos) << message;
  EXPECT_NE(message.find("id " + std::to_string(context.ids[n])), std::string::npos) << message;
  EXPECT_NE(message.find("id " + std::to_string(request.ids[n])), std::string::npos) << message;
}

TEST(Boundary, ProbeEndsAtAnAddedToken) {
  for (const char* source : {kChatMl, kNeedsUser}) {
    const Prompter prompter = make_prompter(source);
    const Prompt context = prompter.make_context(BoundaryMode::Probe);
    ASSERT_GT(context.ids.size(), 5u);
    EXPECT_TRUE(is_safe_for_any_request(context.ids, prompter.tokenizer()));
    for (const auto& text : kRequests)
      EXPECT_TRUE(is_prefix(context.ids, prompter.make_request(text).ids)) << text.substr(0, 20);
  }
}

TEST(Boundary, ATemplateThatWantsAUserMessage) {
  const Prompter prompter = make_prompter(kNeedsUser);
  const Error error = error_of([&] { prompter.make_context(BoundaryMode::Message); });
  EXPECT_EQ(error.code(), ErrorCode::Template);
  EXPECT_NE(std::string(error.what()).find("a user message must be last"), std::string::npos);
  const Prompt longest = prompter.make_context(BoundaryMode::Longest);
  EXPECT_GE(longest.ids.size(), prompter.make_context(BoundaryMode::Probe).ids.size());
}

TEST(Boundary, ASystemTextFoldedIntoTheUserTurn) {
  const Prompter prompter = make_prompter(kFolds);
  const Prompt message = prompter.make_context(BoundaryMode::Message);
  const Prompt request = prompter.make_request("When?");
  EXPECT_EQ(error_of([&] {
              count_cached_tokens(message.ids, request.ids, BoundaryMode::Message, prompter.tokenizer());
            }).code(),
            ErrorCode::Boundary);
  EXPECT_GT(count_cached_tokens(message.ids, request.ids, BoundaryMode::Longest, prompter.tokenizer()), 5u);
  const Prompt probe = prompter.make_context(BoundaryMode::Probe);
  EXPECT_GE(probe.ids.size(), 1u);
  EXPECT_TRUE(is_prefix(probe.ids, request.ids));
}

TEST(Boundary, NothingInCommonIsRefused) {
  const Prompter prompter = make_prompter(kCounts);
  const Prompt context = prompter.make_context(BoundaryMode::Message);
  const Prompt request = prompter.make_request("x");
  for (const auto mode : {BoundaryMode::Message, BoundaryMode::Longest}) {
    EXPECT_EQ(error_of([&] { count_cached_tokens(context.ids, request.ids, mode, prompter.tokenizer()); }).code(),
              ErrorCode::Boundary);
  }
}

TEST(Boundary, AnEmptyContextIsRefused) {
  const Prompter prompter = make_prompter("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}");
  const Prompt context = prompter.make_context(BoundaryMode::Message);
  EXPECT_TRUE(context.ids.empty());
  const Prompt request = prompter.make_request("x");
  EXPECT_EQ(error_of([&] {
              count_cached_tokens(context.ids, request.ids, BoundaryMode::Message, prompter.tokenizer());
            }).code(),
            ErrorCode::Boundary);
  EXPECT_EQ(error_of([&] { prompter.make_context(BoundaryMode::Probe); }).code(), ErrorCode::Boundary);
}

TEST(Boundary, LongestLeavesSomethingToRun) {
  const Tokenizer tokenizer = Tokenizer::from_directory(kTokenizer);
  const std::vector<int32_t> context = {5, 6, 7, 8};
  const std::vector<int32_t> shorter = {5, 6, 7};
  EXPECT_EQ(count_cached_tokens(context, shorter, BoundaryMode::Longest, tokenizer), 2u);
  EXPECT_EQ(count_cached_tokens(context, context, BoundaryMode::Longest, tokenizer), 4u)
      << "its logits are in the context";
  EXPECT_EQ(count_cached_tokens(context, context, BoundaryMode::Message, tokenizer), 4u);
  EXPECT_EQ(error_of([&] { count_cached_tokens(context, shorter, BoundaryMode::Message, tokenizer); }).code(),
            ErrorCode::Boundary);
}

TEST(Prompt, IllFormedTextIsRefusedWithItsPosition) {
  const Prompter prompter = make_prompter(kChatMl);
  const Error error = error_of([&] { prompter.make_request("ab\xFFz"); });
  EXPECT_EQ(error.code(), ErrorCode::InvalidArgument);
  EXPECT_NE(std::string(error.what()).find("position 2"), std::string::npos) << error.what();
  EXPECT_EQ(error_of([] { FixedPart::from_system_message("\xC0"); }).code(), ErrorCode::InvalidArgument);
  FixedPart fixed;
  fixed.messages_json = "{";
  EXPECT_EQ(error_of([&] { make_prompter(kChatMl, fixed); }).code(), ErrorCode::InvalidArgument);
}

}  // namespace
}  // namespace kvfork
