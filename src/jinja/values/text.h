// Text as Python sees it: strings of code points, here in UTF-8, with the predicates and case mappings of str.
//
// Unlike base/utf8.h these functions also carry lone surrogates (as three bytes), since a template literal or a
// JSON string may spell one; what leaves the template is checked. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvfork::jinja {

/// Number of code points.
size_t count_chars(std::string_view text) noexcept;

/// The code point at byte `position`, which is moved behind it. A broken byte yields itself.
char32_t next_char(std::string_view text, size_t& position) noexcept;

/// The code point that ends before byte `position`, which is moved to its start.
char32_t previous_char(std::string_view text, size_t& position) noexcept;

void append_char(std::string& out, char32_t c);

/// \xhh, \uhhhh or \Uhhhhhhhh, as Python spells what it does not show.
void append_escape(std::string& out, char32_t c);

/// Byte position of code point number `index`; text.size() when it has no more than `index`.
size_t byte_offset(std::string_view text, size_t index) noexcept;

std::vector<char32_t> to_chars32(std::string_view text);

bool is_ascii(std::string_view text) noexcept;

bool is_space(char32_t c) noexcept;
bool is_line_break(char32_t c) noexcept;  ///< where str.splitlines breaks
bool is_alpha(char32_t c) noexcept;
bool is_decimal(char32_t c) noexcept;
bool is_digit(char32_t c) noexcept;
bool is_numeric(char32_t c) noexcept;
bool is_alnum(char32_t c) noexcept;
bool is_printable(char32_t c) noexcept;
bool is_lower(char32_t c) noexcept;
bool is_upper(char32_t c) noexcept;
bool is_title(char32_t c) noexcept;
bool is_word(char32_t c) noexcept;  ///< \w of Python's re
bool is_identifier(std::string_view text) noexcept;

/// The value of a decimal digit of any script, or -1.
int decimal_value(char32_t c) noexcept;

std::string to_lower(std::string_view text);
std::string to_upper(std::string_view text);
std::string to_title(std::string_view text);
std::string to_capitalized(std::string_view text);
std::string to_swapped_case(std::string_view text);
std::string to_folded(std::string_view text);

/// Without the white space (Python's str.strip()) at the left, right, or both ends.
std::string_view strip_left(std::string_view text) noexcept;
std::string_view strip_right(std::string_view text) noexcept;
std::string_view strip(std::string_view text) noexcept;

}  // namespace kvfork::jinja
