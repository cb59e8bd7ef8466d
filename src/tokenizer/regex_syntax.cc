// From Oniguruma's syntax to PCRE2's.
#include "tokenizer/regex_syntax.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/unicode_tables.h"

namespace kvfork::tokenizer {
namespace {

constexpr size_t kMaxDepth = 200;
constexpr size_t kMaxSets = 4096;
constexpr std::array<std::string_view, 29> kCategoryNames = {
    "cn", "lu", "ll", "lt", "lm", "lo", "mn", "mc", "me", "nd", "nl", "no", "pc", "pd", "ps",
    "pe", "pi", "pf", "po", "sm", "sc", "sk", "so", "zs", "zl", "zp", "cc", "cf", "co"};

CodePointSet of_categories(std::initializer_list<int> categories) {
  uint32_t mask = 0;
  for (const int category : categories) mask |= uint32_t{1} << category;
  return CodePointSet::of_categories(mask);
}

CodePointSet letters() {
  return of_categories({Lu, Ll, Lt, Lm, Lo});
}
CodePointSet numbers() {
  return of_categories({Nd, Nl, No});
}
CodePointSet marks() {
  return of_categories({Mn, Mc, Me});
}

// Script=Han of Unicode 16; unassigned code points within are cut out by category.
constexpr std::pair<char32_t, char32_t> kHan[] = {
    {0x2E80, 0x2FD5}, {0x3005, 0x3005}, {0x3007, 0x3007},   {0x3021, 0x3029},   {0x3038, 0x303B},  {0x3400, 0x4DBF},
    {0x4E00, 0x9FFF}, {0xF900, 0xFAD9}, {0x16FE2, 0x16FE3}, {0x16FF0, 0x16FF1}, {0x20000, 0x323AF}};

std::string squeeze(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != ' ' && c != '_' && c != '-')
      out.push_back(base::to_ascii_lower(c));
  }
  return out;
}

CodePointSet spaces() {
  CodePointSet set = of_categories({Zs, Zl, Zp});
  set.add(0x9, 0xD);
  set.add(0x85, 0x85);
  return set;
}
CodePointSet digits() {
  return of_categories({Nd});
}
CodePointSet hex_digits() {
  CodePointSet set = CodePointSet::of('0', '9');
  set.add('a', 'f');
  set.add('A', 'F');
  return set;
}
CodePointSet of_ranges(const CodePointRange* ranges, size_t count) {
  CodePointSet set;
  for (size_t i = 0; i < count; ++i) set.append(ranges[i].first, ranges[i].last);
  return set;
}

/// \w inside a class: alphabetic characters, marks, decimal digits and connectors.
CodePointSet words() {
  CodePointSet set = of_ranges(kAlphaRanges, kAlphaRanges_count);
  set.add(of_categories({Mn, Mc, Me, Nd, Pc}));
  return set;
}

/// \w on its own, and \b: Oniguruma has a table of its own for Latin-1, where superscripts and fractions are words.
CodePointSet words_alone() {
  CodePointSet set = words();
  for (const char32_t c : {0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE}) set.add(c, c);
  return set;
}

