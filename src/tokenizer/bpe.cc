// Byte-pair encoding: merges by rank.
#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/unicode.h"

namespace kvfork::tokenizer {
namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";
// Above this many symbols the quadratic scan loses to the heap.
constexpr size_t kShortWord = 96;

std::string_view last_character(std::string_view s) {
  size_t begin = s.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(s[begin]) & 0xC0) == 0x80) --begin;
  return s.substr(begin);
}

}  // namespace

void TokenSink::add_dropped(std::string_view bytes) {
  if (report == nullptr) return;
  constexpr size_t kMaxDistinct = 256;
  report->n_dropped_bytes += bytes.size();
  auto& dropped = report->dropped;
  if (dropped.size() < kMaxDistinct && std::find(dropped.begin(), dropped.end(), bytes) == dropped.end()) {
    dropped.emplace_back(bytes);
  }
}

void MergeTable::reserve(size_t n_merges) {
  slots_.assign(std::bit_ceil(n_merges * 2 + 8), Slot{});
  mask_ = slots_.size() - 1;
}

void MergeTable::insert(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  size_t i = slot_of(key);
  while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & mask_;
  slots_[i] = {key, merge};
}

struct Bpe::Work {
  std::vector<int32_t> symbols;
  std::vector<MergeTable::Merge> pairs;
};

Bpe::Bpe(Vocabulary vocabulary, const Merges& merges, BpeOptions options, std::string_view subject)
    : options_(std::move(options)), subject_(subject) {
  vocabulary_ = std::move(vocabulary);
  read_merges(merges);
  if (options_.unk_token) unk_id_ = vocabulary_.find(*options_.unk_token);
  has_all_fallback_ = true;
  for (size_t b = 0; b < 256; ++b) {
    fallback_ids_[b] = vocabulary_.find(fmt::format("<0x{:02X}>", b));
    has_all_fallback_ = has_all_fallback_ && fallback_ids_[b] >= 0;
  }
  memo_ = std::make_unique<std::atomic<uint8_t>[]>(static_cast<size_t>(vocabulary_.id_limit()));
  find_word_starts(merges);
}

// In blocks, so that the cache misses of the lookups (three per merge) overlap.
void Bpe::read_merges(const Merges& merges) {
  constexpr size_t kBlock = 32;
  struct Pending {
    std::string joined;
    uint64_t hashes[3];
    int32_t ids[3];
  };
  std::vector<Pending> block(kBlock);
  const StringTable& table = vocabulary_.table();
  const size_t prefix = options_.continuing_subword_prefix.size();
  merges_.reserve(merges.size());
  for (size_t first = 0; first < merges.size(); first += kBlock) {
    const size_t n = std::min(kBlock, merges.size() - first);
    for (size_t i = 0; i < n; ++i) {
      const auto& [left, right] = merges[first + i];
      if (right.size() < prefix) {
        base::fail(ErrorCode::Corrupt, "{}: merge {} has a right side shorter than the continuing_subword_prefix",
                   subject_, first + i);
      }
      Pending& pending = block[i];
      pending.joined.assign(left).append(right.substr(prefix));
      pending.hashes[0] = hash_bytes(left);
      pending.hashes[1] = hash_bytes(right);
      pending.hashes[2] = hash_bytes(pending.joined);
      for (const uint64_t hash : pending.hashes) table.prefetch(hash);
    }
    for (size_t i = 0; i < n; ++i) {
      Pending& pending = block[i];
      const std::string_view tokens[3] = {merges[first + i].first, merges[first + i].second, pending.joined};
      for (size_t t = 0; t < 3; ++t) {
        pending.ids[t] = table.find(tokens[t], pending.hashes[t]);
        if (pending.ids[t] < 0) {
          base::fail(ErrorCode::Corrupt, "{}: merge {} names the token \"{}\", which is not in the vocabulary",
                     subject_, first + i, tokens[t]);
        }
      }
      merges_.prefetch(pending.ids[0], pending.ids[1]);
    }
    for (size_t i = 0; i < n; ++i) {
      const Pending& pending = block[i];
      merges_.insert(pending.ids[0], pending.ids[1], {static_cast<uint32_t>(first + i), pending.ids[2]});
    }
  }
}

void Bpe::find_word_starts(const Merges& merges) {
  if (vocabulary_.find(kMetaspace) < 0) return;
  if (!options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty()) return;
  if (options_.ignore_merges) return;
  for (const auto& [left, right] : merges) {
    if (left.empty() || !right.starts_with(kMetaspace)) continue;
    const std::string_view c = last_character(left);
    if (std::find(joins_metaspace_.begin(), joins_metaspace_.end(), c) != joins_metaspace_.end()) continue;
    joins_metaspace_.emplace_back(c);
    if (joins_metaspace_.size() > 64) return;
  }
  cuts_words_ = true;
}

