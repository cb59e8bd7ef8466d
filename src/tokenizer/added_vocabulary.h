// Added tokens: strings cut out of the text before the model sees it, as the crate's AddedVocabulary does.
//
// Thread rule: immutable once the tokenizer is built.
#pragma once

#include <array>
#include <bitset>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tokenizer/regex.h"
#include "tokenizer/token_model.h"

namespace kvfork::tokenizer {

class Normalizer;

struct AddedToken {
  std::string content;
  bool single_word = false, lstrip = false, rstrip = false, normalized = true, special = false;
  friend bool operator==(const AddedToken&, const AddedToken&) = default;
};

/// Finds the leftmost-longest occurrences of a set of byte strings.
class Matcher {
 public:
  /// The first pattern added wins among equal ones. Patterns must not be empty.
  void add(std::string_view pattern, int32_t id);
  bool empty() const noexcept { return nodes_.size() <= 1; }
  struct Match {
    size_t begin = 0, end = 0;
    int32_t id = -1;
  };
  /// The first match at or after `from`; id -1 when there is none.
  Match find(std::string_view text, size_t from) const noexcept;
  /// The same among the matches for which `accept(match)` holds.
  template <typename Accept>
  Match find_if(std::string_view text, size_t from, const Accept& accept) const;
  /// Where patterns begin in `text`, ascending; also those that it breaks off in, white space behind them aside.
  std::vector<size_t> find_beginnings(std::string_view text) const;

 private:
  struct Node {
    int32_t id = -1;
  };
  bool may_begin(std::string_view text, size_t at) const noexcept;
  const uint32_t* find_edge(uint32_t node, uint8_t byte) const noexcept;
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::unordered_map<uint64_t, uint32_t> edges_;  // node << 8 | byte -> node
  std::array<bool, 256> single_{};                // bytes that are a pattern by themselves
  std::bitset<65536> pairs_;                      // first two bytes of a pattern
  std::array<bool, 256> first_{};
};

/// A piece of text, or an added token found there.
struct Segment {
  Span span;
  int32_t id = -1;
};

class AddedVocabulary {
 public:
  /// Adds tokens in order, as the crate's add_tokens: an id the model or an earlier token has is reused, otherwise
  /// the next free one is given.
  void add(const std::vector<AddedToken>& tokens, const TokenModel& model);
  /// Builds the matchers. Call after the last add.
  void build(const TokenModel& model, const Normalizer* normalizer, std::string_view subject);

  /// Which control tokens stay plain text: all of them, or those that overlap one of the ranges (ascending).
  struct Literal {
    bool all = false;
    std::span<const ByteRange> ranges;
  };
  /// Cuts `text` at the tokens that match raw text. Empty text gives one empty segment.
  std::vector<Segment> split_raw(std::string_view text, const Literal& literal) const {
    return split(text, raw_, literal);
  }
  /// Cuts normalized text at the tokens that match normalized text.
  std::vector<Segment> split_normalized(std::string_view text, const Literal& literal) const {
    return split(text, normalized_, literal);
  }
  /// Where control tokens begin, as Matcher::find_beginnings. For what a normalizer makes into one it can't be
  /// said.
  std::vector<size_t> find_special_beginnings(std::string_view text) const {
    return special_matcher_.find_beginnings(text);
  }
  /// Whether some control token is looked for in normalized text.
  bool has_normalized_special() const noexcept { return has_normalized_special_; }

  const AddedToken* find(int32_t id) const noexcept;
  int32_t find_id(std::string_view content) const noexcept;
  bool is_special(std::string_view content) const { return special_set_.contains(std::string(content)); }
  /// Ids and tokens, in order of ids.
  const std::map<int32_t, AddedToken>& tokens() const noexcept { return by_id_; }
  /// Number of contents that the model's vocabulary lacks.
  size_t count_new(const TokenModel& model) const;

 private:
  std::vector<Segment> split(std::string_view text, const Matcher& matcher, const Literal& literal) const;

  std::unordered_map<std::string, int32_t> ids_;
  std::map<int32_t, AddedToken> by_id_;
  std::vector<AddedToken> special_, plain_;
  std::unordered_set<std::string> special_set_;
  Matcher raw_, normalized_;
  Matcher special_matcher_;  // the control tokens as they are written
  bool has_normalized_special_ = false;
  std::vector<const AddedToken*> index_;  // by id, for speed
};

}  // namespace kvfork::tokenizer