/// The set of a property name, without `\p{` and `}`.
std::optional<CodePointSet> find_property(std::string_view raw) {
  const std::string name = squeeze(raw);
  for (size_t i = 0; i < kCategoryNames.size(); ++i) {
    if (name == kCategoryNames[i]) return of_categories({static_cast<int>(i)});
  }
  if (name == "l" || name == "letter") return letters();
  if (name == "n" || name == "number") return numbers();
  if (name == "m" || name == "mark") return marks();
  if (name == "p" || name == "punctuation") return of_categories({Pc, Pd, Ps, Pe, Pi, Pf, Po});
  if (name == "s" || name == "symbol") return of_categories({Sm, Sc, Sk, So});
  if (name == "z" || name == "separator") return of_categories({Zs, Zl, Zp});
  if (name == "lc" || name == "casedletter") return of_categories({Lu, Ll, Lt});
  if (name == "c" || name == "other") return of_categories({Cc, Cf, Co, Cn});
  if (name == "alphabetic" || name == "alpha") return of_ranges(kAlphaRanges, kAlphaRanges_count);
  if (name == "uppercase" || name == "upper") return of_ranges(kUpperRanges, kUpperRanges_count);
  if (name == "lowercase" || name == "lower") return of_ranges(kLowerRanges, kLowerRanges_count);
  if (name == "word") return words();
  if (name == "space" || name == "whitespace") return spaces();
  if (name == "digit") return digits();
  if (name == "xdigit") return hex_digits();
  if (name == "ascii") return CodePointSet::of(0, 0x7F);
  if (name == "any") return CodePointSet::of(0, 0x10FFFF);
  if (name == "cntrl") return of_categories({Cc});
  if (name == "han") {
    CodePointSet set;
    for (const auto& [first, last] : kHan) set.add(first, last);
    return set.intersect(of_categories({Cn}).complement());
  }
  return std::nullopt;
}

class Parser {
 public:
  Parser(std::string_view pattern, std::string_view subject) : pattern_(pattern), subject_(subject) {}

  RegexParts parse() {
    parse_alternatives(0);
    if (position_ != pattern_.size()) corrupt("an unmatched ')'");
    return std::move(out_);
  }

 private:
  [[noreturn]] void corrupt(std::string_view what) const {
    base::fail(ErrorCode::Corrupt, "{}: expected a valid regular expression, found {} at byte {} of \"{}\"",
               subject_, what, position_, pattern_);
  }
  [[noreturn]] void unsupported(std::string_view what) const {
    base::fail(ErrorCode::Unsupported, "{}: {} is not supported in a regular expression (byte {} of \"{}\")",
               subject_, what, position_, pattern_);
  }

  bool at_end() const { return position_ >= pattern_.size(); }
  char peek(size_t ahead = 0) const {
    return position_ + ahead < pattern_.size() ? pattern_[position_ + ahead] : '\0';
  }
  bool accept(std::string_view text) {
    if (pattern_.substr(position_, text.size()) != text) return false;
    position_ += text.size();
    return true;
  }
  char32_t take() {
    if (at_end()) corrupt("the end");
    const base::CodePoint c = base::decode_utf8(pattern_, position_);
    if (!c.valid) corrupt("ill-formed UTF-8");
    position_ += c.n_bytes;
    return c.code_point;
  }