bool Bpe::take_plain_bytes() {
  if (!options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty()) return false;
  std::array<int32_t, 256> ids;
  bool complete = true;
  for (size_t b = 0; b < 256; ++b) {
    std::string character;
    base::append_utf8(character, byte_level_character(static_cast<uint8_t>(b)));
    ids[b] = vocabulary_.find(character);
    complete = complete && ids[b] >= 0;
  }
  if (!complete && (options_.unk_token || options_.byte_fallback)) return false;
  byte_ids_ = ids;
  plain_bytes_ = true;
  cuts_words_ = false;

  std::vector<std::pair<size_t, int32_t>> ends;  // end of the token in the arena, id
  for (int32_t id = 0; id < vocabulary_.id_limit(); ++id) {
    if (!vocabulary_.has(id)) continue;
    const size_t start = raw_arena_.size();
    bool mapped = true;
    const std::string_view token = vocabulary_.token(id);
    for (const char *p = token.data(), *end = p + token.size(); p < end && mapped;) {
      const int byte = byte_level_byte(next_code_point(p));
      mapped = byte >= 0;
      raw_arena_.push_back(static_cast<char>(byte));
    }
    if (mapped) {
      ends.emplace_back(raw_arena_.size(), id);
    } else {
      raw_arena_.resize(start);
    }
  }
  raw_arena_.push_back('\0');
  raw_table_.reserve(ends.size());
  size_t begin = 0;
  for (const auto& [end, id] : ends) {
    raw_table_.insert({raw_arena_.data() + begin, end - begin}, id);
    begin = end;
  }
  byte_merges_.resize(size_t{256} * 256);
  for (size_t a = 0; a < 256; ++a) {
    for (size_t b = 0; b < 256; ++b) {
      if (byte_ids_[a] >= 0 && byte_ids_[b] >= 0)
        byte_merges_[a * 256 + b] = merges_.find(byte_ids_[a], byte_ids_[b]);
    }
  }
  return true;
}

int32_t Bpe::get_unk_id() const {
  if (unk_id_ < 0) {
    base::fail(ErrorCode::Unsupported, "{}: the unk_token \"{}\" is not in the vocabulary, and the text needs it",
               subject_, *options_.unk_token);
  }
  return unk_id_;
}

void Bpe::encode(std::string_view piece, TokenSink& sink) const {
  if (!cuts_words_) return encode_word(piece, sink);
  size_t begin = 0;
  for (size_t at = piece.find(kMetaspace, 1); at != std::string_view::npos; at = piece.find(kMetaspace, at + 1)) {
    const std::string_view before = last_character(piece.substr(0, at));
    if (std::find(joins_metaspace_.begin(), joins_metaspace_.end(), before) != joins_metaspace_.end()) continue;
    encode_word(piece.substr(begin, at - begin), sink);
    begin = at;
  }
  encode_word(piece.substr(begin), sink);
}

bool Bpe::reproduces_itself(int32_t id, std::string_view word) const {
  std::atomic<uint8_t>& memo = memo_[static_cast<size_t>(id)];
  const uint8_t known = memo.load(std::memory_order_relaxed);
  if (known != 0) return known == 1;
  TokenSink sink;
  Work work;
  if (plain_bytes_) {
    make_byte_symbols(word, work, sink);
  } else {
    make_symbols(word, work, sink);
    merge(work);
  }
  const bool same = work.symbols.size() == 1 && work.symbols[0] == id;
  memo.store(same ? 1 : 2, std::memory_order_relaxed);
  return same;
}

void Bpe::encode_word(std::string_view word, TokenSink& sink) const {
  const int32_t whole = plain_bytes_ ? raw_table_.find(word) : vocabulary_.find(word);
  if (whole >= 0 && (options_.ignore_merges || reproduces_itself(whole, word))) {
    sink.ids.push_back(whole);
    if (sink.report != nullptr) sink.report->pieces.emplace_back(vocabulary_.token(whole));
    return;
  }
  thread_local Work work;
  if (plain_bytes_) {
    make_byte_symbols(word, work, sink);
  } else {
    make_symbols(word, work, sink);
    merge(work);
  }
  sink.ids.insert(sink.ids.end(), work.symbols.begin(), work.symbols.end());
  if (sink.report != nullptr) {
    for (const int32_t id : work.symbols) sink.report->pieces.emplace_back(vocabulary_.token(id));
  }
}

// Symbols of plain bytes, already merged when the word is short.
void Bpe::make_byte_symbols(std::string_view word, Work& work, TokenSink& sink) const {
  std::vector<int32_t>& symbols = work.symbols;
  symbols.clear();
  bool dropped = false;
  for (const char c : word) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id < 0) {
      sink.add_dropped({&c, 1});
      dropped = true;
    } else {
      symbols.push_back(id);
    }
  }
  if (symbols.size() < 2) return;
  if (dropped || symbols.size() > kShortWord) return merge(work);
  work.pairs.clear();
  for (size_t i = 0; i + 1 < word.size(); ++i) {
    work.pairs.push_back(
        byte_merges_[size_t{static_cast<uint8_t>(word[i])} * 256 + static_cast<uint8_t>(word[i + 1])]);
  }
  merge_short(symbols, work);
}

