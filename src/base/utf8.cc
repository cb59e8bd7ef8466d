// UTF-8 by table 3-7 of the Unicode Standard.
#include "base/utf8.h"

#include <cstring>

namespace kvfork::base {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

struct SequenceRule {
  uint8_t length;  // 0: not a lead byte
  uint8_t second_min, second_max;
};

// Unicode Standard, table 3-7: the second byte's range excludes overlong forms and surrogates.
constexpr SequenceRule sequence_rule(uint8_t lead) noexcept {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// Number of leading bytes at `position` that form a (possibly incomplete) well-formed sequence; at least 1.
size_t maximal_subpart(std::string_view text, size_t position) noexcept {
  const auto rule = sequence_rule(static_cast<uint8_t>(text[position]));
  size_t n = 1;
  for (; n < rule.length && position + n < text.size(); ++n) {
    const auto byte = static_cast<uint8_t>(text[position + n]);
    const uint8_t low = n == 1 ? rule.second_min : 0x80;
    const uint8_t high = n == 1 ? rule.second_max : 0xBF;
    if (byte < low || byte > high) break;
  }
  return n;
}

}  // namespace

CodePoint decode_utf8(std::string_view text, size_t position) noexcept {
  if (position >= text.size()) return {};
  const auto lead = static_cast<uint8_t>(text[position]);
  const auto rule = sequence_rule(lead);
  if (rule.length == 1) return {lead, 1, true};
  if (rule.length == 0 || maximal_subpart(text, position) < rule.length) return {kReplacement, 1, false};
  char32_t code_point = lead & (0xFF >> (rule.length + 1));
  for (size_t i = 1; i < rule.length; ++i)
    code_point = (code_point << 6) | (static_cast<uint8_t>(text[position + i]) & 0x3F);
  return {code_point, rule.length, true};
}

void append_utf8(std::string& out, char32_t code_point) {
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF)) code_point = kReplacement;
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xC0 | (code_point >> 6));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xE0 | (code_point >> 12));
    out += static_cast<char>(0x80 | ((code_point >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (code_point >> 18));
    out += static_cast<char>(0x80 | ((code_point >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((code_point >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  }
}

size_t find_invalid_utf8(std::string_view text) noexcept {
  size_t position = 0;
  while (position < text.size()) {
    // Most text is ASCII, which eight bytes at a time show by their high bits.
    for (uint64_t eight = 0; position + sizeof(eight) <= text.size(); position += sizeof(eight)) {
      std::memcpy(&eight, text.data() + position, sizeof(eight));
      if ((eight & 0x8080808080808080) != 0) break;
    }
    while (position < text.size() && static_cast<uint8_t>(text[position]) < 0x80) ++position;
    if (position == text.size()) break;
    const CodePoint next = decode_utf8(text, position);
    if (!next.valid) return position;
    position += next.n_bytes;
  }
  return text.size();
}

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t position = 0;
  while (position < text.size()) {
    const CodePoint next = decode_utf8(text, position);
    if (next.valid) {
      out.append(text.substr(position, next.n_bytes));
      position += next.n_bytes;
    } else {
      append_utf8(out, kReplacement);
      position += maximal_subpart(text, position);
    }
  }
  return out;
}

}  // namespace kvfork::base