  void emit(std::string_view syntax) { out_.parts.push_back({std::string(syntax), -1}); }
  void emit_set(CodePointSet set) {
    if (out_.sets.size() >= kMaxSets) unsupported("a pattern this large");
    out_.parts.push_back({"", static_cast<int>(out_.sets.size())});
    out_.sets.push_back(ignore_case_ ? set.fold_case() : std::move(set));
  }
  /// A class, or one character, without regard to case: it also matches what its characters fold to, where that is
  /// several.
  void emit_folding(CodePointSet set) {
    set = set.fold_case();
    std::vector<const std::u32string*> several;
    for (const auto& [folding, characters] : multiple_foldings()) {
      if (set.intersect(characters).ranges().empty()) continue;
      several.push_back(&folding);
      set.add(characters);
    }
    if (several.empty()) return emit_set(std::move(set));
    emit("(?:");
    emit_set(std::move(set));
    for (const std::u32string* folding : several) {
      emit("|");
      for (const char32_t c : *folding) emit_set(CodePointSet::of(c, c));
    }
    emit(")");
  }
  /// Characters in a row, without regard to case. Where some of them, as many as possible from the left, are what
  /// one character folds to, that matches too.
  void emit_folding(std::u32string_view text) {
    const auto emit_each = [&](size_t n) {
      for (const char32_t c : text.substr(0, n)) emit_folding(CodePointSet::of(c, c));
    };
    while (!text.empty()) {
      std::u32string_view longest;
      const CodePointSet* characters = nullptr;
      for (const auto& [folding, set] : multiple_foldings()) {
        if (folding.size() <= longest.size() || !starts_with_folded(text, folding)) continue;
        longest = folding;
        characters = &set;
      }
      const size_t n = std::max<size_t>(longest.size(), 1);
      if (characters != nullptr) emit("(?:");
      emit_each(n);
      if (characters != nullptr) {
        emit("|");
        emit_set(*characters);
        emit(")");
      }
      text.remove_prefix(n);
    }
  }
  static bool starts_with_folded(std::u32string_view text, std::u32string_view folding) {
    const auto same = [](char32_t a, char32_t b) { return fold_key(a) == fold_key(b); };
    return text.size() >= folding.size() && std::equal(folding.begin(), folding.end(), text.begin(), same);
  }
  /// The condition "between a character of `set` and one outside it", negated or not.
  void emit_boundary(const CodePointSet& set, bool negated) {
    const bool saved = std::exchange(ignore_case_, false);
    emit("(?:(?<=");
    emit_set(set);
    emit(negated ? ")(?=" : ")(?!");
    emit_set(set);
    emit(")|(?<!");
    emit_set(set);
    emit(negated ? ")(?!" : ")(?=");
    emit_set(set);
    emit("))");
    ignore_case_ = saved;
  }

  void parse_alternatives(size_t depth) {
    if (depth > kMaxDepth) unsupported("nesting this deep");
    while (!at_end() && peek() != ')') {
      if (accept("|")) {
        emit("|");
        continue;
      }
      if (extended_ && skip_extended()) continue;
      if (ignore_case_ && !extended_) emit_folding(take_plain_text());
      if (at_end() || peek() == ')' || peek() == '|') continue;
      parse_quantified(depth);
    }
  }

  /// Characters that stand for themselves, each once.
  std::u32string take_plain_text() {
    std::u32string text;
    while (!at_end() && std::string_view("()[].^$|*+?{\\").find(peek()) == std::string_view::npos) {
      const size_t start = position_;
      const char32_t c = take();
      if (!at_end() && std::string_view("*+?{").find(peek()) != std::string_view::npos) {
        position_ = start;
        break;
      }
      text.push_back(c);
    }
    return text;
  }

  bool skip_extended() {
    if (base::is_ascii_space(peek())) {
      ++position_;
      return true;
    }
    if (peek() != '#') return false;
    while (!at_end() && peek() != '\n') ++position_;
    return true;
  }

  void parse_quantified(size_t depth) {
    const size_t start = out_.parts.size();
    if (!parse_atom(depth)) return;
    // A repeated quantifier wraps what it repeats: a{1,3}+ is (?:a{1,3})+ here, never possessive.
    for (bool first = true;; first = false) {
      const std::string quantifier = take_quantifier();
      if (quantifier.empty()) return;
      if (!first) {
        out_.parts.insert(out_.parts.begin() + static_cast<ptrdiff_t>(start), {"(?:", -1});
        emit(")");
      }
      emit(quantifier);
    }
  }

  std::string take_quantifier() {
    std::string out;
    const char c = peek();
    if (c == '*' || c == '+' || c == '?') {
      ++position_;
      out.push_back(c);
      if (peek() == '?' || peek() == '+') out.push_back(pattern_[position_++]);
      return out;
    }
    if (c != '{') return out;
    size_t end = position_ + 1;
    while (end < pattern_.size() &&
           (base::is_ascii_digit(pattern_[end]) || pattern_[end] == ','))
      ++end;
    const std::string_view body = pattern_.substr(position_ + 1, end - position_ - 1);
    const bool has_digit = std::any_of(body.begin(), body.end(), [](char x) { return x != ','; });
    if (end >= pattern_.size() || pattern_[end] != '}' || !has_digit ||
        std::count(body.begin(), body.end(), ',') > 1) {
      return out;
    }
    if (body.size() > 11) unsupported("a repeat count this large");
    position_ = end + 1;
    out = body.front() == ',' ? "{0" + std::string(body) + "}" : "{" + std::string(body) + "}";
    const bool is_fixed = body.find(',') == std::string_view::npos;
    if (peek() == '?' && !is_fixed) {
      ++position_;
      out.push_back('?');
    }
    return out;
  }

