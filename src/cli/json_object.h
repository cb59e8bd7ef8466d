// The members of a JSON object as they are written: nothing inside them is parsed, so numbers keep their digits and
// what only Python's reader accepts (NaN, lone surrogates) reaches the template engine as it is.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace kvfork::cli {

/// Name to value text; of repeated names the last counts. The views point into `text`. Throws
/// Error{InvalidArgument} where `text` is no object with well-formed names and separators.
std::map<std::string, std::string_view> split_object(std::string_view text);

/// A JSON text as a value; a discarded one where it is not JSON, or nests deeper than what recurses over it can
/// take.
nlohmann::ordered_json parse_value(std::string_view text);

/// The characters of a JSON string literal. Throws Error{InvalidArgument}.
std::string parse_string(std::string_view literal);

/// The whole numbers of a JSON list. Throws Error{InvalidArgument} for anything else, and for what is no int32.
std::vector<int32_t> parse_id_list(std::string_view text);

}  // namespace kvfork::cli
