// Which characters a terminal acts on, and how they are shown instead.
#include "base/visible_text.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace kvfork::base {
namespace {

// Controls, and what Unicode lists as Bidi_Control and as line and paragraph separators.
bool acts_on_terminal(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c <= 0x9F) || c == 0x061C || c == 0x200E || c == 0x200F ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::string to_visible_text(std::string_view text, LineBreaks line_breaks) {
  const std::string valid = to_valid_utf8(text);
  std::string visible;
  visible.reserve(valid.size());
  for (size_t position = 0; position < valid.size();) {
    const CodePoint next = decode_utf8(valid, position);
    const char32_t c = next.code_point;
    if (c == '\n' || c == '\t' || (c == '\r' && line_breaks == LineBreaks::Join)) {
      visible += line_breaks == LineBreaks::Keep ? static_cast<char>(c) : ' ';
    } else if (acts_on_terminal(c)) {
      visible += fmt::format("\\u{:04X}", static_cast<uint32_t>(c));
    } else {
      visible.append(valid, position, next.n_bytes);
    }
    position += next.n_bytes;
  }
  return visible;
}

}  // namespace kvfork::base
