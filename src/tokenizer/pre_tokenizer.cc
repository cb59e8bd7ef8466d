// Pre-tokenizers of tokenizer.json.
#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/unicode.h"

namespace kvfork::tokenizer {
namespace {

constexpr size_t kMaxDepth = 64;
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::unique_ptr<PreTokenizer> make(const Json& json, size_t depth);

SplitBehavior behavior_of(const Json& json) {
  const std::string_view name = json.as_string();
  if (name == "Removed") return SplitBehavior::Removed;
  if (name == "Isolated") return SplitBehavior::Isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::MergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::MergedWithNext;
  if (name == "Contiguous") return SplitBehavior::Contiguous;
  base::fail(ErrorCode::Corrupt, "{}: expected a split behavior, found \"{}\"", json.where(), name);
}

/// A pre-tokenizer that cuts each piece at matches and leaves the text alone.
class Splitter : public PreTokenizer {
 public:
  Splitter(SplitBehavior behavior, bool invert) : behavior_(behavior), invert_(invert) {}
  void apply(Pieces& pieces) const override {
    std::vector<Span> out;
    out.reserve(pieces.spans.size() + pieces.text.size() / 4);
    std::vector<Span> matches;
    for (const Span& span : pieces.spans) {
      matches.clear();
      find(pieces.text.substr(span.begin, span.size()), matches);
      split_piece(span.size(), matches, behavior_, invert_, span.begin, out);
    }
    pieces.spans = std::move(out);
  }

 protected:
  virtual void find(std::string_view piece, std::vector<Span>& matches) const = 0;

 private:
  SplitBehavior behavior_;
  bool invert_;
};

class RegexSplitter : public Splitter {
 public:
  RegexSplitter(Regex regex, SplitBehavior behavior, bool invert)
      : Splitter(behavior, invert), regex_(std::move(regex)) {}

 protected:
  void find(std::string_view piece, std::vector<Span>& matches) const override { regex_.find_all(piece, matches); }

 private:
  Regex regex_;
};

class StringSplitter : public Splitter {
 public:
  StringSplitter(std::string_view pattern, SplitBehavior behavior, bool invert)
      : Splitter(behavior, invert), pattern_(pattern) {}

 protected:
  void find(std::string_view piece, std::vector<Span>& matches) const override {
    for (size_t at = piece.find(pattern_); at != std::string_view::npos;
         at = piece.find(pattern_, at + pattern_.size())) {
      matches.push_back({at, at + pattern_.size()});
    }
  }

 private:
  std::string pattern_;
};

/// Every character with a property is a match of its own.
class PropertySplitter : public Splitter {
 public:
  PropertySplitter(uint16_t property, SplitBehavior behavior) : Splitter(behavior, false), property_(property) {}

 protected:
  void find(std::string_view piece, std::vector<Span>& matches) const override {
    const PropertyTable& table = property_table();
    for (const char *p = piece.data(), *end = p + piece.size(); p < end;) {
      const auto begin = static_cast<size_t>(p - piece.data());
      if ((table[next_code_point(p)] & property_) != 0)
        matches.push_back({begin, static_cast<size_t>(p - piece.data())});
    }
  }

 private:
  uint16_t property_;
};

/// Runs of word characters and runs of anything else that is not whitespace.
class Whitespace : public Splitter {
 public:
  Whitespace() : Splitter(SplitBehavior::Removed, true) {}

 protected:
  void find(std::string_view piece, std::vector<Span>& matches) const override {
    const PropertyTable& table = property_table();
    enum Kind { Word, Space, Other };
    Kind previous = Space;
    for (const char *p = piece.data(), *end = p + piece.size(); p < end;) {
      const auto begin = static_cast<size_t>(p - piece.data());
      const uint16_t word = table[next_code_point(p)];
      const Kind kind = (word & kIsWord) != 0 ? Word : (word & kIsSpace) != 0 ? Space : Other;
      const auto after = static_cast<size_t>(p - piece.data());
      if (kind != Space && kind == previous) matches.back().end = after;
      if (kind != Space && kind != previous) matches.push_back({begin, after});
      previous = kind;
    }
  }
};

class FixedLength : public PreTokenizer {
 public:
  explicit FixedLength(size_t length) : length_(length) {}
  void apply(Pieces& pieces) const override {
    std::vector<Span> out;
    for (const Span& span : pieces.spans) {
      size_t begin = span.begin, n = 0;
      for (size_t at = span.begin; at < span.end;) {
        at += utf8_length(pieces.text[at]);
        if (++n < length_ && at < span.end) continue;
        out.push_back({begin, at});
        begin = at;
        n = 0;
      }
    }
    pieces.spans = std::move(out);
  }

