// Matching with PCRE2.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "tokenizer/regex_syntax.h"
#include "tokenizer/unicode.h"

namespace kvfork::tokenizer {
namespace {

constexpr size_t kBlock = 128;
constexpr size_t kCodePoints = 0x110000;
constexpr size_t kJitStackStart = 32 * 1024;
constexpr size_t kJitStackMax = 64 * 1024 * 1024;
constexpr uint32_t kMatchLimit = 200'000'000;

/// Match data, context and stack of one thread.
struct Workspace {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = nullptr;
  std::string symbols;

  Workspace() { pcre2_set_match_limit(context, kMatchLimit); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    if (stack != nullptr) pcre2_jit_stack_free(stack);
  }
  void grow_stack() {
    stack = pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
};

Workspace& workspace() {
  thread_local Workspace instance;
  return instance;
}

/// Code point -> symbol: code points that all sets treat alike share one.
struct Alphabet {
  std::vector<uint16_t> stage1;
  std::vector<uint8_t> stage2;
  size_t n_symbols = 0;
  std::vector<std::vector<bool>> membership;  // [n_symbols][n_sets]

  uint8_t operator[](char32_t c) const noexcept { return stage2[(size_t{stage1[c >> 7]} << 7) | (c & 127)]; }
};

std::vector<char32_t> boundaries(const std::vector<CodePointSet>& sets) {
  std::vector<char32_t> cuts = {0};
  for (const CodePointSet& set : sets) {
    for (const auto& [first, last] : set.ranges()) {
      cuts.push_back(first);
      cuts.push_back(last + 1);
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  while (!cuts.empty() && cuts.back() >= kCodePoints) cuts.pop_back();
  return cuts;
}

Alphabet make_alphabet(const std::vector<CodePointSet>& sets, std::string_view pattern, std::string_view subject) {
  Alphabet out;
  const std::vector<char32_t> cuts = boundaries(sets);
  std::vector<std::vector<bool>> signatures(cuts.size(), std::vector<bool>(sets.size()));
  for (size_t s = 0; s < sets.size(); ++s) {
    size_t cut = 0;
    for (const auto& [first, last] : sets[s].ranges()) {
      cut = static_cast<size_t>(std::lower_bound(cuts.begin() + static_cast<ptrdiff_t>(cut), cuts.end(), first) -
                                cuts.begin());
      for (; cut < cuts.size() && cuts[cut] <= last; ++cut) signatures[cut][s] = true;
    }
  }
  std::map<std::vector<bool>, uint8_t> symbols;
  std::vector<uint8_t> flat(kCodePoints);
  for (size_t i = 0; i < cuts.size(); ++i) {
    const auto [it, is_new] = symbols.try_emplace(signatures[i], static_cast<uint8_t>(symbols.size()));
    if (is_new) out.membership.push_back(signatures[i]);
    if (symbols.size() > 256) {
      base::fail(ErrorCode::Unsupported, "{}: a regular expression with more than 256 kinds of characters: \"{}\"",
                 subject, pattern);
    }
    const size_t end = i + 1 < cuts.size() ? cuts[i + 1] : kCodePoints;
    std::memset(flat.data() + cuts[i], it->second, end - cuts[i]);
  }
  out.n_symbols = symbols.size();
  std::map<std::string_view, uint16_t> blocks;
  for (size_t begin = 0; begin < kCodePoints; begin += kBlock) {
    const std::string_view block(reinterpret_cast<const char*>(flat.data()) + begin, kBlock);
    const auto [it, is_new] = blocks.try_emplace(block, static_cast<uint16_t>(blocks.size()));
    if (is_new) out.stage2.insert(out.stage2.end(), block.begin(), block.end());
    out.stage1.push_back(it->second);
  }
  return out;
}

void append_byte(std::string& out, size_t byte) {
  out += fmt::format("\\x{:02x}", byte);
}

std::string byte_class(const Alphabet& alphabet, size_t set) {
  std::vector<size_t> members;
  for (size_t symbol = 0; symbol < alphabet.n_symbols; ++symbol) {
    if (alphabet.membership[symbol][set]) members.push_back(symbol);
  }
  if (members.empty()) return "(?!)";
  if (members.size() == alphabet.n_symbols) return "[\\x00-\\xff]";
  std::string out;
  if (members.size() == 1) {
    append_byte(out, members[0]);
    return out;
  }
  out = "[";
  for (const size_t member : members) append_byte(out, member);
  return out + "]";
}

}  // namespace

struct Regex::Program {
  Alphabet alphabet;
  std::array<uint8_t, 128> ascii{};
  pcre2_code* code = nullptr;
  bool jit = false;
  std::string pattern, subject;

  ~Program() { pcre2_code_free(code); }

  /// One byte per character of `text`; returns whether all of it is ASCII.
  bool to_symbols(std::string_view text, std::string& symbols) const {
    symbols.resize(text.size());
    auto* out = reinterpret_cast<uint8_t*>(symbols.data());
    const uint8_t* begin = out;
    for (const char *p = text.data(), *end = p + text.size(); p < end;) {
      const auto b = static_cast<unsigned char>(*p);
      if (b < 0x80) {
        *out++ = ascii[b];
        ++p;
      } else {
        *out++ = alphabet[next_code_point(p)];
      }
    }
    symbols.resize(static_cast<size_t>(out - begin));
    return symbols.size() == text.size();
  }

  int match(std::string_view symbols, size_t start, Workspace& work) const {
    const auto* bytes = reinterpret_cast<PCRE2_SPTR>(symbols.data());
    int rc = jit ? pcre2_jit_match(code, bytes, symbols.size(), start, 0, work.data, work.context)
                 : pcre2_match(code, bytes, symbols.size(), start, 0, work.data, work.context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT && work.stack == nullptr) {
      work.grow_stack();
      return match(symbols, start, work);
    }
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) {
      base::fail(ErrorCode::Limit, "{}: the regular expression \"{}\" needs too much work on a text of {} bytes",
                 subject, pattern, symbols.size());
    }
    return rc;
  }
};

Regex::Regex(std::unique_ptr<Program> program) : program_(std::move(program)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Regex Regex::compile(std::string_view pattern, std::string_view subject) {
  const RegexParts parts = parse_regex(pattern, subject);
  auto program = std::make_unique<Program>();
  program->pattern = pattern.substr(0, 200);
  program->subject = subject;
  program->alphabet = make_alphabet(parts.sets, pattern, subject);
  for (size_t c = 0; c < 128; ++c) program->ascii[c] = program->alphabet[static_cast<char32_t>(c)];
  std::string bytes;
  for (const RegexPart& part : parts.parts) {
    bytes += part.set < 0 ? part.syntax : byte_class(program->alphabet, static_cast<size_t>(part.set));
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  program->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(bytes.data()), bytes.size(), 0, &error, &offset, nullptr);
  if (program->code == nullptr) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof message);
    base::fail(ErrorCode::Corrupt, "{}: expected a valid regular expression, found \"{}\": {}", subject, pattern,
               reinterpret_cast<const char*>(message));
  }
  program->jit = pcre2_jit_compile(program->code, PCRE2_JIT_COMPLETE) == 0;
  return Regex(std::move(program));
}

// As Oniguruma's find_iter: an empty match right after a match is passed over by one character.
void Regex::find_all(std::string_view text, std::vector<Span>& matches) const {
  Workspace& work = workspace();
  const bool ascii = program_->to_symbols(text, work.symbols);
  const std::string_view symbols = work.symbols;
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(work.data);
  size_t start = 0, last_end = SIZE_MAX;
  size_t character = 0, byte = 0;  // the same place in symbols and in text
  const auto to_byte = [&](size_t target) {
    if (ascii) return target;
    for (; character < target; ++character) byte += utf8_length(text[byte]);
    return byte;
  };
  while (start <= symbols.size()) {
    if (program_->match(symbols, start, work) < 0) return;
    const size_t begin = range[0], end = range[1];
    if (begin == end && end == last_end) {
      ++start;
      continue;
    }
    start = last_end = end;
    const size_t begin_byte = to_byte(begin);
    matches.push_back({begin_byte, to_byte(end)});
  }
}

}  // namespace kvfork::tokenizer
