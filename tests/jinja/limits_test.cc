// Hostile templates and data: every bound is reached as an error that names it, never as a crash or a long wait.
#include <gtest/gtest.h>

#include "jinja/values/json.h"
#include "tests/jinja/render.h"

namespace kvfork::jinja {
namespace {

using Json = nlohmann::ordered_json;

std::string repeated(std::string_view text, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += text;
  return out;
}

void expect_limit(const std::string& source, std::string_view bound, const Json& variables = Json::object()) {
  Failure found = failure(source, variables);
  EXPECT_EQ(found.code, ErrorCode::Limit) << source.substr(0, 100) << "\n" << found.message.substr(0, 300);
  EXPECT_NE(found.message.find(bound), std::string::npos) << source.substr(0, 100) << "\n"
                                                          << found.message.substr(0, 300);
}

TEST(TemplateLimits, NestingOfTheSource) {
  constexpr size_t kMany = 100000;
  for (const auto& [open, close] : std::vector<std::pair<std::string, std::string>>{{"(", ")"},
                                                                                    {"[", "]"},
                                                                                    {"{'a':", "}"},
                                                                                    {"not ", ""},
                                                                                    {"-", ""},
                                                                                    {"f(", ")"},
                                                                                    {"1 if 1 else ", ""},
                                                                                    {"x[", "]"}}) {
    expect_limit("{{ " + repeated(open, kMany) + "1" + repeated(close, kMany) + " }}", "nesting");
  }
  expect_limit("{{ 1" + repeated(" + 1", kMany) + " }}", "nesting");
  expect_limit("{{ 1" + repeated("|abs", kMany) + " }}", "nesting");
  expect_limit("{{ x" + repeated(".y", kMany) + " }}", "nesting");
  expect_limit("{{ x" + repeated(" and x", kMany) + " }}", "nesting");
  expect_limit(repeated("{% if 1 %}", kMany) + repeated("{% endif %}", kMany), "nesting");
  expect_limit(repeated("{% for a in b %}", kMany), "nesting");
  expect_limit(repeated("{% set x %}", kMany), "nesting");
}

TEST(TemplateLimits, FlatSourcesAreFine) {
  EXPECT_EQ(render("{{ 'a'" + repeated(" ~ 'a'", 10000) + " }}").size(), 10001u);
  EXPECT_EQ(render("{% if 0 %}" + repeated("{% elif 0 %}", 10000) + "{% else %}x{% endif %}"), "x");
  EXPECT_EQ(render("{{ [" + repeated("1,", 10000) + "]|length }}"), "10000");
  EXPECT_EQ(render(repeated("(", 190) + "x"), repeated("(", 190) + "x");
  EXPECT_EQ(render("{{ " + repeated("(", 150) + "1" + repeated(")", 150) + " }}"), "1");
}

TEST(TemplateLimits, NestingOfTheData) {
  for (const char* open : {"[", "{\"a\":"}) {
    std::string close = open[0] == '[' ? "]" : "}";
    RenderInput input;
    input.variables.emplace_back("x", repeated(open, 100000) + "1" + repeated(close, 100000));
    try {
      Template::parse("{{ x }}", "t").render(input);
      FAIL() << "rendered";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::Limit) << error.what();
    }
  }
}

TEST(TemplateLimits, NestingOfValues) {
  expect_limit(
      "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
      "inside one another");
  expect_limit("{% set ns = namespace(x={}) %}{% for i in range(100000) %}{% set ns.x = {'a': ns.x} %}{% endfor %}",
               "inside one another");
  expect_limit(
      "{% set ns = namespace(x=[1]) %}{% for i in range(100000) %}{% set ns.x = ns.x|map('string') %}{% endfor "
      "%}{{ ns.x|list }}",
      "inside one another");
  expect_limit(
      "{% set ns = namespace(x=1) %}{% for k in range(100000) %}{% for i in [ns.x] %}{% set ns.x = [loop] %}{% "
      "endfor %}"
      "{% endfor %}",
      "inside one another");
  // Each loop outlives its end and was last at an item that held the loop before it: a chain if loops held on.
  EXPECT_EQ(
      render("{% set ns = namespace(x=0) %}{% set a = namespace(x=1) %}{% set b = namespace() %}"
             "{% for k in range(50000) %}{% for i in [a, b]|map(attribute='x') %}{% if loop.first %}{% set b.x = "
             "ns.x %}"
             "{% set ns.y = [loop] %}{% endif %}{% endfor %}{% set ns.x = ns.y %}{% endfor %}{{ ns.x[0].index }}"),
      "2");
  expect_limit("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "depth");
  expect_limit(
      "{% set ns = namespace(x=namespace()) %}{% for i in range(9999) %}{% set ns.x = namespace(x=ns.x) %}{% "
      "endfor %}{{ ns }}",
      "depth");
}

TEST(TemplateLimits, SharedPartsDoNotMultiply) {
  expect_limit(
      "{% set ns = namespace(x=[1, 2]) %}{% for i in range(64) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x "
      "== ns.x }}",
      "items in one value");
  expect_limit(
      "{% set ns = namespace(x='ab') %}{% for i in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ "
      "ns.x|length }}",
      "memory");
  expect_limit(
      "{% set ns = namespace(x=['ab'] * 1000) %}{% for i in range(64) %}{% set ns.x = [ns.x|join(ns.x|join)] * "
      "1000 %}{% endfor %}",
      "items in one value");
}

TEST(TemplateLimits, Recursion) {
  expect_limit("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}", "depth");
  expect_limit("{% macro m() %}{% call m() %}{{ caller }}{% endcall %}{{ caller }}{% endmacro %}{{ m() }}",
               "depth");
  expect_limit("{% for i in [[[]]] recursive %}{{ loop([i]) }}{% endfor %}", "depth");
}

TEST(TemplateLimits, Steps) {
  expect_limit("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "steps");
  expect_limit("{% for i in range(100000) %}{{ range(100000)|sum }}{% endfor %}", "steps");
  expect_limit(
      "{% for i in range(100000) %}{% if range(100000)|list == range(100000)|list %}{% endif %}{% endfor %}",
      "steps");
}

TEST(TemplateLimits, Output) {
  std::string big(1 << 20, 'x');
  expect_limit("{% for i in range(100000) %}{{ big }}{% endfor %}", "output", {{"big", big}});
}

TEST(TemplateLimits, SizesAskedFor) {
  expect_limit("{{ 'a' * 1000000000000 }}", "memory");
  expect_limit("{{ 'a' * 9223372036854775807 }}", "memory");
  expect_limit("{{ [1] * 1000000000000 }}", "memory");
  expect_limit("{{ 'a'.center(1000000000000) }}", "memory");
  expect_limit("{{ 'a'.zfill(1000000000000) }}", "memory");
  expect_limit("{{ '%1000000000d' % 1 }}", "memory");
  expect_limit("{{ '%.1000000000f' % 1 }}", "memory");
  expect_limit("{{ '{:>1000000000}'.format(1) }}", "memory");
  expect_limit("{{ '{:,.1000000000f}'.format(1.5) }}", "memory");
  expect_limit("{{ 'a\nb'|indent(1000000000000) }}", "memory");
  expect_limit("{{ [1]|batch(1000000000000, 0)|list }}", "memory");
  expect_limit("{{ [[[1]]]|tojson(indent=1000000000) }}", "memory");
  expect_limit("{{ '\t'.expandtabs(1000000000000) }}", "memory");
  EXPECT_NE(failure("{{ range(1000000000000) }}").message.find("Range too big"), std::string::npos);
}

TEST(TemplateLimits, SourceSize) {
  Failure found = failure(repeated("x", 5 << 20));
  EXPECT_EQ(found.code, ErrorCode::Limit);
}

TEST(TemplateLimits, MemoryComesBack) {
  // 100 000 texts of 4 kB, one after the other: far more than the bound in all, little at once.
  Limits limits;
  limits.memory = 1 << 20;
  EXPECT_EQ(render("{% for i in range(10000) %}{% set x = 'a' * 4096 %}{% endfor %}ok", Json::object(), limits),
            "ok");
}

TEST(TemplateLimits, DeepestAllowedFitsTheStack) {
  std::string source =
      "{% macro m(n) %}{% if n %}{% for i in [1] %}{% if true %}{{ '' ~ [m(n - 1)]|join }}{% endif %}{% endfor "
      "%}{% endif %}.{% endmacro %}{{ m(100) }}";
  EXPECT_EQ(render(source).size(), 101u);
}

}  // namespace
}  // namespace kvfork::jinja
