// The join of context and request for every chat template, nasty request texts and each boundary mode, against what
// Transformers gave (tools/oracle_boundary.py --write-golden). Templates and tokenizers lie in KVFORK_SHARED or
// ../shared.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "kvfork/boundary.h"
#include "kvfork/error.h"
#include "kvfork/prompt.h"

namespace kvfork {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kGolden = KVFORK_SOURCE_DIR "/tests/golden/boundary.json";
constexpr size_t kLongBytes = 100'000;

fs::path shared_folder() {
  if (const char* shared = std::getenv("KVFORK_SHARED")) return shared;
  return fs::path(KVFORK_SOURCE_DIR) / ".." / "shared";
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string digest(const std::vector<int32_t>& ids) {
  return base::sha256_hex(fmt::format("{}", fmt::join(ids, " "))).substr(0, 16);
}

// The requests of the golden, and the long one, which is not worth keeping in a file.
std::vector<std::string> read_requests(const json& golden) {
  auto requests = golden["requests"].get<std::vector<std::string>>();
  std::string text;
  while (text.size() < kLongBytes) text += "lorem ipsum 7 ";
  requests.push_back(text.substr(0, kLongBytes));
  return requests;
}

Prompter make_prompter(const json& entry, const json& golden, UserText user_text) {
  TokenizerFiles files;
  files.subject = entry["template"].get<std::string>();
  files.tokenizer_json =
      read(shared_folder() / "tokenizers" / entry["tokenizer"].get<std::string>() / "tokenizer.json");
  files.tokenizer_config_json = entry["tokenizer_config"].get<std::string>();
  TemplateSources sources;
  sources.subject = files.subject;
  sources.chat_template_jinja = read(shared_folder() / "templates" / files.subject);
  sources.tokenizer_config_json = files.tokenizer_config_json;
  FixedPart fixed;
  fixed.messages_json = entry["fixed"].dump();
  if (entry.contains("tools")) fixed.tools_json = entry["tools"].dump();
  if (entry.contains("documents")) fixed.documents_json = entry["documents"].dump();
  fixed.now = golden["now"].get<std::string>();
  fixed.user_text = user_text;
  auto text = std::make_shared<const Text>(Tokenizer::from_files(files), ChatTemplate::from_sources(sources));
  ChatTemplate chat_template = text->chat_template();
  return Prompter(std::move(text), std::move(chat_template), std::move(fixed));
}

void check_request(const json& want, const Prompt& context, const Prompt& request, BoundaryMode mode,
                   const Tokenizer& tokenizer) {
  EXPECT_EQ(digest(request.ids), want["digest"].get<std::string>());
  if (want["cached"].is_null()) {
    EXPECT_THROW(count_cached_tokens(context.ids, request.ids, mode, tokenizer), Error);
    return;
  }
  const size_t n = count_cached_tokens(context.ids, request.ids, mode, tokenizer);
  EXPECT_EQ(n, want["cached"].get<size_t>());
  EXPECT_TRUE(
      std::equal(request.ids.begin(), request.ids.begin() + static_cast<ptrdiff_t>(n), context.ids.begin()));
}

TEST(BoundaryTable, AgreesWithTransformersForEveryTemplate) {
  if (!fs::exists(shared_folder() / "templates"))
    GTEST_SKIP() << "needs " << shared_folder() << "; KVFORK_SHARED names it";
  const json golden = json::parse(read(kGolden));
  const std::vector<std::string> texts = read_requests(golden);
  size_t n_checked = 0, n_refused = 0;
  for (const json& entry : golden["templates"]) {
    SCOPED_TRACE(entry["template"].dump());
    const Prompter prompter = make_prompter(entry, golden, UserText::AsTransformers);
    std::vector<Prompt> requests;
    for (const std::string& text : texts) requests.push_back(prompter.make_request(text));
    for (const auto mode : {BoundaryMode::Message, BoundaryMode::Probe, BoundaryMode::Longest}) {
      SCOPED_TRACE(boundary_mode_name(mode));
      const json& want = entry["modes"][boundary_mode_name(mode)];
      if (want.contains("error")) {
        EXPECT_THROW(prompter.make_context(mode), Error);
        ++n_refused;
        continue;
      }
      const Prompt context = prompter.make_context(mode);
      EXPECT_EQ(context.ids.size(), want["context"]["tokens"].get<size_t>());
      EXPECT_EQ(digest(context.ids), want["context"]["digest"].get<std::string>());
      EXPECT_EQ(is_safe_for_any_request(context.ids, prompter.tokenizer()), want["context"]["safe"].get<bool>());
      ASSERT_EQ(want["requests"].size(), texts.size());
      for (size_t i = 0; i < texts.size(); ++i) {
        SCOPED_TRACE(texts[i].substr(0, 20));
        check_request(want["requests"][i], context, requests[i], mode, prompter.tokenizer());
        n_refused += want["requests"][i]["cached"].is_null();
        ++n_checked;
      }
    }
  }
  EXPECT_GE(golden["templates"].size(), 24u);
  EXPECT_GT(n_checked, 500u);
  EXPECT_GT(n_refused, 10u);
}

// A request of the template's own control tokens: under Literal the only ones are those that it writes for any
// other words.
TEST(BoundaryTable, LiteralRequestsHoldOnlyTheTemplatesControlTokens) {
  if (!fs::exists(shared_folder() / "templates"))
    GTEST_SKIP() << "needs " << shared_folder() << "; KVFORK_SHARED names it";
  const json golden = json::parse(read(kGolden));
  size_t n_checked = 0;
  for (const json& entry : golden["templates"]) {
    SCOPED_TRACE(entry["template"].dump());
    const Prompter prompter = make_prompter(entry, golden, UserText::Literal);
    const auto special_ids = [&](std::string_view words) {
      std::vector<int32_t> special;
      for (const int32_t id : prompter.make_request(words).ids) {
        if (prompter.tokenizer().is_special(id)) special.push_back(id);
      }
      return special;
    };
    const std::vector<int32_t> of_template = special_ids("plain words");
    const json tokens = json::parse(entry["tokenizer_config"].get<std::string>())["additional_special_tokens"];
    for (const json& token : tokens) {
      SCOPED_TRACE(token.dump());
      const auto words = token.get<std::string>();
      EXPECT_EQ(special_ids("a " + words + " b"), of_template);
      EXPECT_EQ(special_ids(words.substr(0, words.size() - 1)), of_template);
      ++n_checked;
    }
  }
  EXPECT_GT(n_checked, 60u);
}

}  // namespace
}  // namespace kvfork
