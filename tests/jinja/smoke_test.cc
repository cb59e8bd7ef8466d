#include <gtest/gtest.h>

#include "jinja/template.h"

namespace kvfork::jinja {
namespace {

TEST(Smoke, Renders) {
  Template t = Template::parse("{% for m in messages %}{{ loop.index ~ m.role }}{% endfor %}", "t");
  EXPECT_EQ(t.render({{{"messages", R"([{"role":"user"},{"role":"x"}])"}}, {}}).text, "1user2x");
}

}  // namespace
}  // namespace kvfork::jinja
