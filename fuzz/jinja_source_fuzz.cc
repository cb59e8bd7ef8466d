// Template source from strangers: parsing and rendering ends in text or in kvfork::Error, within its bounds.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "jinja/builtins/clock.h"
#include "jinja/template.h"
#include "kvfork/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvfork::jinja;
  RenderInput input;
  input.variables = {
      {"messages", R"([{"role": "system", "content": "s"}, {"role": "user", "content": "Hi \u00e9\ud83d\ude00 <b>"},
                       {"role": "assistant", "content": null,
                        "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1.5}}}]}])"},
      {"tools", R"([{"type": "function",
                     "function": {"name": "f", "parameters": {"properties": {"a": {"type": "number"}}}}}])"},
      {"x", "7"},
      {"f", "2.5"},
      {"n", "null"},
      {"s", "\"Hello World\""},
      {"items", "[3, 1, 2]"},
      {"d", R"({"a": 1, "b": [2]})"},
      {"big", "123456789012345678901"},
      {"add_generation_prompt", "true"},
      {"bos_token", "\"<s>\""}};
  input.now = parse_local_time("2031-01-05T06:07:08");
  Limits limits;
  limits.steps = 20000;
  limits.memory = size_t{16} << 20;
  limits.output = size_t{1} << 20;
  try {
    std::string_view source(reinterpret_cast<const char*>(data), size);
    Template::parse(source, "template").render(input, limits);
  } catch (const kvfork::Error&) {
  }
  return 0;
}
