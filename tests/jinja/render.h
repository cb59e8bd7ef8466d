// Renders a template over variables given as JSON, for tests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "jinja/builtins/clock.h"
#include "jinja/template.h"
#include "kvfork/error.h"

namespace kvfork::jinja {

inline std::string render(std::string_view source,
                          const nlohmann::ordered_json& variables = nlohmann::ordered_json::object(),
                          const Limits& limits = {}) {
  RenderInput input;
  for (const auto& [name, value] : variables.items()) input.variables.emplace_back(name, value.dump());
  input.now = parse_local_time("2031-01-05T06:07:08");
  return Template::parse(source, "template").render(input, limits).text;
}

/// The error that rendering gives; fails the test (code NotFound, empty message) when it gives none.
struct Failure {
  ErrorCode code = ErrorCode::NotFound;
  std::string message;
};
inline Failure failure(std::string_view source,
                       const nlohmann::ordered_json& variables = nlohmann::ordered_json::object(),
                       const Limits& limits = {}) {
  try {
    std::string text = render(source, variables, limits);
    return {ErrorCode::NotFound, "rendered: " + text.substr(0, 200)};
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
}

}  // namespace kvfork::jinja
