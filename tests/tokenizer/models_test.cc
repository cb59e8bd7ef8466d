// The tokenizers of six model families, where the shared folder with their files is there (KVFORK_SHARED, or beside
// the project); expected ids are in tests/golden/tokenizer_models.json.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kvfork/tokenizer.h"

namespace kvfork {
namespace {

using nlohmann::json;

std::filesystem::path shared_folder() {
  if (const char* path = std::getenv("KVFORK_SHARED")) return path;
  return std::filesystem::path(KVFORK_SOURCE_DIR) / "../shared";
}

TEST(TokenizerModels, GiveTheIdsOfThePackage) {
  const std::filesystem::path folder = shared_folder() / "tokenizers";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  std::ifstream file(std::filesystem::path(KVFORK_SOURCE_DIR) / "tests/golden/tokenizer_models.json");
  const json golden = json::parse(file);
  size_t n_models = 0;
  for (const json& entry : golden["cases"]) {
    SCOPED_TRACE(entry["name"].get<std::string>());
    const Tokenizer tokenizer = Tokenizer::from_directory((folder / entry["name"].get<std::string>()).string());
    ++n_models;
    for (const json& want : entry["encode"]) {
      SCOPED_TRACE(want["text"].dump());
      EXPECT_EQ(tokenizer.encode(want["text"].get<std::string>()), want["ids"].get<std::vector<int32_t>>());
    }
  }
  EXPECT_EQ(n_models, 6u);
}

}  // namespace
}  // namespace kvfork
