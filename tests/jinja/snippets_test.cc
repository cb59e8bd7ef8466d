// Template snippets of every family against jinja2's answers (tests/golden/jinja/snippets.json says what made
// them).
#include <gtest/gtest.h>

#include <fstream>

#include "tests/jinja/render.h"

namespace kvfork::jinja {
namespace {

using Json = nlohmann::ordered_json;

const Json& goldens() {
  static const Json kGoldens = [] {
    std::ifstream file(KVFORK_SOURCE_DIR "/tests/golden/jinja/snippets.json");
    return Json::parse(file);
  }();
  return kGoldens;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const auto& [name, cases] : goldens().at("families").items()) names.push_back(name);
  return names;
}

void check(const Json& golden) {
  std::string source = golden.at("template");
  const Json& variables = golden.contains("variables") ? golden.at("variables") : goldens().at("variables");
  if (golden.contains("text")) {
    try {
      EXPECT_EQ(render(source, variables), golden.at("text").get<std::string>()) << source;
    } catch (const Error& error) {
      FAIL() << source << "\n" << error.what();
    }
    return;
  }
  Failure found = failure(source, variables);
  EXPECT_NE(found.code, ErrorCode::NotFound) << source << "\n" << found.message;
  if (!golden.contains("raised")) return;
  std::string message = golden.at("raised");
  EXPECT_TRUE(found.message.ends_with(message)) << source << "\n" << found.message;
}

class Snippets : public testing::TestWithParam<std::string> {};

TEST_P(Snippets, RenderAsJinja2Does) {
  const Json& cases = goldens().at("families").at(GetParam());
  ASSERT_GE(cases.size(), 20u);
  for (const Json& golden : cases) check(golden);
}

INSTANTIATE_TEST_SUITE_P(Families, Snippets, testing::ValuesIn(family_names()),
                         [](const auto& family) { return family.param; });

TEST(SnippetGoldens, CoverManyFamilies) {
  EXPECT_GE(family_names().size(), 30u);
  size_t n_texts = 0;
  for (const auto& [name, cases] : goldens().at("families").items()) {
    for (const Json& golden : cases) n_texts += golden.contains("text");
  }
  EXPECT_GE(n_texts, 700u);
}

}  // namespace
}  // namespace kvfork::jinja