  /// False when the atom takes no quantifier of its own (an option switch).
  bool parse_atom(size_t depth) {
    switch (peek()) {
      case '(':
        return parse_group(depth);
      case '[': {
        ++position_;
        const bool negated = peek() == '^';
        CodePointSet set = parse_class(depth + 1);
        ignore_case_ && !negated ? emit_folding(std::move(set)) : emit_set(std::move(set));
        return true;
      }
      case '.':
        ++position_;
        emit_set(dot_all_ ? CodePointSet::of(0, 0x10FFFF) : CodePointSet::of('\n', '\n').complement());
        return true;
      case '^':
        ++position_;
        emit_no_other_than_newline("(?<!");
        return true;
      case '$':
        ++position_;
        emit_no_other_than_newline("(?!");
        return true;
      case '*':
      case '+':
      case '?':
        corrupt("a quantifier with nothing to repeat");
      case '\\':
        parse_escape();
        return true;
      default: {
        const char32_t c = take();
        ignore_case_ ? emit_folding(CodePointSet::of(c, c)) : emit_set(CodePointSet::of(c, c));
        return true;
      }
    }
  }

  // ^ holds at the start or after a newline, $ at the end or before one: "no character other than newline there".
  void emit_no_other_than_newline(std::string_view open) {
    emit(open);
    emit_set(CodePointSet::of('\n', '\n').complement());
    emit(")");
  }

  bool parse_group(size_t depth) {
    ++position_;
    const bool saved_case = ignore_case_, saved_dot = dot_all_, saved_extended = extended_;
    if (accept("?#")) {
      while (!at_end() && peek() != ')') ++position_;
      if (!accept(")")) corrupt("an unclosed comment");
      return false;
    }
    for (const std::string_view open : {"?:", "?=", "?!", "?>", "?<=", "?<!"}) {
      if (!accept(open)) continue;
      emit("(" + std::string(open));
      return finish_group(depth, saved_case, saved_dot, saved_extended);
    }
    if (accept("?<")) {
      while (!at_end() && peek() != '>') ++position_;
      if (!accept(">")) corrupt("an unclosed group name");
      emit("(?:");
      return finish_group(depth, saved_case, saved_dot, saved_extended);
    }
    if (!accept("?")) {
      emit("(?:");
      return finish_group(depth, saved_case, saved_dot, saved_extended);
    }
    bool on = true;
    while (peek() != ':' && peek() != ')') {
      switch (const char c = peek()) {
        case '-':
          on = false;
          break;
        case 'i':
          ignore_case_ = on;
          break;
        case 'm':
          dot_all_ = on;
          break;
        case 'x':
          extended_ = on;
          break;
        default:
          unsupported(std::string("the group option '") + c + "'");
      }
      ++position_;
    }
    if (accept(")")) {
      // An option switch reaches to the end of the enclosing group, over its alternatives too.
      emit("(?:");
      parse_alternatives(depth + 1);
      emit(")");
      ignore_case_ = saved_case, dot_all_ = saved_dot, extended_ = saved_extended;
      return false;
    }
    accept(":");
    emit("(?:");
    return finish_group(depth, saved_case, saved_dot, saved_extended);
  }

  bool finish_group(size_t depth, bool saved_case, bool saved_dot, bool saved_extended) {
    parse_alternatives(depth + 1);
    if (!accept(")")) corrupt("an unclosed group");
    emit(")");
    ignore_case_ = saved_case, dot_all_ = saved_dot, extended_ = saved_extended;
    return true;
  }

