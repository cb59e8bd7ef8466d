// Sets of code points for character classes of regular expressions.
#include "tokenizer/code_point_set.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "tokenizer/unicode_tables.h"

namespace kvfork::tokenizer {
namespace {

constexpr char32_t kLast = 0x10FFFF;

}  // namespace

// Unicode's simple case folding. A character whose full folding is several characters has its lower case, if any,
// for a simple one, but for the dotted capital I.
char32_t fold_key(char32_t c) {
  constexpr char32_t kDottedCapitalI = 0x130;
  const auto code_point = static_cast<utf8proc_int32_t>(c);
  if (utf8proc_get_property(code_point)->casefold_seqindex == UINT16_MAX || c == kDottedCapitalI) return c;
  utf8proc_int32_t folded[4];
  int last = 0;
  const auto n = utf8proc_decompose_char(code_point, folded, 4, UTF8PROC_CASEFOLD, &last);
  return static_cast<char32_t>(n == 1 ? folded[0] : utf8proc_tolower(code_point));
}

namespace {

/// Code points that share a fold key with another, by key.
const std::map<char32_t, std::vector<char32_t>>& fold_groups() {
  static const std::map<char32_t, std::vector<char32_t>> groups = [] {
    std::map<char32_t, std::vector<char32_t>> all;
    for (char32_t c = 0; c < 0x1E944; ++c) {
      const char32_t key = fold_key(c);
      if (key != c) all[key].push_back(c);
    }
    for (auto& [key, members] : all) members.push_back(key);
    return all;
  }();
  return groups;
}

}  // namespace

const std::map<std::u32string, CodePointSet>& multiple_foldings() {
  static const std::map<std::u32string, CodePointSet> foldings = [] {
    std::map<std::u32string, CodePointSet> all;
    for (char32_t c = 0x80; c < 0x1E944; ++c) {
      if (utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->casefold_seqindex == UINT16_MAX) continue;
      utf8proc_int32_t folded[4];
      int last = 0;
      const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 4, UTF8PROC_CASEFOLD, &last);
      if (n > 1 && n <= 4) all[std::u32string(folded, folded + n)].add(c, c);
    }
    return all;
  }();
  return foldings;
}

CodePointSet CodePointSet::of(char32_t first, char32_t last) {
  CodePointSet set;
  set.add(first, last);
  return set;
}

CodePointSet CodePointSet::of_categories(uint32_t mask) {
  CodePointSet set;
  for (size_t i = 0; i < kCategoryRuns_count; ++i) {
    if ((mask >> kCategoryRuns[i].category & 1) == 0) continue;
    const char32_t last = i + 1 < kCategoryRuns_count ? kCategoryRuns[i + 1].first - 1 : kLast;
    set.ranges_.push_back({kCategoryRuns[i].first, last});
  }
  set.normalize();
  return set;
}

void CodePointSet::normalize() {
  std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  std::vector<Range> merged;
  for (const Range& r : ranges_) {
    if (!merged.empty() && r.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, r.last);
    } else {
      merged.push_back(r);
    }
  }
  ranges_ = std::move(merged);
}

void CodePointSet::add(char32_t first, char32_t last) {
  ranges_.push_back({first, last});
  normalize();
}

void CodePointSet::add(const CodePointSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  normalize();
}

CodePointSet CodePointSet::complement() const {
  CodePointSet out;
  char32_t next = 0;
  for (const Range& r : ranges_) {
    if (r.first > next) out.ranges_.push_back({next, r.first - 1});
    next = r.last + 1;
  }
  if (next <= kLast) out.ranges_.push_back({next, kLast});
  return out;
}

CodePointSet CodePointSet::intersect(const CodePointSet& other) const {
  CodePointSet out;
  for (size_t i = 0, j = 0; i < ranges_.size() && j < other.ranges_.size();) {
    const char32_t first = std::max(ranges_[i].first, other.ranges_[j].first);
    const char32_t last = std::min(ranges_[i].last, other.ranges_[j].last);
    if (first <= last) out.ranges_.push_back({first, last});
    (ranges_[i].last < other.ranges_[j].last ? i : j) += 1;
  }
  return out;
}

CodePointSet CodePointSet::fold_case() const {
  CodePointSet out = *this;
  const auto contains = [this](char32_t c) {
    const auto it =
        std::upper_bound(ranges_.begin(), ranges_.end(), c, [](char32_t x, const Range& r) { return x < r.first; });
    return it != ranges_.begin() && std::prev(it)->last >= c;
  };
  for (const auto& [key, members] : fold_groups()) {
    if (std::any_of(members.begin(), members.end(), contains)) {
      for (const char32_t c : members) out.ranges_.push_back({c, c});
    }
  }
  out.normalize();
  return out;
}

}  // namespace kvfork::tokenizer
