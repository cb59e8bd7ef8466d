// The few questions asked about URLs, answered by libcurl's own parser.
//
// Pure functions; thread rule: none needed.
#pragma once

#include <string>
#include <string_view>

namespace kvfork::hub {

struct Url {
  std::string full;
  std::string scheme;  ///< lower case
  std::string origin;  ///< scheme://host:port, the port always written
};

/// Throws Error{Network} naming `subject` for text that is no URL, or one that carries a user name.
Url parse_url(const std::string& text, std::string_view subject);

/// Where `location`, found in a reply from `base`, leads.
Url resolve_location(const Url& base, const std::string& location);

/// Whether `location` names no host of its own.
bool is_relative(std::string_view location);

/// For messages: without query and fragment, which may hold signatures.
std::string printable_url(std::string_view url);

}  // namespace kvfork::hub
