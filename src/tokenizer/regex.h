// The regular expressions of tokenizer.json, with the meaning that Oniguruma (Ruby syntax) gives them.
//
// A pattern is parsed here and every character class is evaluated with the package's own Unicode tables. Code
// points that no class of the pattern tells apart form one symbol; the text is rewritten to one byte per character
// and PCRE2 (with JIT) matches bytes. So PCRE2's Unicode version plays no part, and large classes cost nothing.
//
// Thread rule: a Regex is immutable after compile and may be used from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

namespace kvfork::tokenizer {

/// A range of bytes of a text.
struct Span {
  size_t begin = 0, end = 0;
  size_t size() const noexcept { return end - begin; }
  friend bool operator==(const Span&, const Span&) = default;
};

class Regex {
 public:
  /// Throws Error{Corrupt} for a malformed pattern, Error{Unsupported} for syntax that is not translated.
  static Regex compile(std::string_view pattern, std::string_view subject);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  /// Appends all matches in `text` (well-formed UTF-8), in order, without overlaps. Throws Error{Limit} when
  /// the pattern backtracks beyond bounds.
  void find_all(std::string_view text, std::vector<Span>& matches) const;

 private:
  struct Program;
  explicit Regex(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program_;
};

}  // namespace kvfork::tokenizer
