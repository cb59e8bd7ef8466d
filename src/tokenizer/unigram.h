// The Unigram model: the most probable way to write a piece as tokens (Viterbi over a trie).
//
// Thread rule: immutable after construction.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "tokenizer/regex.h"
#include "tokenizer/token_model.h"

namespace kvfork::tokenizer {

class Unigram : public TokenModel {
 public:
  /// `tokens` in order of ids, with their log-probabilities. Throws Error{Corrupt} naming `subject`.
  Unigram(const std::vector<std::pair<std::string_view, double>>& tokens, std::optional<int64_t> unk_id,
          bool byte_fallback, std::string_view subject);
  void encode(std::string_view piece, TokenSink& sink) const override;
  size_t size() const noexcept override { return scores_.size(); }

 private:
  struct Node {
    uint32_t first_edge = 0;
    uint32_t n_edges = 0;
    int32_t id = -1;
  };
  struct Edge {
    uint8_t byte;
    uint32_t node;
  };
  void build_trie();
  const Node* step(const Node& node, uint8_t byte) const noexcept;
  void emit(std::string_view text, TokenSink& sink) const;
  int32_t get_unk_id() const;

  std::vector<double> scores_;
  double unk_score_ = 0;
  std::optional<int32_t> unk_id_;
  bool byte_fallback_ = false;
  std::array<int32_t, 256> fallback_ids_{};
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::string subject_;
};

/// One id per piece: its own, or that of the unknown token.
class WordLevel : public TokenModel {
 public:
  WordLevel(Vocabulary vocabulary, std::string_view unk_token, std::string_view subject);
  void encode(std::string_view piece, TokenSink& sink) const override;

 private:
  std::string unk_token_;
  int32_t unk_id_ = -1;
  std::string subject_;
};

}  // namespace kvfork::tokenizer
