// ChatTemplate against Transformers' apply_chat_template (tests/golden/jinja/apply.json says what made it).
#include "kvfork/chat.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kvfork/error.h"
#include "tests/support/temp_dir.h"

namespace kvfork {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

void write_file(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

void write_checkpoint(const fs::path& directory, const Json& files) {
  for (const auto& [name, content] : files.items()) {
    fs::path path = directory / (name == "tokenizer_config" ? "tokenizer_config.json" : name);
    write_file(path, content.is_string() ? content.get<std::string>() : content.dump());
  }
}

ChatRequest to_request(const Json& json) {
  ChatRequest request;
  request.messages_json = json.at("messages").dump();
  if (json.contains("tools")) request.tools_json = json.at("tools").dump();
  if (json.contains("documents")) request.documents_json = json.at("documents").dump();
  if (json.contains("vars")) {
    for (const auto& [name, value] : json.at("vars").items()) request.vars.emplace_back(name, value.dump());
  }
  request.add_generation_prompt = json.value("add_generation_prompt", false);
  request.continue_final_message = json.value("continue_final_message", false);
  request.now = "2031-01-05T06:07:08";
  return request;
}

std::string error_of(const ChatTemplate& chat, const ChatRequest& request) {
  try {
    return "rendered: " + chat.render(request);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(ChatTemplate, RendersAsTransformersDoes) {
  std::ifstream file(KVFORK_SOURCE_DIR "/tests/golden/jinja/apply.json");
  Json goldens = Json::parse(file);
  size_t n = 0;
  for (const Json& checkpoint : goldens.at("checkpoints")) {
    test::TempDir directory;
    write_checkpoint(directory.path(), checkpoint.at("files"));
    ChatTemplate chat = ChatTemplate::from_directory(directory.path().string());
    for (const Json& golden : checkpoint.at("requests")) {
      ChatRequest request = to_request(golden.at("request"));
      std::string where = checkpoint.at("name").get<std::string>() + " " + golden.at("request").dump();
      ++n;
      if (golden.contains("text")) {
        std::string text;
        EXPECT_NO_THROW(text = chat.render(request)) << where << error_of(chat, request);
        EXPECT_EQ(text, golden.at("text").get<std::string>()) << where;
        continue;
      }
      std::string error = error_of(chat, request);
      EXPECT_FALSE(error.starts_with("rendered: ")) << where << error;
      if (golden.contains("raised")) {
        EXPECT_TRUE(error.ends_with(golden.at("raised").get<std::string>())) << where << error;
      }
    }
  }
  EXPECT_GE(n, 200u);
}

ChatTemplate make(const std::string& source) {
  TemplateSources sources;
  sources.subject = "model";
  sources.chat_template_jinja = source;
  return ChatTemplate::from_sources(sources);
}

ChatRequest hello() {
  ChatRequest request;
  request.messages_json = R"([{"role": "user", "content": "Hi"}])";
  return request;
}

TEST(ChatTemplate, WithoutATemplateSaysSo) {
  EXPECT_TRUE(ChatTemplate().empty());
  EXPECT_NE(error_of(ChatTemplate(), hello()).find("expected a chat template, found none"), std::string::npos);
}

TEST(ChatTemplate, OverridesByNameAndByFile) {
  TemplateSources sources;
  sources.subject = "model";
  sources.chat_template_jinja = "default";
  sources.additional = {{"rag", "rag {{ bos_token }}"}};
  sources.special_tokens = {{"bos_token", "<s>"}};
  ChatTemplate chat = ChatTemplate::from_sources(sources);
  EXPECT_EQ(chat.names(), (std::vector<std::string>{"default", "rag"}));
  EXPECT_EQ(chat.render(hello()), "default");
  EXPECT_EQ(chat.with_override("rag").render(hello()), "rag <s>");
  EXPECT_EQ(chat.with_override("").render(hello()), "default");
  test::TempDir directory;
  write_file(directory.path() / "mine.jinja", "mine {{ bos_token }}");
  EXPECT_EQ(chat.with_override((directory.path() / "mine.jinja").string()).render(hello()), "mine <s>");
  try {
    chat.with_override("nosuch");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::NotFound);
    EXPECT_NE(std::string(error.what()).find("default, rag"), std::string::npos) << error.what();
  }
}

TEST(ChatTemplate, NamedTemplatesMayBeAnObject) {
  TemplateSources sources;
  sources.subject = "model";
  sources.tokenizer_config_json = R"({"chat_template": {"default": "D", "tool_use": "T"}})";
  ChatTemplate chat = ChatTemplate::from_sources(sources);
  EXPECT_EQ(chat.names(), (std::vector<std::string>{"default", "tool_use"}));
  EXPECT_EQ(chat.render(hello()), "D");
}

TEST(ChatTemplate, TellsTheTimeItIsGiven) {
  ChatRequest request = hello();
  request.now = "2031-01-05T06:07:08";
  ChatTemplate chat = make("{{ strftime_now('%d %b %Y %H:%M:%S %A %j') }}");
  EXPECT_EQ(chat.render(request), "05 Jan 2031 06:07:08 Sunday 005");
  request.now = "2028-02-29";
  EXPECT_EQ(chat.render(request), "29 Feb 2028 00:00:00 Tuesday 060");
  for (const char* broken :
       {"", "now", "2031-02-29T00:00:00", "2031-01-05T24:00:00", "2031-01-05T06:07:08Z", "2031-13-01"}) {
    request.now = broken;
    EXPECT_FALSE(error_of(chat, request).starts_with("rendered: ")) << broken;
  }
  request.now.reset();
  EXPECT_EQ(make("{{ strftime_now('%Y')|length }}").render(request), "4");
}

TEST(ChatTemplate, RefusesBrokenRequestsByName) {
  ChatTemplate chat = make("{{ messages|length }}");
  ChatRequest request = hello();
  request.messages_json = "[{]";
  EXPECT_NE(error_of(chat, request).find("messages: not JSON"), std::string::npos);
  request.messages_json = "{\"role\": \"user\"}";
  EXPECT_NE(error_of(chat, request).find("messages: expected a list"), std::string::npos);
  request = hello();
  request.vars = {{"tools", "[]"}};
  EXPECT_NE(error_of(chat, request).find("'tools'"), std::string::npos);
  request.vars = {{"mine", "{"}};
  EXPECT_NE(error_of(chat, request).find("mine: not JSON"), std::string::npos);
}

TEST(ChatTemplate, ABrokenTemplateFailsWhenItIsUsed) {
  TemplateSources sources;
  sources.subject = "model";
  sources.chat_template_jinja = "fine";
  sources.additional = {{"tool_use", "{% broken"}};
  ChatTemplate chat = ChatTemplate::from_sources(sources);
  EXPECT_EQ(chat.render(hello()), "fine");
  ChatRequest request = hello();
  request.tools_json = "[]";
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(error_of(chat, request).find("line 1, column 4"), std::string::npos) << error_of(chat, request);
  }
}

TEST(ChatTemplate, RefusesConfigurationsOfTheWrongShape) {
  for (const char* config : {"{", "[]", "{\"chat_template\": 5}", "{\"chat_template\": [{\"name\": \"x\"}]}",
                             "{\"chat_template\": [\"x\"]}"}) {
    TemplateSources sources;
    sources.tokenizer_config_json = config;
    EXPECT_THROW(ChatTemplate::from_sources(sources), Error) << config;
  }
}

}  // namespace
}  // namespace kvfork