 private:
  size_t length_;
};

class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, bool use_regex) : add_prefix_space_(add_prefix_space) {
    if (use_regex) splitter_.emplace(Regex::compile(kGpt2Pattern, "ByteLevel"), SplitBehavior::Isolated, false);
  }
  bool ends_with_byte_level() const override { return true; }
  void leave_bytes_plain() override { plain_ = true; }
  void set_add_prefix_space(bool value) override { add_prefix_space_ = value; }

  void apply(Pieces& pieces) const override {
    if (add_prefix_space_) add_spaces(pieces);
    if (splitter_) splitter_->apply(pieces);
    if (plain_) return;
    std::string out;
    std::vector<Span> cut;
    for (const Span& span : pieces.spans) {
      const size_t begin = out.size();
      append_byte_level(out, pieces.text.substr(span.begin, span.size()));
      cut.push_back({begin, out.size()});
    }
    pieces.replace(std::move(out), std::move(cut));
  }

 private:
  static void add_spaces(Pieces& pieces) {
    std::string out;
    std::vector<Span> cut;
    for (const Span& span : pieces.spans) {
      const size_t begin = out.size();
      if (pieces.text[span.begin] != ' ') out.push_back(' ');
      out += pieces.text.substr(span.begin, span.size());
      cut.push_back({begin, out.size()});
    }
    pieces.replace(std::move(out), std::move(cut));
  }

  bool add_prefix_space_;
  bool plain_ = false;
  std::optional<RegexSplitter> splitter_;
};

class Metaspace : public PreTokenizer {
 public:
  enum class Prepend { Always, First, Never };
  Metaspace(std::string_view replacement, Prepend prepend, bool split)
      : replacement_(replacement), prepend_(prepend), split_(split) {}

  void apply(Pieces& pieces) const override {
    std::string out;
    std::vector<Span> cut;
    std::vector<Span> matches;
    for (const Span& span : pieces.spans) {
      const std::string_view piece = pieces.text.substr(span.begin, span.size());
      const size_t begin = out.size();
      const bool has_prefix = piece.starts_with(' ') || piece.starts_with(replacement_);
      const bool is_first = pieces.at_start && span.begin == 0;
      if (!has_prefix && (prepend_ == Prepend::Always || (prepend_ == Prepend::First && is_first)))
        out += replacement_;
      for (const char c : piece) {
        if (c == ' ') {
          out += replacement_;
        } else {
          out.push_back(c);
        }
      }
      if (!split_) {
        cut.push_back({begin, out.size()});
        continue;
      }
      matches.clear();
      const std::string_view written = std::string_view(out).substr(begin);
      for (size_t at = written.find(replacement_); at != std::string_view::npos;
           at = written.find(replacement_, at + replacement_.size())) {
        matches.push_back({at, at + replacement_.size()});
      }
      split_piece(written.size(), matches, SplitBehavior::MergedWithNext, false, begin, cut);
    }
    pieces.replace(std::move(out), std::move(cut));
  }

 private:
  std::string replacement_;
  Prepend prepend_;
  bool split_;
};

