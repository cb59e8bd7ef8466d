// Finding added tokens in a text before anything else cuts it.
#include "tokenizer/added_vocabulary.h"

#include <algorithm>

#include "base/error.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/unicode.h"

namespace kvfork::tokenizer {
namespace {

size_t previous_character(std::string_view text, size_t at) {
  --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

char32_t character_at(std::string_view text, size_t at) {
  const char* p = text.data() + at;
  return next_code_point(p);
}

bool is_word_before(std::string_view text, size_t at) {
  return at > 0 && (property_table()[character_at(text, previous_character(text, at))] & kIsWord) != 0;
}

bool is_word_after(std::string_view text, size_t at) {
  return at < text.size() && (property_table()[character_at(text, at)] & kIsWord) != 0;
}

size_t skip_space_left(std::string_view text, size_t at) {
  while (at > 0) {
    const size_t previous = previous_character(text, at);
    if (!is_white_space(character_at(text, previous))) break;
    at = previous;
  }
  return at;
}

size_t skip_space_right(std::string_view text, size_t at) {
  while (at < text.size() && is_white_space(character_at(text, at))) at += utf8_length(text[at]);
  return at;
}

}  // namespace

void Matcher::add(std::string_view pattern, int32_t id) {
  uint32_t node = 0;
  for (const char c : pattern) {
    const uint64_t key = uint64_t{node} << 8 | static_cast<uint8_t>(c);
    const auto [it, is_new] = edges_.try_emplace(key, static_cast<uint32_t>(nodes_.size()));
    if (is_new) nodes_.emplace_back();
    node = it->second;
  }
  if (nodes_[node].id < 0) nodes_[node].id = id;
  const auto first = static_cast<uint8_t>(pattern[0]);
  first_[first] = true;
  if (pattern.size() == 1) {
    single_[first] = true;
  } else {
    pairs_.set(size_t{first} << 8 | static_cast<uint8_t>(pattern[1]));
  }
}

const uint32_t* Matcher::find_edge(uint32_t node, uint8_t byte) const noexcept {
  const auto it = edges_.find(uint64_t{node} << 8 | byte);
  return it == edges_.end() ? nullptr : &it->second;
}

bool Matcher::may_begin(std::string_view text, size_t at) const noexcept {
  const auto byte = static_cast<uint8_t>(text[at]);
  if (!first_[byte]) return false;
  return single_[byte] ||
         (at + 1 < text.size() && pairs_.test(size_t{byte} << 8 | static_cast<uint8_t>(text[at + 1])));
}

template <typename Accept>
Matcher::Match Matcher::find_if(std::string_view text, size_t from, const Accept& accept) const {
  if (empty()) return {};
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!may_begin(text, begin)) continue;
    Match best;
    uint32_t node = 0;
    for (size_t i = begin; i < text.size(); ++i) {
      const uint32_t* next = find_edge(node, static_cast<uint8_t>(text[i]));
      if (next == nullptr) break;
      node = *next;
      const Match match{begin, i + 1, nodes_[node].id};
      if (match.id >= 0 && accept(match)) best = match;
    }
    if (best.id >= 0) return best;
  }
  return {};
}

Matcher::Match Matcher::find(std::string_view text, size_t from) const noexcept {
  return find_if(text, from, [](const Match&) { return true; });
}

std::vector<size_t> Matcher::find_beginnings(std::string_view text) const {
  std::vector<size_t> beginnings;
  const size_t end = skip_space_left(text, text.size());
  for (size_t begin = 0; begin < text.size(); ++begin) {
    if (!first_[static_cast<uint8_t>(text[begin])]) continue;
    uint32_t node = 0;
    size_t i = begin;
    bool is_whole = false;
    for (; i < text.size() && !is_whole; ++i) {
      const uint32_t* next = find_edge(node, static_cast<uint8_t>(text[i]));
      if (next == nullptr) break;
      node = *next;
      is_whole = nodes_[node].id >= 0;
    }
    if (is_whole || (i > begin && i >= end)) beginnings.push_back(begin);
  }
  return beginnings;
}

