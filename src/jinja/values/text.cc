// Code points of UTF-8 text, with the predicates and case mappings of str.
#include "jinja/values/text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdint>

#include "jinja/values/unicode_tables.h"

namespace kvfork::jinja {
namespace {

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

bool in_ranges(const CharRange* ranges, size_t n, char32_t c) {
  const CharRange* end = ranges + n;
  const CharRange* found =
      std::upper_bound(ranges, end, c, [](char32_t value, const CharRange& range) { return value < range.first; });
  return found != ranges && c <= (found - 1)->last;
}

utf8proc_category_t category(char32_t c) {
  if (c >= 0xD800 && c < 0xE000) return UTF8PROC_CATEGORY_CS;
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool append_special(std::string& out, const SpecialCase* table, size_t n, char32_t c) {
  const SpecialCase* end = table + n;
  const SpecialCase* found =
      std::lower_bound(table, end, c, [](const SpecialCase& entry, char32_t value) { return entry.from < value; });
  if (found == end || found->from != c) return false;
  for (char32_t to : found->to) {
    if (to != 0) append_char(out, to);
  }
  return true;
}

void append_upper(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c));
  } else if (!append_special(out, kSpecialUpper, kSpecialUpper_size, c)) {
    append_char(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string& out, char32_t c) {
  if (!append_special(out, kSpecialTitle, kSpecialTitle_size, c)) {
    append_char(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

bool is_cased(char32_t c) {
  return is_lower(c) || is_upper(c) || is_title(c);
}

// Case_Ignorable: marks, formats, modifiers, and the MidLetter, MidNumLet and Single_Quote characters (UAX #29).
bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      break;
  }
  static const char32_t kMid[] = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,  0x5F4,  0x2018, 0x2019,
                                  0x2024, 0x2027, 0xFE13, 0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
  return std::find(std::begin(kMid), std::end(kMid), c) != std::end(kMid);
}

// Greek capital sigma lowers to its final form after a cased letter that is not followed by one.
bool is_final_sigma(std::string_view text, size_t start, size_t end) {
  bool cased_before = false;
  for (size_t at = start; at > 0;) {
    char32_t c = previous_char(text, at);
    if (is_case_ignorable(c)) continue;
    cased_before = is_cased(c);
    break;
  }
  if (!cased_before) return false;
  for (size_t at = end; at < text.size();) {
    char32_t c = next_char(text, at);
    if (is_case_ignorable(c)) continue;
    return !is_cased(c);
  }
  return true;
}

void append_lower(std::string& out, std::string_view text, size_t start, size_t end, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else if (c == 0x3A3) {
    append_char(out, is_final_sigma(text, start, end) ? 0x3C2 : 0x3C3);
  } else if (!append_special(out, kSpecialLower, kSpecialLower_size, c)) {
    append_char(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

}  // namespace

size_t count_chars(std::string_view text) noexcept {
  size_t n = 0;
  for (char byte : text) n += !is_continuation(byte);
  return n;
}

char32_t next_char(std::string_view text, size_t& position) noexcept {
  auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  unsigned char lead = byte(position++);
  if (lead < 0xC2) return lead;
  size_t n_more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  if (position + n_more > text.size()) return lead;
  char32_t c = lead & (0x3F >> n_more);
  for (size_t i = 0; i < n_more; ++i) {
    if (!is_continuation(text[position + i])) return lead;
    c = (c << 6) | (byte(position + i) & 0x3F);
  }
  position += n_more;
  return c;
}

char32_t previous_char(std::string_view text, size_t& position) noexcept {
  size_t start = position - 1;
  while (start > 0 && position - start < 4 && is_continuation(text[start])) --start;
  position = start;
  size_t at = start;
  return next_char(text, at);
}

void append_escape(std::string& out, char32_t c) {
  const auto value = static_cast<uint32_t>(c);
  out += c < 0x100     ? fmt::format("\\x{:02x}", value)
         : c < 0x10000 ? fmt::format("\\u{:04x}", value)
                       : fmt::format("\\U{:08x}", value);
}

void append_char(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (c >> 6)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (c >> 12)));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    out.push_back(static_cast<char>(0xF0 | (c >> 18)));
    out.push_back(static_cast<char>(0x80 | ((c >> 12) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
}

size_t byte_offset(std::string_view text, size_t index) noexcept {
  size_t at = 0;
  while (index > 0 && at < text.size()) {
    next_char(text, at);
    --index;
  }
  return at;
}

std::vector<char32_t> to_chars32(std::string_view text) {
  std::vector<char32_t> out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) out.push_back(next_char(text, at));
  return out;
}

bool is_ascii(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(), [](char byte) { return static_cast<unsigned char>(byte) < 0x80; });
}

bool is_space(char32_t c) noexcept {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) noexcept {
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_alpha(char32_t c) noexcept {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

bool is_decimal(char32_t c) noexcept {
  if (c < 0x80) return c >= '0' && c <= '9';
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(char32_t c) noexcept {
  return is_decimal(c) || in_ranges(kOtherDigit, kOtherDigit_size, c);
}

bool is_numeric(char32_t c) noexcept {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return !in_ranges(kNumberWithoutValue, kNumberWithoutValue_size, c);
    default:
      return in_ranges(kOtherNumeric, kOtherNumeric_size, c);
  }
}

bool is_alnum(char32_t c) noexcept {
  return is_alpha(c) || is_numeric(c);
}

bool is_printable(char32_t c) noexcept {
  if (c < 0x80) return c >= 0x20 && c < 0x7F;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_lower(char32_t c) noexcept {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return category(c) == UTF8PROC_CATEGORY_LL || in_ranges(kOtherLower, kOtherLower_size, c);
}

bool is_upper(char32_t c) noexcept {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return category(c) == UTF8PROC_CATEGORY_LU || in_ranges(kOtherUpper, kOtherUpper_size, c);
}

bool is_title(char32_t c) noexcept {
  return c >= 0x80 && category(c) == UTF8PROC_CATEGORY_LT;
}

bool is_word(char32_t c) noexcept {
  return c == '_' || is_alnum(c);
}

bool is_identifier(std::string_view text) noexcept {
  for (size_t at = 0; at < text.size();) {
    bool first = at == 0;
    char32_t c = next_char(text, at);
    if (c == '_' || is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL) continue;
    if (first) return false;
    utf8proc_category_t kind = category(c);
    if (kind != UTF8PROC_CATEGORY_ND && kind != UTF8PROC_CATEGORY_MN && kind != UTF8PROC_CATEGORY_MC &&
        kind != UTF8PROC_CATEGORY_PC && c != 0xB7 && c != 0x387) {
      return false;
    }
  }
  return !text.empty();
}

int decimal_value(char32_t c) noexcept {
  if (c >= '0' && c <= '9') return static_cast<int>(c - '0');
  if (c < 0x80 || !is_decimal(c)) return -1;
  // Decimal digits of a script are ten neighbours in order; some blocks hold several runs (U+1D7CE: five).
  if (c >= 0x1D7CE && c <= 0x1D7FF) return static_cast<int>((c - 0x1D7CE) % 10);
  char32_t zero = c;
  while (is_decimal(zero - 1) && c - zero < 9) --zero;
  return static_cast<int>(c - zero);
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    size_t start = at;
    char32_t c = next_char(text, at);
    append_lower(out, text, start, at, c);
  }
  return out;
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) append_upper(out, next_char(text, at));
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool after_cased = false;
  for (size_t at = 0; at < text.size();) {
    size_t start = at;
    char32_t c = next_char(text, at);
    if (after_cased) {
      append_lower(out, text, start, at, c);
    } else {
      append_title(out, c);
    }
    after_cased = is_cased(c);
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    size_t start = at;
    char32_t c = next_char(text, at);
    if (start == 0) {
      append_title(out, c);
    } else {
      append_lower(out, text, start, at, c);
    }
  }
  return out;
}

std::string to_swapped_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    size_t start = at;
    char32_t c = next_char(text, at);
    if (is_upper(c)) {
      append_lower(out, text, start, at, c);
    } else if (is_lower(c)) {
      append_upper(out, c);
    } else {
      append_char(out, c);
    }
  }
  return out;
}

std::string to_folded(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    char32_t c = next_char(text, at);
    if (!append_special(out, kSpecialFold, kSpecialFold_size, c)) {
      append_char(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  }
  return out;
}

std::string_view strip_left(std::string_view text) noexcept {
  size_t at = 0;
  while (at < text.size()) {
    size_t next = at;
    if (!is_space(next_char(text, next))) break;
    at = next;
  }
  return text.substr(at);
}

std::string_view strip_right(std::string_view text) noexcept {
  size_t end = text.size();
  while (end > 0) {
    size_t start = end;
    if (!is_space(previous_char(text, start))) break;
    end = start;
  }
  return text.substr(0, end);
}

std::string_view strip(std::string_view text) noexcept {
  return strip_left(strip_right(text));
}

}  // namespace kvfork::jinja
