// Normalizers of tokenizer.json.
#include "tokenizer/normalizer.h"

#include <optional>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

namespace kvfork::tokenizer {
namespace {

constexpr size_t kMaxDepth = 64;

std::unique_ptr<const Normalizer> make(const Json& json, size_t depth);

class UnicodeForm : public Normalizer {
 public:
  explicit UnicodeForm(NormalForm form) : form_(form) {}
  void apply(NormalizedText& in) const override {
    if (!is_surely_normalized(in.text, form_)) in.text = normalize(in.text, form_);
  }
  bool keeps(std::string_view text) const override { return is_surely_normalized(text, form_); }

 private:
  NormalForm form_;
};

class Lowercase : public Normalizer {
 public:
  void apply(NormalizedText& in) const override { in.text = to_lowercase(in.text); }
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(NormalizedText& in) const override {
    const std::string_view text = in.text;
    size_t begin = 0, end = text.size();
    if (left_) {
      while (begin < end) {
        const char* p = text.data() + begin;
        if (!is_white_space(next_code_point(p))) break;
        begin = static_cast<size_t>(p - text.data());
      }
    }
    while (right_ && end > begin) {
      size_t last = end - 1;
      while (last > begin && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
      const char* p = text.data() + last;
      if (!is_white_space(next_code_point(p))) break;
      end = last;
    }
    if (begin > 0) in.at_start = false;
    in.text = in.text.substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

/// Keeps, replaces or drops single characters; `Map` returns the character to write, or nothing.
template <std::optional<char32_t> (*Map)(char32_t)>
class CharacterMap : public Normalizer {
 public:
  void apply(NormalizedText& in) const override {
    std::string out;
    out.reserve(in.text.size());
    bool first = true;
    for (const char *p = in.text.data(), *end = p + in.text.size(); p < end; first = false) {
      const std::optional<char32_t> c = Map(next_code_point(p));
      if (c) base::append_utf8(out, *c);
      if (first && !c) in.at_start = false;
    }
    in.text = std::move(out);
  }
};

std::optional<char32_t> strip_accent(char32_t c) {
  return (property_table()[c] & kIsCombining) != 0 ? std::nullopt : std::optional(c);
}

// SentencePiece's nmt rules: control characters go, odd whitespace becomes a space.
std::optional<char32_t> nmt(char32_t c) {
  if ((c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) {
    return std::nullopt;
  }
  if (c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) || c == 0x2028 ||
      c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD) {
    return ' ';
  }
  return c;
}

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string_view prefix) : prefix_(prefix) {}
  void apply(NormalizedText& in) const override {
    if (in.text.empty()) return;
    in.limit.check(prefix_.size() + in.text.size());
    in.text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class ReplaceString : public Normalizer {
 public:
  ReplaceString(std::string_view pattern, std::string_view content) : pattern_(pattern), content_(content) {}
  bool keeps(std::string_view text) const override { return text.find(pattern_) == std::string_view::npos; }
  void apply(NormalizedText& in) const override {
    if (keeps(in.text)) return;
    const bool loses_first = content_.empty() || utf8_length(pattern_[0]) < pattern_.size();
    if (loses_first && in.text.starts_with(pattern_)) in.at_start = false;
    in.text = replace_all(in.text, pattern_, content_, in.limit);
  }

 private:
  std::string pattern_, content_;
};

class ReplaceRegex : public Normalizer {
 public:
  ReplaceRegex(Regex regex, std::string_view content) : regex_(std::move(regex)), content_(content) {}
  void apply(NormalizedText& in) const override {
    const std::string_view text = in.text;
    if (text.empty()) return;
    std::vector<Span> matches;
    regex_.find_all(text, matches);
    if (matches.empty()) return;
    std::string out;
    size_t done = 0;
    for (const Span& match : matches) {
      if (match.begin == 0 && match.end > 0 && (content_.empty() || utf8_length(text[0]) < match.end))
        in.at_start = false;
      in.limit.check(out.size() + match.begin - done + content_.size());
      out.append(text.substr(done, match.begin - done)).append(content_);
      done = match.end;
    }
    out.append(text.substr(done));
    in.text = std::move(out);
  }

 private:
  Regex regex_;
  std::string content_;
};

class ByteLevelNormalizer : public Normalizer {
 public:
  void apply(NormalizedText& in) const override {
    std::string out;
    append_byte_level(out, in.text);
    in.limit.check(out.size());
    in.text = std::move(out);
  }
};

class Sequence : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<const Normalizer>> steps) : steps_(std::move(steps)) {}
  void apply(NormalizedText& in) const override {
    for (const auto& step : steps_) step->apply(in);
  }
  bool keeps(std::string_view text) const override {
    for (const auto& step : steps_) {
      if (!step->keeps(text)) return false;
    }
    return true;
  }

 private:
  std::vector<std::unique_ptr<const Normalizer>> steps_;
};

std::unique_ptr<const Normalizer> make_replace(const Json& json) {
  const Json pattern = json.get("pattern");
  const std::string_view content = json.get("content").as_string();
  if (const auto text = pattern.find("String")) {
    if (!text->as_string().empty()) return std::make_unique<ReplaceString>(text->as_string(), content);
    return std::make_unique<ReplaceRegex>(Regex::compile("", text->where()), content);
  }
  const Json regex = pattern.get("Regex");
  return std::make_unique<ReplaceRegex>(Regex::compile(regex.as_string(), regex.where()), content);
}

std::unique_ptr<const Normalizer> make_sequence(const Json& json, size_t depth) {
  std::vector<std::unique_ptr<const Normalizer>> steps;
  for (const Json step : json.get("normalizers").items()) steps.push_back(make(step, depth + 1));
  return std::make_unique<Sequence>(std::move(steps));
}

std::unique_ptr<const Normalizer> make(const Json& json, size_t depth) {
  if (depth > kMaxDepth) base::fail(ErrorCode::Corrupt, "{}: normalizers nested too deep", json.where());
  const std::string_view type = json.get("type").as_string();
  if (type == "NFC") return std::make_unique<UnicodeForm>(NormalForm::NFC);
  if (type == "NFD") return std::make_unique<UnicodeForm>(NormalForm::NFD);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(NormalForm::NFKC);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(NormalForm::NFKD);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "Strip") {
    return std::make_unique<Strip>(json.get("strip_left").as_bool(), json.get("strip_right").as_bool());
  }
  if (type == "StripAccents") return std::make_unique<CharacterMap<strip_accent>>();
  if (type == "Nmt") return std::make_unique<CharacterMap<nmt>>();
  if (type == "Prepend") return std::make_unique<Prepend>(json.get("prepend").as_string());
  if (type == "Replace") return make_replace(json);
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Precompiled") return make_precompiled(json);
  if (type == "Sequence") return make_sequence(json, depth);
  base::fail(ErrorCode::Unsupported, "{}: the normalizer \"{}\" is not supported", json.where(), type);
}

}  // namespace

std::unique_ptr<const Normalizer> make_normalizer(const Json& json) {
  return make(json, 0);
}

}  // namespace kvfork::tokenizer
