// Widths of terminals and of text.
#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/utf8.h"

namespace kvfork::cli {
namespace {

constexpr size_t kDefaultWidth = 80;
constexpr size_t kLeastWidth = 20;

// From the first block of wide scripts on every character counts as wide: too narrow a line does no harm.
size_t width_of(char32_t c) {
  return c >= 0x1100 ? 2 : 1;
}

}  // namespace

size_t terminal_width(int descriptor) {
  winsize size{};
  size_t width = 0;
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0) width = size.ws_col;
  if (width == 0) {
    const char* columns = std::getenv("COLUMNS");
    width = columns == nullptr ? 0 : std::strtoul(columns, nullptr, 10);
  }
  return width == 0 ? kDefaultWidth : std::clamp<size_t>(width, kLeastWidth, 1000);
}

bool is_dumb_terminal() {
  const char* term = std::getenv("TERM");
  return term != nullptr && std::string_view(term) == "dumb";
}

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (size_t position = 0; position < text.size();) {
    const base::CodePoint next = base::decode_utf8(text, position);
    width += width_of(next.code_point);
    position += next.n_bytes;
  }
  return width;
}

std::string cut_to_width(std::string_view text, size_t width) {
  size_t position = 0;
  while (position < text.size()) {
    const base::CodePoint next = base::decode_utf8(text, position);
    const size_t n = width_of(next.code_point);
    if (n > width) break;
    width -= n;
    position += next.n_bytes;
  }
  return std::string(text.substr(0, position));
}

std::string wrap_text(std::string_view head, std::string_view text, size_t width, size_t indent) {
  std::string wrapped(head);
  size_t column = display_width(head);
  bool is_line_start = true;
  while (!text.empty()) {
    const size_t n = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, n);
    const size_t n_columns = display_width(word);
    if (!is_line_start && column + 1 + n_columns > width) {
      wrapped += "\n" + std::string(indent, ' ');
      column = indent;
      is_line_start = true;
    }
    if (!is_line_start) wrapped += ' ';
    wrapped += word;
    column += n_columns + (is_line_start ? 0 : 1);
    is_line_start = false;
    text.remove_prefix(std::min(n + 1, text.size()));
  }
  return wrapped;
}

}  // namespace kvfork::cli
