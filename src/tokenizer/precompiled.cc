// SentencePiece's precompiled character map: a double-array trie (darts-clone layout) from byte strings to offsets
// in a blob of replacement strings.
#include <utf8proc.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/unicode.h"

namespace kvfork::tokenizer {
namespace {

std::string decode_base64(std::string_view text, const std::string& where) {
  std::string out;
  uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : text) {
    uint32_t value;
    if (c >= 'A' && c <= 'Z')
      value = static_cast<uint32_t>(c - 'A');
    else if (c >= 'a' && c <= 'z')
      value = static_cast<uint32_t>(c - 'a' + 26);
    else if (c >= '0' && c <= '9')
      value = static_cast<uint32_t>(c - '0' + 52);
    else if (c == '+')
      value = 62;
    else if (c == '/')
      value = 63;
    else if (c == '=')
      break;
    else
      base::fail(ErrorCode::Corrupt, "{}: expected base64, found the character '{}'", where, c);
    bits = bits << 6 | value;
    n_bits += 6;
    if (n_bits >= 8) {
      n_bits -= 8;
      out.push_back(static_cast<char>(bits >> n_bits & 0xFF));
    }
  }
  return out;
}

class Precompiled : public Normalizer {
 public:
  Precompiled(const std::string& charsmap, const std::string& where) {
    uint32_t trie_bytes = 0;
    if (charsmap.size() >= 4) std::memcpy(&trie_bytes, charsmap.data(), 4);
    if (charsmap.size() < 4 || trie_bytes % 4 != 0 || trie_bytes > charsmap.size() - 4) {
      base::fail(ErrorCode::Corrupt, "{}: expected a trie of whole words within {} bytes, found a size of {}",
                 where, charsmap.size(), trie_bytes);
    }
    trie_.resize(trie_bytes / 4);
    if (trie_bytes > 0) std::memcpy(trie_.data(), charsmap.data() + 4, trie_bytes);
    strings_ = charsmap.substr(4 + trie_bytes);
    if (base::find_invalid_utf8(strings_) != strings_.size()) {
      base::fail(ErrorCode::Corrupt, "{}: expected UTF-8 replacement strings, found other bytes", where);
    }
  }

  // Clusters of less than six bytes are looked up whole, others character by character; the shortest key that
  // starts the lookup wins and replaces all of it. That is what the package does.
  void apply(NormalizedText& in) const override {
    const std::string_view text = in.text;
    std::string out;
    out.reserve(text.size());
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = cluster_end(text, begin);
      const std::string_view cluster = text.substr(begin, end - begin);
      const std::optional<std::string_view> whole = cluster.size() < 6 ? find(cluster) : std::nullopt;
      const size_t before = out.size();
      if (whole) {
        out += *whole;
      } else {
        append_characters(out, cluster);
      }
      if (begin == 0 && out.size() == before) in.at_start = false;
      in.limit.check(out.size());
      begin = end;
    }
    in.text = std::move(out);
  }

 private:
  void append_characters(std::string& out, std::string_view cluster) const {
    for (size_t i = 0; i < cluster.size();) {
      const std::string_view c = cluster.substr(i, utf8_length(cluster[i]));
      out += find(c).value_or(c);
      i += c.size();
    }
  }

  static bool is_control(char32_t c) {
    const int bound = utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->boundclass;
    return bound == UTF8PROC_BOUNDCLASS_CR || bound == UTF8PROC_BOUNDCLASS_LF ||
           bound == UTF8PROC_BOUNDCLASS_CONTROL;
  }

  /// The end of the extended grapheme cluster that starts at `begin`.
  static size_t cluster_end(std::string_view text, size_t begin) {
    const char* p = text.data() + begin;
    const char* end = text.data() + text.size();
    utf8proc_int32_t state = 0;
    char32_t c = next_code_point(p);
    while (p < end) {
      if (c < 0x300 && c != '\r' && static_cast<unsigned char>(*p) < 0x80) break;
      const char* q = p;
      const char32_t next = next_code_point(q);
      const bool breaks = utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c),
                                                           static_cast<utf8proc_int32_t>(next), &state) != 0;
      // The package's Unicode is newer than utf8proc's: marks that only it knows join what is not a control.
      if (breaks && ((property_table()[next] & kIsExtending) == 0 || is_control(c))) break;
      c = next;
      p = q;
    }
    return static_cast<size_t>(p - text.data());
  }

  static uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

  std::optional<std::string_view> find(std::string_view key) const {
    if (trie_.empty()) return std::nullopt;
    size_t node = offset_of(trie_[0]);
    for (const char c : key) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte == 0) return std::nullopt;
      node ^= byte;
      if (node >= trie_.size()) return std::nullopt;
      const uint32_t unit = trie_[node];
      if ((unit & (1u << 31 | 0xFF)) != byte) return std::nullopt;
      node ^= offset_of(unit);
      if (node >= trie_.size()) return std::nullopt;
      if ((unit >> 8 & 1) != 0) return string_at(trie_[node] & 0x7FFFFFFF);
    }
    return std::nullopt;
  }

  std::optional<std::string_view> string_at(size_t offset) const {
    if (offset > strings_.size()) return std::nullopt;
    if (offset < strings_.size() && (static_cast<unsigned char>(strings_[offset]) & 0xC0) == 0x80)
      return std::nullopt;
    const size_t end = std::min(strings_.find('\0', offset), strings_.size());
    return std::string_view(strings_).substr(offset, end - offset);
  }

  std::vector<uint32_t> trie_;
  std::string strings_;
};

}  // namespace

std::unique_ptr<const Normalizer> make_precompiled(const Json& json) {
  const Json map = json.get("precompiled_charsmap");
  return std::make_unique<Precompiled>(decode_base64(map.as_string(), map.where()), map.where());
}

}  // namespace kvfork::tokenizer
