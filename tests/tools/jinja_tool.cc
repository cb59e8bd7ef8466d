// Renders templates from standard input, one JSON object a line: {"template", "variables": {name: value}, "now",
// "check_conversation", "continue_tag"} -> {"text"} | {"error"}. tools/oracle_templates.py compares it with jinja2.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "jinja/builtins/clock.h"
#include "jinja/template.h"
#include "kvfork/error.h"

namespace {

using Json = nlohmann::ordered_json;

std::string render(const Json& request) {
  using namespace kvfork::jinja;
  RenderInput input;
  // Values come as JSON text, so that what a JSON library would change (NaN, repeated keys) arrives as it is.
  for (const auto& [name, value] : request.at("variables").items()) {
    input.variables.emplace_back(name, value.get<std::string>());
  }
  input.now = parse_local_time(request.value("now", "2031-01-05T06:07:08"));
  return Template::parse(request.at("template").get<std::string>(), "template").render(input).text;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    Json reply;
    try {
      reply["text"] = render(Json::parse(line));
    } catch (const kvfork::Error& error) {
      reply["error"] = error.what();
    }
    std::cout << reply.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n" << std::flush;
  }
}
