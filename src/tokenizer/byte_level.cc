// GPT-2's map between bytes and printable characters.
#include "tokenizer/byte_level.h"

#include <array>

#include "base/utf8.h"

namespace kvfork::tokenizer {
namespace {

struct Alphabet {
  std::array<char32_t, 256> characters{};
  std::array<int16_t, 512> bytes{};

  Alphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (size_t b = 0; b < 256; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      characters[b] = printable ? static_cast<char32_t>(b) : next++;
      bytes[characters[b]] = static_cast<int16_t>(b);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

char32_t byte_level_character(uint8_t byte) noexcept {
  return alphabet().characters[byte];
}

int byte_level_byte(char32_t character) noexcept {
  return character < 512 ? alphabet().bytes[character] : -1;
}

void append_byte_level(std::string& out, std::string_view bytes) {
  const Alphabet& table = alphabet();
  for (const char b : bytes) base::append_utf8(out, table.characters[static_cast<uint8_t>(b)]);
}

void append_token_bytes(std::string& out, std::string_view token) {
  const std::array<int16_t, 512>& bytes = alphabet().bytes;
  const size_t start = out.size();
  for (size_t i = 0; i < token.size();) {
    const auto lead = static_cast<uint8_t>(token[i]);
    const bool is_pair = (lead & 0xFC) == 0xC0 || (lead & 0xFC) == 0xC4;  // U+0080 to U+01FF
    const int byte = lead < 0x80 ? bytes[lead]
                     : is_pair && i + 1 < token.size()
                         ? bytes[(size_t{lead} & 0x1F) << 6 | (static_cast<uint8_t>(token[i + 1]) & 0x3F)]
                         : -1;
    if (byte < 0) {
      out.resize(start);
      out += token;
      return;
    }
    out.push_back(static_cast<char>(byte));
    i += lead < 0x80 ? 1 : 2;
  }
}

std::optional<std::string> byte_level_bytes(std::string_view token) {
  std::string out;
  out.reserve(token.size());
  for (size_t i = 0; i < token.size();) {
    const base::CodePoint c = base::decode_utf8(token, i);
    const int byte = c.valid ? byte_level_byte(c.code_point) : -1;
    if (byte < 0) return std::nullopt;
    out.push_back(static_cast<char>(byte));
    i += c.n_bytes;
  }
  return out;
}

}  // namespace kvfork::tokenizer