  void parse_escape() {
    const char c = peek(1);
    switch (c) {
      case 'A':
        position_ += 2;
        return emit("\\A");
      case 'z':
        position_ += 2;
        return emit("\\z");
      case 'Z':
        position_ += 2;
        emit("(?:\\z|(?=");
        emit_set(CodePointSet::of('\n', '\n'));
        return emit("\\z))");
      case 'G':
        position_ += 2;
        return emit("\\G");
      case 'b':
        position_ += 2;
        return emit_boundary(words_alone(), false);
      case 'B':
        position_ += 2;
        return emit_boundary(words_alone(), true);
      case 'R': {
        position_ += 2;
        emit("(?>");
        emit_set(CodePointSet::of('\r', '\r'));
        emit_set(CodePointSet::of('\n', '\n'));
        emit("|");
        CodePointSet breaks = CodePointSet::of(0xA, 0xD);
        breaks.add(0x85, 0x85);
        breaks.add(0x2028, 0x2029);
        emit_set(breaks);
        return emit(")");
      }
      default:
        break;
    }
    if (base::is_ascii_digit(c) && c != '0') unsupported("a back reference");
    if (c == 'k' || c == 'g' || c == 'X' || c == 'y' || c == 'Y' || c == 'K') {
      unsupported(std::string("\\") + c);
    }
    if (c == 'w' || c == 'W') {
      position_ += 2;
      return emit_set(c == 'w' ? words_alone() : words_alone().complement());
    }
    emit_set(parse_set_escape());
  }

  /// The set that an escape stands for, inside a class or outside.
  CodePointSet parse_set_escape() {
    ++position_;
    const char c = peek();
    if (at_end()) corrupt("a backslash at the end");
    switch (c) {
      case 's':
        ++position_;
        return spaces();
      case 'S':
        ++position_;
        return spaces().complement();
      case 'd':
        ++position_;
        return digits();
      case 'D':
        ++position_;
        return digits().complement();
      case 'w':
        ++position_;
        return words();
      case 'W':
        ++position_;
        return words().complement();
      case 'h':
        ++position_;
        return hex_digits();
      case 'H':
        ++position_;
        return hex_digits().complement();
      case 'p':
      case 'P':
        return parse_property(c == 'P');
      default:
        break;
    }
    const char32_t literal = parse_literal_escape();
    return CodePointSet::of(literal, literal);
  }

  CodePointSet parse_property(bool negated) {
    ++position_;
    if (!accept("{")) unsupported("\\p without braces");
    if (accept("^")) negated = !negated;
    const size_t end = pattern_.find('}', position_);
    if (end == std::string_view::npos) corrupt("an unclosed property name");
    const std::string_view name = pattern_.substr(position_, end - position_);
    std::optional<CodePointSet> set = find_property(name);
    if (!set) unsupported("the property \\p{" + std::string(name) + "}");
    position_ = end + 1;
    return negated ? set->complement() : *std::move(set);
  }

  char32_t parse_hex(size_t min_digits, size_t max_digits) {
    char32_t value = 0;
    size_t n = 0;
    for (; n < max_digits && base::hex_value(peek()) >= 0; ++n) {
      value = value * 16 + static_cast<char32_t>(base::hex_value(pattern_[position_++]));
    }
    if (n < min_digits || value > 0x10FFFF) corrupt("a bad hexadecimal escape");
    return value;
  }

  char32_t parse_literal_escape() {
    const char c = peek();
    switch (c) {
      case 'n':
        ++position_;
        return '\n';
      case 'r':
        ++position_;
        return '\r';
      case 't':
        ++position_;
        return '\t';
      case 'f':
        ++position_;
        return '\f';
      case 'v':
        ++position_;
        return '\v';
      case 'a':
        ++position_;
        return '\a';
      case 'e':
        ++position_;
        return 0x1B;
      case 'b':
        ++position_;
        return '\b';
      case '0':
        ++position_;
        return 0;
      case 'u':
        ++position_;
        return parse_hex(4, 4);
      case 'x': {
        ++position_;
        if (!accept("{")) return parse_hex(1, 2);
        const char32_t value = parse_hex(1, 8);
        if (!accept("}")) corrupt("an unclosed \\x{");
        return value;
      }
      default:
        return take();
    }
  }

