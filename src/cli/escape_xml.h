// Text inside markup.
#pragma once

#include <string>
#include <string_view>

namespace kvfork::cli {

/// For text and attributes of XML and HTML: markup escaped, and U+FFFD for what XML cannot hold (ill-formed UTF-8
/// and control characters but tab, newline and carriage return).
std::string escape_xml(std::string_view text);

}  // namespace kvfork::cli
