// GPT-2's byte alphabet: each byte stands for one printable character, so that any text is a string of known
// characters (Radford et al. 2019, encoder.py: printable bytes stand for themselves, the rest for U+0100 and up).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvfork::tokenizer {

/// The character of a byte.
char32_t byte_level_character(uint8_t byte) noexcept;
/// The byte of a character, or -1.
int byte_level_byte(char32_t character) noexcept;
/// Appends `bytes`, each as its character.
void append_byte_level(std::string& out, std::string_view bytes);
/// Appends the bytes of `token`, or `token` itself when a character of it is not in the alphabet: ByteLevel's
/// decode.
void append_token_bytes(std::string& out, std::string_view token);
/// The bytes of `token`, or nothing when a character of it is not in the alphabet.
std::optional<std::string> byte_level_bytes(std::string_view token);

}  // namespace kvfork::tokenizer
