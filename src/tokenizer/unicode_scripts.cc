// Names of scripts for \p{...}.
#include <algorithm>

#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unicode_tables.h"

namespace kvfork::tokenizer {
namespace {

/// 0 for characters that go with any script.
uint16_t script_of(char32_t c) {
  const ScriptRun* end = kScriptRuns + kScriptRuns_count;
  return std::prev(
             std::upper_bound(kScriptRuns, end, c, [](char32_t x, const ScriptRun& run) { return x < run.first; }))
      ->script;
}

/// Cuts where the script changes. Text before the first character that has a script is lost, as in the package.
class UnicodeScripts : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    std::vector<Span> out;
    for (const Span& span : pieces.spans) {
      size_t begin = SIZE_MAX;
      uint16_t last = 0;
      for (const char *p = pieces.text.data() + span.begin, *end = pieces.text.data() + span.end; p < end;) {
        const auto at = static_cast<size_t>(p - pieces.text.data());
        const uint16_t script = script_of(next_code_point(p));
        if (script == 0 || script == last) continue;
        if (begin != SIZE_MAX) out.push_back({begin, at});
        begin = at;
        last = script;
      }
      if (begin != SIZE_MAX) out.push_back({begin, span.end});
    }
    pieces.spans = std::move(out);
  }
};

}  // namespace

std::unique_ptr<PreTokenizer> make_unicode_scripts() {
  return std::make_unique<UnicodeScripts>();
}

}  // namespace kvfork::tokenizer
