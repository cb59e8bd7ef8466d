// Text for XML, HTML and SVG.
#include "cli/escape_xml.h"

namespace kvfork::cli {
namespace {

// Length of the UTF-8 character at the start of text that XML can hold; 0: there is none.
size_t character_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= 0x20 || first == '\t' || first == '\n' || first == '\r' ? 1 : 0;
  if (first < 0xC2) return 0;
  if (first < 0xE0) return continues(1) ? 2 : 0;
  if (first < 0xF0) {
    const unsigned code = (first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    const bool is_allowed = code >= 0x800 && !(code >= 0xD800 && code <= 0xDFFF) && code < 0xFFFE;
    return continues(1) && continues(2) && is_allowed ? 3 : 0;
  }
  const unsigned code = (first & 0x07) << 18 | (byte(1) & 0x3F) << 12;
  return first < 0xF5 && continues(1) && continues(2) && continues(3) && code >= 0x10000 && code <= 0x10FFFF ? 4
                                                                                                             : 0;
}

}  // namespace

std::string escape_xml(std::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const size_t n = character_length(text);
    const std::string_view character = text.substr(0, n == 0 ? 1 : n);
    if (n == 0) {
      escaped += "\uFFFD";
    } else if (character == "&") {
      escaped += "&amp;";
    } else if (character == "<") {
      escaped += "&lt;";
    } else if (character == ">") {
      escaped += "&gt;";
    } else if (character == "\"") {
      escaped += "&quot;";
    } else {
      escaped += character;
    }
    text.remove_prefix(character.size());
  }
  return escaped;
}

}  // namespace kvfork::cli
