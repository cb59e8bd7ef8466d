// What the terminal can show.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvfork::cli {

/// Columns of the terminal at this descriptor; where it does not say, COLUMNS, else 80. At least 20.
size_t terminal_width(int descriptor);

/// Whether TERM says that escape sequences would be shown as text.
bool is_dumb_terminal();

/// Columns that UTF-8 text takes; a character that may be wide counts as two.
size_t display_width(std::string_view text);

/// The start of the text, at most `width` columns.
std::string cut_to_width(std::string_view text, size_t width);

/// `head` and the text after it in lines of at most `width` columns, broken at the spaces of the text; lines after
/// the first begin with `indent` spaces.
std::string wrap_text(std::string_view head, std::string_view text, size_t width, size_t indent);

}  // namespace kvfork::cli
