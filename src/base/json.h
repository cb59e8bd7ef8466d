// Reading JSON: simdjson's DOM with errors that say where.
//
// A JsonDocument owns the parsed tree; elements taken from it live as long as it does. Thread rule: immutable
// after parse.
#pragma once

#include <simdjson.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace kvfork::base {

class JsonDocument {
 public:
  /// Throws Error{Corrupt} "SUBJECT: expected JSON, found ... at line L, column C (byte B)". RFC 8259: no
  /// comments, no NaN, no text after the value; nesting is limited to 1024 levels. Integers beyond 64 bits become
  /// floating-point numbers.
  static JsonDocument parse(std::string_view text, std::string_view subject);

  simdjson::dom::element root() const { return root_; }

 private:
  std::unique_ptr<simdjson::dom::parser> parser_;
  simdjson::dom::element root_;
};

/// "line L, column C (byte B)" of a byte position; lines and columns count from 1, columns in bytes.
std::string describe_position(std::string_view text, size_t position);

/// Short words for an error message: `the string "abc"`, `the number 3`, `null`, `an object`, `a list`.
std::string describe_json(simdjson::dom::element value);

}  // namespace kvfork::base