class Sequence : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<PreTokenizer>> steps) : steps_(std::move(steps)) {}
  void apply(Pieces& pieces) const override {
    for (const auto& step : steps_) step->apply(pieces);
  }
  bool ends_with_byte_level() const override { return !steps_.empty() && steps_.back()->ends_with_byte_level(); }
  void leave_bytes_plain() override { steps_.back()->leave_bytes_plain(); }
  void add_prefix_spaces() override {
    for (const auto& step : steps_) step->add_prefix_spaces();
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

std::unique_ptr<PreTokenizer> make_split(const Json& json) {
  const Json pattern = json.get("pattern");
  const SplitBehavior behavior = behavior_of(json.get("behavior"));
  const bool invert = json.get("invert").as_bool();
  if (const auto text = pattern.find("String"); text && !text->as_string().empty()) {
    return std::make_unique<StringSplitter>(text->as_string(), behavior, invert);
  } else if (text) {
    return std::make_unique<RegexSplitter>(Regex::compile("", text->where()), behavior, invert);
  }
  const Json regex = pattern.get("Regex");
  return std::make_unique<RegexSplitter>(Regex::compile(regex.as_string(), regex.where()), behavior, invert);
}

std::string_view one_character(const Json& json) {
  const std::string_view text = json.as_string();
  if (text.empty() || utf8_length(text[0]) != text.size()) {
    base::fail(ErrorCode::Corrupt, "{}: expected one character, found \"{}\"", json.where(), text);
  }
  return text;
}

std::unique_ptr<PreTokenizer> make_metaspace(const Json& json) {
  const std::string_view scheme = json.string_or("prepend_scheme", "always");
  Metaspace::Prepend prepend = Metaspace::Prepend::Always;
  if (scheme == "first")
    prepend = Metaspace::Prepend::First;
  else if (scheme == "never")
    prepend = Metaspace::Prepend::Never;
  else if (scheme != "always") {
    base::fail(ErrorCode::Corrupt, "{}: expected a prepend_scheme, found \"{}\"", json.where(), scheme);
  }
  if (!json.bool_or("add_prefix_space", true) && prepend != Metaspace::Prepend::Never) {
    base::fail(ErrorCode::Corrupt, "{}: add_prefix_space false contradicts prepend_scheme \"{}\"", json.where(),
               scheme);
  }
  return std::make_unique<Metaspace>(one_character(json.get("replacement")), prepend, json.bool_or("split", true));
}

std::unique_ptr<PreTokenizer> make_sequence(const Json& json, size_t depth) {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  for (const Json step : json.get("pretokenizers").items()) steps.push_back(make(step, depth + 1));
  return std::make_unique<Sequence>(std::move(steps));
}

std::unique_ptr<PreTokenizer> make_fixed_length(const Json& json) {
  const int64_t length = json.get("length").as_int();
  if (length <= 0) base::fail(ErrorCode::Corrupt, "{}: expected a positive length, found {}", json.where(), length);
  return std::make_unique<FixedLength>(static_cast<size_t>(length));
}

std::unique_ptr<PreTokenizer> make(const Json& json, size_t depth) {
  if (depth > kMaxDepth) base::fail(ErrorCode::Corrupt, "{}: pre-tokenizers nested too deep", json.where());
  const std::string_view type = json.get("type").as_string();
  if (type == "ByteLevel") {
    return std::make_unique<ByteLevel>(json.get("add_prefix_space").as_bool(), json.bool_or("use_regex", true));
  }
  if (type == "Split") return make_split(json);
  if (type == "Digits") {
    const bool individual = json.get("individual_digits").as_bool();
    return std::make_unique<PropertySplitter>(kIsNumeric,
                                              individual ? SplitBehavior::Isolated : SplitBehavior::Contiguous);
  }
  if (type == "Punctuation") {
    const auto behavior = json.find("behavior");
    return std::make_unique<PropertySplitter>(kIsPunctuation,
                                              behavior ? behavior_of(*behavior) : SplitBehavior::Isolated);
  }
  if (type == "Whitespace") return std::make_unique<Whitespace>();
  if (type == "WhitespaceSplit") return std::make_unique<PropertySplitter>(kIsSpace, SplitBehavior::Removed);
  if (type == "CharDelimiterSplit") {
    return std::make_unique<StringSplitter>(one_character(json.get("delimiter")), SplitBehavior::Removed, false);
  }
  if (type == "Metaspace") return make_metaspace(json);
  if (type == "UnicodeScripts") return make_unicode_scripts();
  if (type == "FixedLength") return make_fixed_length(json);
  if (type == "Sequence") return make_sequence(json, depth);
  base::fail(ErrorCode::Unsupported, "{}: the pre-tokenizer \"{}\" is not supported", json.where(), type);
}

}  // namespace

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Json& json) {
  return make(json, 0);
}

void split_piece(size_t piece_size, const std::vector<Span>& matches, SplitBehavior behavior, bool invert,
                 size_t offset, std::vector<Span>& out) {
  struct Part {
    Span span;
    bool match;
  };
  if (behavior == SplitBehavior::Isolated) {
    size_t done = 0;
    for (const Span& m : matches) {
      if (done < m.begin) out.push_back({offset + done, offset + m.begin});
      if (m.begin < m.end) out.push_back({offset + m.begin, offset + m.end});
      done = m.end;
    }
    if (done < piece_size) out.push_back({offset + done, offset + piece_size});
    return;
  }
  std::vector<Part> parts;
  size_t done = 0;
  for (const Span& m : matches) {
    if (done != m.begin) parts.push_back({{done, m.begin}, invert});
    parts.push_back({m, !invert});
    done = m.end;
  }
  if (done != piece_size) parts.push_back({{done, piece_size}, invert});

  std::vector<Part> merged;
  bool previous = false;
  switch (behavior) {
    case SplitBehavior::Removed:
      for (const Part& part : parts) {
        if (!part.match) merged.push_back(part);
      }
      break;
    case SplitBehavior::Contiguous:
      for (const Part& part : parts) {
        if (part.match == previous && !merged.empty())
          merged.back().span.end = part.span.end;
        else
          merged.push_back(part);
        previous = part.match;
      }
      break;
    case SplitBehavior::MergedWithPrevious:
      for (const Part& part : parts) {
        if (part.match && !previous && !merged.empty())
          merged.back().span.end = part.span.end;
        else
          merged.push_back(part);
        previous = part.match;
      }
      break;
    default:
      for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        if (part->match && !previous && !merged.empty())
          merged.back().span.begin = part->span.begin;
        else
          merged.push_back(*part);
        previous = part->match;
      }
      std::reverse(merged.begin(), merged.end());
  }
  for (const Part& part : merged) {
    if (part.span.size() > 0) out.push_back({offset + part.span.begin, offset + part.span.end});
  }
}

}  // namespace kvfork::tokenizer
