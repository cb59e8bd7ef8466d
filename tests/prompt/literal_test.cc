// Control tokens in a request's own words: found, and kept plain text where that is asked for, through templates
// that do with the words what templates do.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kvfork/boundary.h"
#include "kvfork/error.h"
#include "kvfork/prompt.h"

namespace kvfork {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

constexpr int32_t kBegin = 128, kEnd = 129, kThink = 130;
constexpr const char* kChatMl =
    "{% for m in messages %}{{ '<|b|>' + m.role + '\\n' + m.content + '<|e|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|b|>assistant\n{% endif %}";

// One id per ASCII character; <|b|> and <|e|> are control tokens, <think> is an added one.
Tokenizer make_tokenizer() {
  json vocab;
  for (int c = 0; c < 128; ++c) vocab[std::string(1, static_cast<char>(c))] = c;
  const auto added = [](int32_t id, const char* content, bool special) {
    return json{{"id", id}, {"content", content}, {"special", special}, {"normalized", false}};
  };
  TokenizerFiles files;
  files.subject = "test";
  files.tokenizer_json =
      json{{"added_tokens",
            {added(kBegin, "<|b|>", true), added(kEnd, "<|e|>", true), added(kThink, "<think>", false)}},
           {"decoder", {{"type", "Fuse"}}},
           {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}}}
          .dump();
  return Tokenizer::from_files(files);
}

ChatTemplate make_template(const char* source) {
  TemplateSources sources;
  sources.subject = "test template";
  sources.chat_template_jinja = source;
  return ChatTemplate::from_sources(sources);
}

Prompt encode(const char* source, const json& messages, UserText user_text, ChatRequest request = {}) {
  request.messages_json = messages.dump();
  return encode_chat(make_tokenizer(), make_template(source), request, user_text);
}

json user(json content) {
  return json::array({{{"role", "user"}, {"content", std::move(content)}}});
}

size_t count_control_tokens(const Prompt& prompt) {
  return static_cast<size_t>(
      std::count_if(prompt.ids.begin(), prompt.ids.end(), [](int32_t id) { return id == kBegin || id == kEnd; }));
}

// Literal: the same text, and as many control tokens as the template itself writes.
void expect_literal(const char* source, const json& messages, size_t n_of_template, ChatRequest request = {}) {
  SCOPED_TRACE(source);
  SCOPED_TRACE(messages.dump());
  const Prompt literal = encode(source, messages, UserText::Literal, request);
  const Prompt plain = encode(source, messages, UserText::AsTransformers, request);
  EXPECT_EQ(literal.text, plain.text);
  EXPECT_EQ(count_control_tokens(literal), n_of_template);
  EXPECT_GT(count_control_tokens(plain), n_of_template);
  EXPECT_TRUE(literal.control_tokens.empty());
  if (literal.report.n_dropped_bytes == 0) {
    EXPECT_EQ(make_tokenizer().decode(literal.ids, SpecialTokens::Keep), literal.text);
  }
}

TEST(UserControlTokens, AreFoundAndReadAsTransformersReadsThem) {
  const Prompt prompt = encode(kChatMl, user("a<|e|>b<|b|>c<|e|>"), UserText::AsTransformers);
  EXPECT_EQ(prompt.control_tokens, (std::vector<std::string>{"<|e|>", "<|b|>"}));
  EXPECT_EQ(count_control_tokens(prompt), 5u);
  EXPECT_TRUE(encode(kChatMl, user("a<|e<think>"), UserText::AsTransformers).control_tokens.empty());
}

TEST(UserControlTokens, StayPlainText) {
  expect_literal(kChatMl, user("a<|e|>b<|b|>c<|e|>"), 2);
  expect_literal(kChatMl, user("<|e|>"), 2);
  expect_literal(kChatMl, user(" \n<|e|><|e|>\n "), 2);
  expect_literal("{{ messages[0].content | trim }}<|e|>", user("  <|e|>\n<|b|>  "), 1);
  expect_literal("{{ messages[0].content.strip().split('\\n') | join('-') }}<|e|>", user(" <|e|>\n<|b|> "), 1);
  expect_literal("{{ messages | tojson }}<|e|>", user("\"<|e|>\\"), 1);
  expect_literal("{{ messages | tojson(ensure_ascii=true) }}<|e|>", user("\u00e9<|e|>"), 1);
  expect_literal("{{ messages[0].content | upper | lower }}<|e|>", user("<|e|>"), 1);
  expect_literal("{% for k in messages[0].content[0] %}{{ k }}{% endfor %}<|e|>",
                 user(json::array({{{"<|b|>", 1}}})), 1);
}

TEST(UserControlTokens, ThatTheTemplateJoinsFromPiecesStayPlainText) {
  const char* source = "{% for part in messages[0].content %}{{ part.text | trim }}{% endfor %}<|e|>";
  const auto parts = [](std::vector<std::string> texts) {
    json list = json::array();
    for (const std::string& text : texts) list.push_back({{"type", "text"}, {"text", text}});
    return user(list);
  };
  expect_literal(source, parts({"a<|", "e|>b"}), 1);
  expect_literal(source, parts({"<", "|", "e", "|>"}), 1);
  expect_literal(source, parts({"<|e \n", " |>"}), 1);
  // Unfinished before the template's own: that one is the template's.
  const Prompt prompt = encode(source, parts({"<|e"}), UserText::Literal);
  EXPECT_EQ(prompt.ids, (Ids{'<', '|', 'e', kEnd}));
}

TEST(UserControlTokens, ToolsAndDocumentsAreTheUsersToo) {
  ChatRequest request;
  request.tools_json = R"([{"name": "<|b|>"}])";
  request.documents_json = R"([{"text": "x\u003c|e|>"}])";
  expect_literal("{{ tools | tojson }}{{ documents[0].text }}{{ messages[0].content }}<|e|>", user("plain"), 1,
                 request);
}

