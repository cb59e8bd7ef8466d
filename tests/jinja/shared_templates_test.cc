// The chat templates of public models, where they lie beside the project: each parses, and renders a plain
// conversation from several threads at once to the same text. tools/oracle_templates.py compares the text itself
// with jinja2.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "tests/jinja/render.h"

namespace kvfork::jinja {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> shared_templates() {
  const char* given = std::getenv("KVFORK_SHARED");
  fs::path shared = given != nullptr ? fs::path(given) : fs::path(KVFORK_SOURCE_DIR) / "../shared";
  std::vector<fs::path> paths;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(shared / "templates", error)) {
    if (file.path().extension() == ".jinja") paths.push_back(file.path());
  }
  return paths;
}

RenderInput plain_conversation() {
  RenderInput input;
  input.variables = {{"messages", R"([{"role": "user", "content": "MARKER"}])"},
                     {"tools", "null"},
                     {"documents", "null"},
                     {"add_generation_prompt", "true"},
                     {"bos_token", "\"<s>\""},
                     {"eos_token", "\"</s>\""}};
  input.now = parse_local_time("2031-01-05T06:07:08");
  return input;
}

TEST(SharedTemplates, RenderAPlainConversation) {
  std::vector<fs::path> paths = shared_templates();
  if (paths.empty()) GTEST_SKIP() << "no shared templates beside the project";
  EXPECT_GE(paths.size(), 24u);
  for (const fs::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    std::string source{std::istreambuf_iterator<char>(file), {}};
    Template parsed = Template::parse(source, path.filename().string());
    std::string text;
    try {
      text = parsed.render(plain_conversation()).text;
    } catch (const Error& error) {
      // Some templates want more than one user message; then they say so.
      EXPECT_EQ(error.code(), ErrorCode::Template) << error.what();
      continue;
    }
    EXPECT_NE(text.find("MARKER"), std::string::npos) << path << text;
    std::vector<std::string> texts(4);
    std::vector<std::thread> threads;
    for (std::string& out : texts) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) out = parsed.render(plain_conversation()).text;
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& out : texts) EXPECT_EQ(out, text) << path;
  }
}

}  // namespace
}  // namespace kvfork::jinja