  CodePointSet parse_posix_class() {
    bool negated = accept("^");
    const size_t end = pattern_.find(":]", position_);
    if (end == std::string_view::npos) corrupt("an unclosed POSIX class");
    const std::string_view name = pattern_.substr(position_, end - position_);
    std::optional<CodePointSet> set;
    if (name == "alpha") set = of_ranges(kAlphaRanges, kAlphaRanges_count);
    if (name == "digit") set = digits();
    if (name == "space") set = spaces();
    if (name == "upper") set = of_ranges(kUpperRanges, kUpperRanges_count);
    if (name == "lower") set = of_ranges(kLowerRanges, kLowerRanges_count);
    if (name == "xdigit") set = hex_digits();
    if (name == "word") set = words();
    if (name == "ascii") set = CodePointSet::of(0, 0x7F);
    if (!set) unsupported("the class [:" + std::string(name) + ":]");
    position_ = end + 2;
    return negated ? set->complement() : *std::move(set);
  }

  /// After '['; returns after the matching ']'.
  CodePointSet parse_class(size_t depth) {
    if (depth > kMaxDepth) unsupported("nesting this deep");
    const bool negated = accept("^");
    CodePointSet set;
    std::optional<CodePointSet> intersection;
    bool first = true;
    for (;; first = false) {
      if (at_end()) corrupt("an unclosed character class");
      if (peek() == ']' && !first) {
        ++position_;
        break;
      }
      if (accept("&&")) {
        intersection = intersection ? intersection->intersect(set) : set;
        set = CodePointSet();
        continue;
      }
      parse_class_item(set, depth);
    }
    if (intersection) set = intersection->intersect(set);
    if (ignore_case_) set = set.fold_case();
    return negated ? set.complement() : set;
  }

  void parse_class_item(CodePointSet& set, size_t depth) {
    if (accept("[:")) return set.add(parse_posix_class());
    if (accept("[")) return set.add(parse_class(depth + 1));
    char32_t first;
    if (peek() == '\\') {
      const size_t start = position_;
      const CodePointSet escaped = parse_set_escape();
      const bool is_single = escaped.ranges().size() == 1 &&
                             escaped.ranges()[0].first == escaped.ranges()[0].last &&
                             std::string_view("sSdDwWhHpP").find(pattern_[start + 1]) == std::string_view::npos;
      if (!is_single) return set.add(escaped);
      first = escaped.ranges()[0].first;
    } else {
      first = take();
    }
    if (peek() != '-' || peek(1) == ']' || position_ + 1 >= pattern_.size()) return set.add(first, first);
    ++position_;
    char32_t last;
    if (peek() == '\\') {
      ++position_;
      if (std::string_view("sSdDwWhHpP").find(peek()) != std::string_view::npos) {
        --position_;
        set.add(first, first);
        set.add('-', '-');
        return;
      }
      last = parse_literal_escape();
    } else if (peek() == '[') {
      set.add(first, first);
      set.add('-', '-');
      return;
    } else {
      last = take();
    }
    if (last < first) corrupt("an empty range");
    set.add(first, last);
  }

  std::string_view pattern_;
  std::string_view subject_;
  size_t position_ = 0;
  bool ignore_case_ = false, dot_all_ = false, extended_ = false;
  RegexParts out_;
};

}  // namespace

RegexParts parse_regex(std::string_view pattern, std::string_view subject) {
  return Parser(pattern, subject).parse();
}

}  // namespace kvfork::tokenizer