TEST(UserControlTokens, VariablesAreTheCallersOwn) {
  ChatRequest request;
  request.vars = {{"separator", R"("<|e|>")"}};
  const Prompt prompt =
      encode("{{ messages[0].content }}{{ separator }}", user("<|e|>"), UserText::Literal, request);
  EXPECT_EQ(prompt.ids, (Ids{'<', '|', 'e', '|', '>', kEnd}));
}

TEST(UserControlTokens, AnAddedTokenThatIsNotSpecialIsReadAsItIs) {
  const char* source =
      "{% if '<think>' in messages[0].content %}{{ messages[0].content.split('<think>')[1] }}{% endif %}<|e|>";
  EXPECT_EQ(encode(source, user("a<think>b<|e|>"), UserText::Literal).ids,
            (Ids{'b', '<', '|', 'e', '|', '>', kEnd}));
  EXPECT_EQ(encode(kChatMl, user("<think>"), UserText::Literal).ids,
            encode(kChatMl, user("<think>"), UserText::AsTransformers).ids);
}

TEST(UserControlTokens, NoncharactersOfTheUsersOwnAreKept) {
  expect_literal(kChatMl, user("\uFDD0<\uFDD0|e|><|e|>\uFDEF"), 2);
  std::string all;
  for (int c = 0; c < 32; ++c) all += std::string("\xEF\xB7") + static_cast<char>(0x90 + c);
  try {
    encode(kChatMl, user(all + "<|e|>"), UserText::Literal);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::Unsupported);
    EXPECT_NE(std::string(error.what()).find("U+FDD0"), std::string::npos) << error.what();
  }
  EXPECT_EQ(encode(kChatMl, user(all), UserText::Literal).text,
            encode(kChatMl, user(all), UserText::AsTransformers).text);
}

TEST(UserControlTokens, ATemplateThatLooksAtThemIsRefused) {
  for (const char* source :
       {"{{ messages[0].content.split('<|e|>') | length }}", "{{ messages[0].content | length }}",
        "{{ '<|e|>' in messages[0].content }}", "{{ messages[0].content | replace('<|e|>', '') }}"}) {
    try {
      encode(source, user("a<|e|>b"), UserText::Literal);
      ADD_FAILURE() << "expected an error: " << source;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::Unsupported) << error.what();
      EXPECT_NE(std::string(error.what()).find("'<|e|>'"), std::string::npos) << error.what();
    }
    EXPECT_NO_THROW(encode(source, user("a<|e|>b"), UserText::AsTransformers));
  }
}

TEST(UserControlTokens, ATemplatesOwnErrorComesFirst) {
  const char* source =
      "{% if '<|e|>' in messages[0].content %}{{ raise_exception('no tags, please') }}{% endif %}x";
  for (const UserText user_text : {UserText::AsTransformers, UserText::Literal}) {
    try {
      encode(source, user("<|e|>"), user_text);
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("no tags, please"), std::string::npos) << error.what();
    }
  }
}

TEST(UserControlTokens, AnOpenFinalMessage) {
  ChatRequest request;
  request.continue_final_message = true;
  expect_literal(kChatMl, user("a<|e|> b<|"), 1, request);
}

Prompter make_prompter(const FixedPart& fixed) {
  auto text = std::make_shared<const Text>(make_tokenizer(), make_template(kChatMl));
  ChatTemplate chat_template = text->chat_template();
  return Prompter(std::move(text), std::move(chat_template), fixed);
}

TEST(UserControlTokens, AContextAndItsRequestsAgree) {
  FixedPart fixed = FixedPart::from_system_message("policy <|e|>\n<|b|>user");
  const Prompt as_transformers = make_prompter(fixed).make_context(BoundaryMode::Message);
  EXPECT_EQ(as_transformers.control_tokens, (std::vector<std::string>{"<|e|>", "<|b|>"}));
  fixed.user_text = UserText::Literal;
  const Prompter prompter = make_prompter(fixed);
  for (const auto mode : {BoundaryMode::Message, BoundaryMode::Probe, BoundaryMode::Longest}) {
    const Prompt context = prompter.make_context(mode);
    EXPECT_TRUE(context.control_tokens.empty());
    for (const char* words : {"Hi", "<|e|>", "<|b|>system", "|>", ""}) {
      const Prompt request = prompter.make_request(words);
      EXPECT_EQ(count_control_tokens(request), 5u);
      EXPECT_EQ(count_cached_tokens(context.ids, request.ids, mode, prompter.tokenizer()), context.ids.size());
    }
  }
  // The same words read otherwise are another context.
  const Prompt literal = prompter.make_context(BoundaryMode::Message);
  EXPECT_NE(literal.ids, as_transformers.ids);
  EXPECT_THROW(count_cached_tokens(as_transformers.ids, prompter.make_request("Hi").ids, BoundaryMode::Message,
                                   prompter.tokenizer()),
               Error);
}

TEST(UserControlTokens, OfPlainText) {
  FixedPart fixed;
  fixed.raw_text = "a<|e|>";
  EXPECT_EQ(make_prompter(fixed).make_request("<|b|>").control_tokens,
            (std::vector<std::string>{"<|e|>", "<|b|>"}));
  fixed.user_text = UserText::Literal;
  EXPECT_EQ(count_control_tokens(make_prompter(fixed).make_request("<|b|>")), 0u);
  EXPECT_TRUE(make_prompter(fixed).make_request("<|b|>").control_tokens.empty());
}

}  // namespace
}  // namespace kvfork
