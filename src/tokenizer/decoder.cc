// Decoders of tokenizer.json as parts of a stream.
#include "tokenizer/decoder.h"

#include <algorithm>
#include <optional>

#include "base/ascii.h"
#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/regex.h"
#include "tokenizer/text_limit.h"
#include "tokenizer/unicode.h"

namespace kvfork::tokenizer {
namespace {

constexpr size_t kMaxDepth = 64;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

class ByteLevelStep : public DecodeStep {
 public:
  void push(std::string token, TokenList& out) override {
    append_token_bytes(held_, token);
    const size_t n = complete_prefix(held_);
    if (n == 0) return;
    out.push_back(base::to_valid_utf8(std::string_view(held_).substr(0, n)));
    held_.erase(0, n);
  }
  void finish(TokenList& out) override {
    if (!held_.empty()) out.push_back(base::to_valid_utf8(held_));
    held_.clear();
  }

 private:
  std::string held_;
};

std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const int high = token[3] == '+' ? 0 : base::hex_value(token[3]), low = base::hex_value(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

class ByteFallbackStep : public DecodeStep {
 public:
  void push(std::string token, TokenList& out) override {
    if (const std::optional<char> byte = fallback_byte(token)) {
      run_.push_back(*byte);
      return;
    }
    finish(out);
    out.push_back(std::move(token));
  }
  void finish(TokenList& out) override {
    if (run_.empty()) return;
    if (base::find_invalid_utf8(run_) == run_.size()) {
      out.push_back(run_);
    } else {
      for (size_t i = 0; i < run_.size(); ++i) out.emplace_back(kReplacement);
    }
    run_.clear();
  }

 private:
  std::string run_;
};

class FuseStep : public DecodeStep {
 public:
  void push(std::string token, TokenList& out) override { out.push_back(std::move(token)); }
  void finish(TokenList&) override {}
};

/// Collects a token that arrives in parts and hands it on whole.
template <typename Function>
class WholeStep : public DecodeStep {
 public:
  explicit WholeStep(Function function) : function_(std::move(function)) {}
  void push(std::string token, TokenList&) override {
    held_ += token;
    any_ = true;
  }
  void finish(TokenList& out) override {
    if (any_) out.push_back(function_(held_, out.limit));
    held_.clear();
    any_ = false;
  }

 private:
  Function function_;
  std::string held_;
  bool any_ = false;
};

template <typename Function>
class EachStep : public DecodeStep {
 public:
  explicit EachStep(Function function) : function_(std::move(function)) {}
  void push(std::string token, TokenList& out) override { out.push_back(function_(token, out.limit)); }
  void finish(TokenList&) override {}

 private:
  Function function_;
};

/// String replacement in a token that arrives in parts: the end that may start a match is held back.
class FusedReplaceStep : public DecodeStep {
 public:
  FusedReplaceStep(std::string_view from, std::string_view to) : from_(from), to_(to) {}
  void push(std::string token, TokenList& out) override {
    held_ += token;
    size_t done = 0;
    std::string text;
    for (size_t at = held_.find(from_); at != std::string::npos; at = held_.find(from_, done)) {
      out.limit.check(text.size() + at - done + to_.size());
      text.append(held_, done, at - done).append(to_);
      done = at + from_.size();
    }
    size_t keep = held_.size();
    for (size_t n = std::min(from_.size() - 1, held_.size() - done); n > 0; --n) {
      if (std::string_view(held_).ends_with(std::string_view(from_).substr(0, n))) {
        keep = held_.size() - n;
        break;
      }
    }
    text.append(held_, done, keep - done);
    held_.erase(0, keep);
    out.push_back(std::move(text));
  }
  void finish(TokenList& out) override {
    if (!held_.empty()) out.push_back(held_);
    held_.clear();
  }

 private:
  std::string from_, to_, held_;
};

class ReplacePart : public DecoderPart {
 public:
  ReplacePart(std::string_view from, std::string_view to) : from_(from), to_(to) {}
  std::unique_ptr<DecodeStep> make_step(bool fused) const override {
    if (fused) return std::make_unique<FusedReplaceStep>(from_, to_);
    auto each = [this](const std::string& token, const TextLimit& limit) {
      return replace_all(token, from_, to_, limit);
    };
    return std::make_unique<EachStep<decltype(each)>>(each);
  }

 private:
  std::string from_, to_;
};

class RegexReplacePart : public DecoderPart {
 public:
  RegexReplacePart(Regex regex, std::string_view to) : regex_(std::move(regex)), to_(to) {}
  std::unique_ptr<DecodeStep> make_step(bool fused) const override {
    auto each = [this](const std::string& token, const TextLimit& limit) {
      if (token.empty()) return token;
      std::vector<Span> matches;
      regex_.find_all(token, matches);
      std::string out;
      size_t done = 0;
      for (const Span& match : matches) {
        limit.check(out.size() + match.begin - done + to_.size());
        out.append(token, done, match.begin - done).append(to_);
        done = match.end;
      }
      return out.append(token, done);
    };
    if (fused) return std::make_unique<WholeStep<decltype(each)>>(each);
    return std::make_unique<EachStep<decltype(each)>>(each);
  }

 private:
  Regex regex_;
  std::string to_;
};

std::string strip(std::string_view token, std::string_view content, size_t start, size_t stop) {
  for (size_t i = 0; i < start && token.starts_with(content); ++i) token.remove_prefix(content.size());
  for (size_t i = 0; i < stop && token.ends_with(content); ++i) token.remove_suffix(content.size());
  return std::string(token);
}

/// Strip on a token that arrives in parts: the first `start` characters, and up to `stop` at the end.
class FusedStripStep : public DecodeStep {
 public:
  FusedStripStep(std::string_view content, size_t start, size_t stop)
      : content_(content), start_(start), stop_(stop) {}
  void push(std::string token, TokenList& out) override {
    held_ += token;
    for (; left_ < start_; ++left_) {
      if (held_.size() < content_.size() && content_.starts_with(held_)) return;
      if (!held_.starts_with(content_))
        left_ = start_ - 1;
      else
        held_.erase(0, content_.size());
    }
    size_t keep = held_.size();
    for (size_t i = 0; i < stop_ && std::string_view(held_).substr(0, keep).ends_with(content_); ++i)
      keep -= content_.size();
    out.push_back(held_.substr(0, keep));
    held_.erase(0, keep);
  }
  void finish(TokenList& out) override {
    out.push_back(strip(held_, content_, 0, stop_));
    held_.clear();
    left_ = 0;
  }

 private:
  std::string content_;
  size_t start_, stop_, left_ = 0;
  std::string held_;
};

class StripPart : public DecoderPart {
 public:
  StripPart(std::string_view content, size_t start, size_t stop) : content_(content), start_(start), stop_(stop) {}
  std::unique_ptr<DecodeStep> make_step(bool fused) const override {
    if (fused) return std::make_unique<FusedStripStep>(content_, start_, stop_);
    auto each = [this](const std::string& token, const TextLimit&) {
      return strip(token, content_, start_, stop_);
    };
    return std::make_unique<EachStep<decltype(each)>>(each);
  }

 private:
  std::string content_;
  size_t start_, stop_;
};

class MetaspaceStep : public DecodeStep {
 public:
  MetaspaceStep(std::string_view replacement, bool drops_first, bool fused)
      : replacement_(replacement), drops_first_(drops_first), fused_(fused) {}
  void push(std::string token, TokenList& out) override {
    out.push_back(replace_all(token, replacement_, first_ && drops_first_ ? "" : " ", out.limit));
    first_ = first_ && fused_;
  }
  void finish(TokenList&) override { first_ = true; }

 private:
  std::string replacement_;
  bool drops_first_, fused_, first_ = true;
};

class MetaspacePart : public DecoderPart {
 public:
  MetaspacePart(std::string_view replacement, bool drops_first)
      : replacement_(replacement), drops_first_(drops_first) {}
  std::unique_ptr<DecodeStep> make_step(bool fused) const override {
    return std::make_unique<MetaspaceStep>(replacement_, drops_first_, fused);
  }

 private:
  std::string replacement_;
  bool drops_first_;
};

/// A suffix marks the end of a word: it becomes a space, and nothing in the last token.
class SuffixStep : public DecodeStep {
 public:
  SuffixStep(std::string_view suffix, bool fused) : suffix_(suffix), fused_(fused) {}
  void push(std::string token, TokenList& out) override {
    if (fused_ && held_) {
      *held_ += token;
      return;
    }
    if (held_) out.push_back(replace_all(*held_, suffix_, " ", out.limit));
    held_ = std::move(token);
  }
  void finish(TokenList& out) override {
    if (held_) out.push_back(replace_all(*held_, suffix_, "", out.limit));
    held_.reset();
  }

 private:
  std::string suffix_;
  bool fused_;
  std::optional<std::string> held_;
};

class SuffixPart : public DecoderPart {
 public:
  explicit SuffixPart(std::string_view suffix) : suffix_(suffix) {}
  std::unique_ptr<DecodeStep> make_step(bool fused) const override {
    return std::make_unique<SuffixStep>(suffix_, fused);
  }

 private:
  std::string suffix_;
};

class JoinStep : public DecodeStep {
 public:
  void push(std::string token, TokenList& out) override {
    out.push_back(first_ ? std::move(token) : " " + token);
    first_ = false;
  }
  void finish(TokenList&) override { first_ = true; }

 private:
  bool first_ = true;
};

template <typename Step, bool kFuses>
class SimplePart : public DecoderPart {
 public:
  std::unique_ptr<DecodeStep> make_step(bool fused) const override {
    if constexpr (std::is_same_v<Step, ByteFallbackStep>) {
      if (fused) {
        auto whole = [](const std::string& token, const TextLimit& limit) {
          ByteFallbackStep step;
          TokenList out(limit);
          step.push(token, out);
          step.finish(out);
          std::string joined;
          for (const std::string& part : out) joined += part;
          return joined;
        };
        return std::make_unique<WholeStep<decltype(whole)>>(whole);
      }
    }
    if constexpr (std::is_same_v<Step, ByteLevelStep>) {
      if (fused) {
        auto whole = [](const std::string& token, const TextLimit&) {
          return base::to_valid_utf8(byte_level_bytes(token).value_or(token));
        };
        return std::make_unique<WholeStep<decltype(whole)>>(whole);
      }
    }
    return std::make_unique<Step>();
  }
  bool fuses() const override { return kFuses; }
};

using Parts = std::vector<std::shared_ptr<const DecoderPart>>;

std::string_view one_character(const Json& json) {
  const std::string_view text = json.as_string();
  if (text.empty() || utf8_length(text[0]) != text.size()) {
    base::fail(ErrorCode::Corrupt, "{}: expected one character, found \"{}\"", json.where(), text);
  }
  return text;
}

size_t count_of(const Json& json) {
  const int64_t n = json.as_int();
  if (n < 0) base::fail(ErrorCode::Corrupt, "{}: expected a count, found {}", json.where(), n);
  return static_cast<size_t>(n);
}

void add_replace(const Json& json, Parts& parts) {
  const Json pattern = json.get("pattern");
  const std::string_view content = json.get("content").as_string();
  const auto text = pattern.find("String");
  if (text && !text->as_string().empty()) {
    parts.push_back(std::make_shared<ReplacePart>(text->as_string(), content));
    return;
  }
  const Json regex = text ? *text : pattern.get("Regex");
  parts.push_back(std::make_shared<RegexReplacePart>(Regex::compile(regex.as_string(), regex.where()), content));
}

void add(const Json& json, Parts& parts, size_t depth) {
  if (depth > kMaxDepth) base::fail(ErrorCode::Corrupt, "{}: decoders nested too deep", json.where());
  const std::string_view type = json.get("type").as_string();
  if (type == "ByteLevel") {
    parts.push_back(std::make_shared<SimplePart<ByteLevelStep, true>>());
  } else if (type == "ByteFallback") {
    parts.push_back(std::make_shared<SimplePart<ByteFallbackStep, false>>());
  } else if (type == "Fuse") {
    parts.push_back(std::make_shared<SimplePart<FuseStep, true>>());
  } else if (type == "Replace") {
    add_replace(json, parts);
  } else if (type == "Strip") {
    parts.push_back(std::make_shared<StripPart>(one_character(json.get("content")), count_of(json.get("start")),
                                                count_of(json.get("stop"))));
  } else if (type == "Metaspace") {
    const std::string_view scheme = json.string_or("prepend_scheme", "always");
    const bool adds = json.bool_or("add_prefix_space", true) && scheme != "never";
    parts.push_back(std::make_shared<MetaspacePart>(one_character(json.get("replacement")), adds));
  } else if (type == "BPEDecoder") {
    parts.push_back(std::make_shared<SuffixPart>(json.get("suffix").as_string()));
  } else if (type == "Sequence") {
    for (const Json part : json.get("decoders").items()) add(part, parts, depth + 1);
  } else {
    base::fail(ErrorCode::Unsupported, "{}: the decoder \"{}\" is not supported", json.where(), type);
  }
}

std::string clean_up(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
      {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) {
    if (text.find(from) != std::string::npos) text = replace_all(text, from, to, TextLimit(text.size()));
  }
  return text;
}

}  // namespace

size_t complete_prefix(std::string_view bytes) noexcept {
  for (size_t back = 1; back <= std::min<size_t>(3, bytes.size()); ++back) {
    const size_t at = bytes.size() - back;
    const auto lead = static_cast<unsigned char>(bytes[at]);
    if ((lead & 0xC0) == 0x80) continue;
    const size_t need = lead >= 0xF0 && lead <= 0xF4 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 1;
    if (lead > 0xF4 || need <= back) return bytes.size();
    if (back >= 2) {
      const auto second = static_cast<unsigned char>(bytes[at + 1]);
      const bool possible = !((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                              (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F));
      if (!possible) return bytes.size();
    }
    return at;
  }
  return bytes.size();
}

Decoder::Decoder() {
  parts_.push_back(std::make_shared<SimplePart<JoinStep, false>>());
}

Decoder::Decoder(const Json& json) {
  add(json, parts_, 0);
  is_byte_level_ =
      parts_.size() == 1 && dynamic_cast<const SimplePart<ByteLevelStep, true>*>(parts_[0].get()) != nullptr;
}

DecodeChain Decoder::make_chain() const {
  DecodeChain chain;
  bool fused = false;
  for (const auto& part : parts_) {
    chain.steps_.push_back(part->make_step(fused));
    fused = fused || part->fuses();
  }
  return chain;
}

void DecodeChain::run_from(size_t first, TokenList tokens, std::string& out) {
  for (size_t i = first; i < steps_.size() && !tokens.empty(); ++i) {
    TokenList next(tokens.limit);
    for (std::string& token : tokens) steps_[i]->push(std::move(token), next);
    tokens = std::move(next);
  }
  for (const std::string& token : tokens) out += token;
}

void DecodeChain::push(std::string token, std::string& out) {
  n_bytes_ += token.size();
  TokenList tokens{TextLimit(n_bytes_)};
  tokens.push_back(std::move(token));
  run_from(0, std::move(tokens), out);
}

void DecodeChain::finish(std::string& out) {
  for (size_t i = 0; i < steps_.size(); ++i) {
    TokenList rest{TextLimit(n_bytes_)};
    steps_[i]->finish(rest);
    run_from(i + 1, std::move(rest), out);
  }
  n_bytes_ = 0;
}

// Every rule only drops a space, starts with one, and has at most three more characters, one of them possibly a
// closing space. So after three characters in a row that are not spaces nothing to the left can be touched by what
// follows, and the text may be cut there and cleaned in parts.
void CleanupStream::push(std::string_view text, std::string& out) {
  held_ += text;
  size_t cut = 0, run = 0;
  for (size_t i = 0; i < held_.size(); ++i) {
    run = held_[i] == ' ' ? 0 : run + 1;
    if (run >= 3) cut = i + 1;
  }
  // Not inside a character.
  while (cut > 0 && cut < held_.size() && (static_cast<unsigned char>(held_[cut]) & 0xC0) == 0x80) --cut;
  out += clean_up(held_.substr(0, cut));
  held_.erase(0, cut);
}

void CleanupStream::finish(std::string& out) {
  out += clean_up(std::move(held_));
  held_.clear();
}

}  // namespace kvfork::tokenizer
