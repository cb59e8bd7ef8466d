// Unigram: the most probable path through a text.
#include "tokenizer/unigram.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace kvfork::tokenizer {
namespace {

constexpr double kUnkPenalty = 10.0;

}  // namespace

Unigram::Unigram(const std::vector<std::pair<std::string_view, double>>& tokens, std::optional<int64_t> unk_id,
                 bool byte_fallback, std::string_view subject)
    : byte_fallback_(byte_fallback), subject_(subject) {
  std::vector<std::pair<std::string_view, int64_t>> entries;
  double min_score = std::numeric_limits<double>::infinity();
  for (const auto& [token, score] : tokens) {
    entries.emplace_back(token, static_cast<int64_t>(entries.size()));
    scores_.push_back(score);
    if (score < min_score) min_score = score;
  }
  if (unk_id && (*unk_id < 0 || *unk_id >= static_cast<int64_t>(tokens.size()))) {
    base::fail(ErrorCode::Corrupt, "{}: expected an unk_id below {}, found {}", subject, tokens.size(), *unk_id);
  }
  if (unk_id) unk_id_ = static_cast<int32_t>(*unk_id);
  unk_score_ = min_score - kUnkPenalty;
  vocabulary_.build(entries, subject, Vocabulary::Duplicates::Keep);
  for (size_t b = 0; b < 256; ++b) fallback_ids_[b] = vocabulary_.find(fmt::format("<0x{:02X}>", b));
  build_trie();
}

// Nodes in breadth-first order over the sorted tokens; the edges of a node lie together, sorted.
void Unigram::build_trie() {
  std::vector<std::string_view> keys;
  for (int32_t id = 0; id < vocabulary_.id_limit(); ++id) {
    if (!vocabulary_.token(id).empty()) keys.push_back(vocabulary_.token(id));
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  struct Pending {
    size_t begin, end, depth;
  };
  std::vector<Pending> pending = {{0, keys.size(), 0}};
  nodes_.emplace_back();
  for (size_t at = 0; at < pending.size(); ++at) {
    auto [begin, end, depth] = pending[at];
    if (begin < end && keys[begin].size() == depth) {
      nodes_[at].id = vocabulary_.find(keys[begin]);
      ++begin;
    }
    nodes_[at].first_edge = static_cast<uint32_t>(edges_.size());
    while (begin < end) {
      const char byte = keys[begin][depth];
      size_t next = begin;
      while (next < end && keys[next][depth] == byte) ++next;
      edges_.push_back({static_cast<uint8_t>(byte), static_cast<uint32_t>(nodes_.size())});
      nodes_.emplace_back();
      pending.push_back({begin, next, depth + 1});
      begin = next;
    }
    nodes_[at].n_edges = static_cast<uint32_t>(edges_.size()) - nodes_[at].first_edge;
  }
}

const Unigram::Node* Unigram::step(const Node& node, uint8_t byte) const noexcept {
  const Edge* first = edges_.data() + node.first_edge;
  const Edge* last = first + node.n_edges;
  const Edge* it = std::lower_bound(first, last, byte, [](const Edge& e, uint8_t b) { return e.byte < b; });
  return it != last && it->byte == byte ? &nodes_[it->node] : nullptr;
}

int32_t Unigram::get_unk_id() const {
  if (!unk_id_) {
    base::fail(ErrorCode::Unsupported,
               "{}: the text has a character outside the vocabulary, and there is no unk_id", subject_);
  }
  return *unk_id_;
}

void Unigram::emit(std::string_view text, TokenSink& sink) const {
  int32_t id = vocabulary_.find(text);
  if (id < 0) {
    const bool has_bytes = byte_fallback_ && std::all_of(text.begin(), text.end(), [this](char b) {
                             return fallback_ids_[static_cast<uint8_t>(b)] >= 0;
                           });
    if (has_bytes) {
      for (const char b : text) {
        const int32_t byte_id = fallback_ids_[static_cast<uint8_t>(b)];
        sink.ids.push_back(byte_id);
        if (sink.report != nullptr) sink.report->pieces.emplace_back(vocabulary_.token(byte_id));
      }
      return;
    }
    id = get_unk_id();
  }
  sink.ids.push_back(id);
  if (sink.report != nullptr) sink.report->pieces.emplace_back(text);
}

void Unigram::encode(std::string_view piece, TokenSink& sink) const {
  struct Best {
    double score = 0;
    uint32_t start = UINT32_MAX;
    int32_t id = -1;
  };
  if (piece.size() >= UINT32_MAX)
    base::fail(ErrorCode::Limit, "{}: a piece of {} bytes is too long", subject_, piece.size());
  std::vector<Best> best(piece.size() + 1);
  const auto offer = [&best](size_t end, double score, size_t start, int32_t id) {
    Best& target = best[end];
    if (target.start == UINT32_MAX || score > target.score) target = {score, static_cast<uint32_t>(start), id};
  };
  for (size_t start = 0; start < piece.size();) {
    const double so_far = best[start].score;
    const size_t n = utf8_length(piece[start]);
    bool has_single = false;
    const Node* node = &nodes_[0];
    for (size_t i = start; i < piece.size(); ++i) {
      node = step(*node, static_cast<uint8_t>(piece[i]));
      if (node == nullptr) break;
      if (node->id < 0) continue;
      offer(i + 1, scores_[static_cast<size_t>(node->id)] + so_far, start, node->id);
      has_single = has_single || i + 1 - start == n;
    }
    if (!has_single) offer(start + n, unk_score_ + so_far, start, get_unk_id());
    start += n;
  }
  // Backwards; neighbouring unknowns become one.
  std::vector<Span> path;
  bool after_unk = false;
  for (size_t end = piece.size(); end > 0;) {
    const Best& node = best[end];
    const bool is_unk = unk_id_ && node.id == *unk_id_;
    if (is_unk && after_unk) {
      path.back().begin = node.start;
    } else {
      path.push_back({node.start, end});
    }
    after_unk = is_unk;
    end = node.start;
  }
  for (auto it = path.rbegin(); it != path.rend(); ++it) emit(piece.substr(it->begin, it->size()), sink);
}

WordLevel::WordLevel(Vocabulary vocabulary, std::string_view unk_token, std::string_view subject)
    : unk_token_(unk_token), subject_(subject) {
  vocabulary_ = std::move(vocabulary);
  unk_id_ = vocabulary_.find(unk_token);
}

void WordLevel::encode(std::string_view piece, TokenSink& sink) const {
  int32_t id = vocabulary_.find(piece);
  if (id < 0) id = unk_id_;
  if (id < 0) {
    base::fail(ErrorCode::Unsupported, "{}: the text has a word outside the vocabulary, and there is no unk_token",
               subject_);
  }
  sink.ids.push_back(id);
  if (sink.report != nullptr) sink.report->pieces.emplace_back(vocabulary_.token(id));
}

}  // namespace kvfork::tokenizer
