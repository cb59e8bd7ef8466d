// The lines of `kvfork batch`: requests in, answers out. docs/batch.md describes both.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvfork/generate.h"

namespace kvfork::cli {

/// One line of the input: a request, or why it is none.
struct RequestLine {
  nlohmann::ordered_json id;  // null where the line has none that can be kept
  std::optional<std::string> prompt;
  std::string messages_json;  // where there is no prompt
  GenerateOptions options;
  std::string error;  // empty: a request
};

/// The lines of a JSONL text that hold more than white space; a byte-order mark is no part of the first.
std::vector<std::string_view> split_lines(std::string_view text);

/// Reads a line; its own options go over `defaults`. Never throws for what the line holds.
RequestLine parse_request_line(std::string_view line, const GenerateOptions& defaults);

/// 16 hex digits over everything an answer depends on: `model` (what identifies it), the request's ids, and the
/// options.
std::string make_digest(std::string_view model, std::span<const int32_t> ids, const GenerateOptions& options);

/// An answer as a line, its newline included. The same answer is the same bytes.
std::string format_answer(const nlohmann::ordered_json& id, const Generation& generation, const std::string& text,
                          size_t n_request_tokens, size_t n_cached_tokens, const std::string& digest);
/// The error of a line that is no request, or one that is refused before it runs.
std::string format_error(const nlohmann::ordered_json& id, std::string_view error);
/// The error of a request that failed while it ran.
std::string format_failure(const nlohmann::ordered_json& id, std::string_view error, const std::string& digest);

/// Whether a line of format_answer or format_failure, without its newline, is byte for byte as it was written.
bool is_as_written(std::string_view line);

}  // namespace kvfork::cli