// One symbol per character, with byte fallback and unk as the package orders them: byte tokens go in at once, while
// a pending unk waits for the next known character.
bool Bpe::make_symbols(std::string_view word, Work& work, TokenSink& sink) const {
  std::vector<int32_t>& symbols = work.symbols;
  symbols.clear();
  bool pending_unk = false;
  std::string affixed;
  for (size_t at = 0; at < word.size();) {
    const size_t n = utf8_length(word[at]);
    std::string_view c = word.substr(at, n);
    const bool is_first = at == 0, is_last = at + n == word.size();
    at += n;
    const std::string_view plain = c;
    if ((!is_first && !options_.continuing_subword_prefix.empty()) ||
        (is_last && !options_.end_of_word_suffix.empty())) {
      affixed.clear();
      if (!is_first) affixed += options_.continuing_subword_prefix;
      affixed += c;
      if (is_last) affixed += options_.end_of_word_suffix;
      c = affixed;
    }
    if (const int32_t id = vocabulary_.find(c); id >= 0) {
      if (pending_unk) symbols.push_back(unk_id_);
      pending_unk = false;
      symbols.push_back(id);
      continue;
    }
    if (options_.byte_fallback &&
        std::all_of(c.begin(), c.end(), [this](char b) { return fallback_ids_[static_cast<uint8_t>(b)] >= 0; })) {
      for (const char b : c) symbols.push_back(fallback_ids_[static_cast<uint8_t>(b)]);
      continue;
    }
    if (!options_.unk_token) {
      sink.add_dropped(plain);
      continue;
    }
    get_unk_id();
    if (pending_unk && !options_.fuse_unk) symbols.push_back(unk_id_);
    pending_unk = true;
  }
  if (pending_unk) symbols.push_back(unk_id_);
  return true;
}

void Bpe::merge(Work& work) const {
  if (work.symbols.size() < 2) return;
  if (work.symbols.size() > kShortWord) return merge_long(work.symbols);
  work.pairs.clear();
  for (size_t i = 0; i + 1 < work.symbols.size(); ++i) {
    work.pairs.push_back(merges_.find(work.symbols[i], work.symbols[i + 1]));
  }
  merge_short(work.symbols, work);
}

// work.pairs[i] is the merge of symbols i and i+1.
void Bpe::merge_short(std::vector<int32_t>& symbols, Work& work) const {
  MergeTable::Merge* pairs = work.pairs.data();
  int32_t* ids = symbols.data();
  size_t n = symbols.size();
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == MergeTable::kNoRank) break;
    ids[best] = pairs[best].id;
    std::copy(ids + best + 2, ids + n, ids + best + 1);
    std::copy(pairs + best + 1, pairs + n - 1, pairs + best);
    --n;
    if (best > 0) pairs[best - 1] = merges_.find(ids[best - 1], ids[best]);
    if (best + 1 < n) pairs[best] = merges_.find(ids[best], ids[best + 1]);
  }
  symbols.resize(n);
}

void Bpe::merge_long(std::vector<int32_t>& symbols) const {
  constexpr uint32_t kNone = UINT32_MAX;
  struct Node {
    int32_t id;
    uint32_t previous, next;
  };
  const size_t n = symbols.size();
  if (n >= kNone) base::fail(ErrorCode::Limit, "{}: a word of {} characters is too long", subject_, n);
  std::vector<Node> nodes(n);
  // (rank, position), smallest first. An entry is stale when the pair now at its position has another rank.
  std::vector<uint64_t> entries;
  const auto entry_of = [&](uint32_t left, uint32_t right) -> uint64_t {
    const MergeTable::Merge m = merges_.find(nodes[left].id, nodes[right].id);
    return m.rank == MergeTable::kNoRank ? UINT64_MAX : uint64_t{m.rank} << 32 | left;
  };
  for (uint32_t i = 0; i < n; ++i) nodes[i] = {symbols[i], i == 0 ? kNone : i - 1, i + 1 < n ? i + 1 : kNone};
  for (uint32_t i = 0; i + 1 < n; ++i) {
    if (const uint64_t entry = entry_of(i, i + 1); entry != UINT64_MAX) entries.push_back(entry);
  }
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue(std::greater<>(), std::move(entries));
  while (!queue.empty()) {
    const uint64_t top = queue.top();
    queue.pop();
    const auto left = static_cast<uint32_t>(top);
    if (nodes[left].id < 0 || nodes[left].next == kNone) continue;
    const uint32_t right = nodes[left].next;
    const MergeTable::Merge m = merges_.find(nodes[left].id, nodes[right].id);
    if (m.rank != top >> 32) continue;
    nodes[left].id = m.id;
    nodes[right].id = -1;
    nodes[left].next = nodes[right].next;
    if (nodes[left].next != kNone) {
      nodes[nodes[left].next].previous = left;
      if (const uint64_t entry = entry_of(left, nodes[left].next); entry != UINT64_MAX) queue.push(entry);
    }
    if (nodes[left].previous != kNone) {
      if (const uint64_t entry = entry_of(nodes[left].previous, left); entry != UINT64_MAX) queue.push(entry);
    }
  }
  symbols.clear();
  for (const Node& node : nodes) {
    if (node.id >= 0) symbols.push_back(node.id);
  }
}

}  // namespace kvfork::tokenizer