void AddedVocabulary::add(const std::vector<AddedToken>& tokens, const TokenModel& model) {
  for (const AddedToken& token : tokens) {
    if (token.special && !token.content.empty() && special_set_.insert(token.content).second)
      special_.push_back(token);
  }
  int32_t max_id = -1;
  for (const auto& [content, id] : ids_) max_id = std::max(max_id, id);
  const auto model_size = static_cast<int32_t>(model.size());
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    const auto known = ids_.find(token.content);
    if (known != ids_.end() && by_id_.at(known->second) == token) continue;
    int32_t id = known != ids_.end() ? known->second : model.vocabulary().find(token.content);
    if (id < 0) id = max_id >= model_size || model_size == 0 ? max_id + 1 : model_size;
    max_id = std::max(max_id, id);
    ids_[token.content] = id;
    by_id_[id] = token;
    if (!special_set_.contains(token.content)) plain_.push_back(token);
  }
}

void AddedVocabulary::build(const TokenModel& model, const Normalizer* normalizer, std::string_view subject) {
  raw_ = Matcher();
  normalized_ = Matcher();
  special_matcher_ = Matcher();
  has_normalized_special_ = false;
  for (const AddedToken& token : special_) {
    special_matcher_.add(token.content, 0);
    has_normalized_special_ = has_normalized_special_ || token.normalized;
  }
  for (const auto* list : {&special_, &plain_}) {
    for (const AddedToken& token : *list) {
      const auto known = ids_.find(token.content);
      const int32_t id = known != ids_.end() ? known->second : model.vocabulary().find(token.content);
      if (!token.normalized) {
        raw_.add(token.content, id);
        continue;
      }
      NormalizedText content(token.content, true);
      if (normalizer != nullptr) normalizer->apply(content);
      if (content.text.empty()) {
        base::fail(ErrorCode::Unsupported, "{}: the added token \"{}\" is empty once normalized", subject,
                   token.content);
      }
      normalized_.add(content.text, id);
    }
  }
  index_.clear();
  if (by_id_.empty()) return;
  index_.resize(static_cast<size_t>(by_id_.rbegin()->first) + 1);
  for (const auto& [id, token] : by_id_) index_[static_cast<size_t>(id)] = &token;
}

const AddedToken* AddedVocabulary::find(int32_t id) const noexcept {
  return id >= 0 && static_cast<size_t>(id) < index_.size() ? index_[static_cast<size_t>(id)] : nullptr;
}

int32_t AddedVocabulary::find_id(std::string_view content) const noexcept {
  const auto it = ids_.find(std::string(content));
  return it == ids_.end() ? -1 : it->second;
}

size_t AddedVocabulary::count_new(const TokenModel& model) const {
  return static_cast<size_t>(std::count_if(
      ids_.begin(), ids_.end(), [&](const auto& entry) { return model.vocabulary().find(entry.first) < 0; }));
}

// A discarded match still consumes its text, and whitespace that an earlier token took is not taken again.
std::vector<Segment> AddedVocabulary::split(std::string_view text, const Matcher& matcher,
                                            const Literal& literal) const {
  std::vector<Segment> out;
  size_t done = 0;
  const auto is_allowed = [&](const Matcher::Match& match) {
    const auto range = std::upper_bound(literal.ranges.begin(), literal.ranges.end(), match.begin,
                                        [](size_t at, const ByteRange& other) { return at < other.end; });
    return range == literal.ranges.end() || range->begin >= match.end || !is_special(find(match.id)->content);
  };
  const auto find_next = [&](size_t from) {
    return literal.ranges.empty() ? matcher.find(text, from) : matcher.find_if(text, from, is_allowed);
  };
  for (Matcher::Match match = find_next(0); match.id >= 0; match = find_next(match.end)) {
    const AddedToken& token = *find(match.id);
    size_t begin = match.begin, end = match.end;
    if (literal.all && is_special(token.content)) continue;
    if (token.single_word && (is_word_before(text, begin) || is_word_after(text, end))) continue;
    if (token.lstrip) begin = std::max(skip_space_left(text, begin), done);
    if (token.rstrip) end = skip_space_right(text, end);
    if (done < begin) out.push_back({{done, begin}, -1});
    out.push_back({{begin, end}, match.id});
    done = end;
  }
  if (done != text.size() || text.empty()) out.push_back({{done, text.size()}, -1});
  return out;
}

}  // namespace kvfork::tokenizer
