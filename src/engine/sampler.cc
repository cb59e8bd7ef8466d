// Penalty, temperature, filters and the seeded draw that turn logits into an id.

#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace kvfork::engine {
namespace {

// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014): the SplitMix64 output function.
uint64_t mix(uint64_t z) noexcept {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;

uint64_t absorb(uint64_t state, uint64_t value) noexcept {
  return mix((state ^ mix(value + kGolden)) + kGolden);
}

// The most likely id; ties go to the lowest.
int32_t argmax(std::span<const float> scores) {
  float best = -std::numeric_limits<float>::infinity();
  size_t best_id = scores.size();
  for (size_t id = 0; id < scores.size(); ++id) {
    if (scores[id] > best) {
      best = scores[id];
      best_id = id;
    } else if (scores[id] != scores[id]) {
      base::fail(ErrorCode::Corrupt, "logits: expected numbers, found NaN for id {}; are the weights intact?", id);
    }
  }
  if (best_id == scores.size() || best == std::numeric_limits<float>::infinity())
    base::fail(ErrorCode::Corrupt, "logits: expected finite values, found {}; are the weights intact?",
               best_id == scores.size() ? "none" : "infinity");
  return static_cast<int32_t>(best_id);
}

}  // namespace

double uniform_draw(uint64_t key, uint64_t position) noexcept {
  const uint64_t bits = mix(absorb(key, position));
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

uint64_t make_draw_key(uint64_t seed, std::span<const int32_t> context_ids,
                       std::span<const int32_t> request_ids) noexcept {
  uint64_t key = absorb(0, seed);
  for (const int32_t id : context_ids) key = absorb(key, static_cast<uint32_t>(id));
  for (const int32_t id : request_ids) key = absorb(key, static_cast<uint32_t>(id));
  return key;
}

Sampler::Sampler(const GenerateOptions& options, std::span<const int32_t> context_ids,
                 std::span<const int32_t> own_ids, size_t vocab_size)
    : options_(options),
      key_(options.sampling.temperature > 0 ? make_draw_key(options.sampling.seed, context_ids, own_ids) : 0) {
  if (options.repetition_penalty != 1.0) {
    is_seen_.resize(vocab_size);
    scores_.resize(vocab_size);
    for (const int32_t id : context_ids) remember(id);
    for (const int32_t id : own_ids) remember(id);
    seen_.reserve(seen_.size() + options.max_new_tokens);
  }
  const SamplingOptions& sampling = options.sampling;
  if (sampling.temperature > 0) weights_.resize(vocab_size);
  if (sampling.temperature > 0 && (sampling.top_k > 0 || sampling.top_p < 1)) candidates_.resize(vocab_size);
}

void Sampler::remember(int32_t id) {
  if (is_seen_[static_cast<size_t>(id)]) return;
  is_seen_[static_cast<size_t>(id)] = true;
  seen_.push_back(id);
}

int32_t Sampler::pick(std::span<const float> logits, size_t position) {
  std::span<const float> scores = logits;
  if (!is_seen_.empty()) {
    // Transformers' RepetitionPenaltyLogitsProcessor, in float32.
    std::copy(logits.begin(), logits.end(), scores_.begin());
    const auto penalty = static_cast<float>(options_.repetition_penalty);
    for (const int32_t id : seen_) {
      float& score = scores_[static_cast<size_t>(id)];
      score = score < 0 ? score * penalty : score / penalty;
    }
    scores = scores_;
  }
  int32_t id = argmax(scores);
  if (options_.sampling.temperature > 0) {
    const double best = scores[static_cast<size_t>(id)];
    for (size_t i = 0; i < scores.size(); ++i)
      weights_[i] = std::exp((scores[i] - best) / options_.sampling.temperature);
    id = draw(position);
  }
  if (!is_seen_.empty()) remember(id);
  return id;
}

bool Sampler::is_heavier(const Candidate& a, const Candidate& b) noexcept {
  return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
}

// The last candidate, in order of falling weight and then of ids, that top_k and top_p keep.
Sampler::Candidate Sampler::find_last_kept() {
  const SamplingOptions& sampling = options_.sampling;
  for (size_t i = 0; i < weights_.size(); ++i) candidates_[i] = {weights_[i], static_cast<int32_t>(i)};
  auto end = candidates_.end();
  Candidate last{0, std::numeric_limits<int32_t>::max()};
  if (sampling.top_k > 0 && sampling.top_k < candidates_.size()) {
    // As in Transformers, ids tied with the k-th stay.
    const auto kth = candidates_.begin() + static_cast<ptrdiff_t>(sampling.top_k - 1);
    std::nth_element(candidates_.begin(), kth, candidates_.end(), is_heavier);
    last.weight = kth->weight;
    end = std::partition(kth, candidates_.end(), [&last](const Candidate& c) { return c.weight >= last.weight; });
  }
  if (sampling.top_p < 1) {
    double total = 0;
    for (auto it = candidates_.begin(); it != end; ++it) total += it->weight;
    last = find_mass(end, sampling.top_p * total);
  }
  return last;
}

// The candidate before `end` with which the mass of the heaviest reaches `target`. Halves what is left, so that its
// time is that of a few passes over the vocabulary and not of a sort.
Sampler::Candidate Sampler::find_mass(std::vector<Candidate>::iterator end, double target) {
  auto begin = candidates_.begin();
  double mass = 0;  // of everything before begin
  while (end - begin > 32) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, is_heavier);
    double half = 0;
    for (auto it = begin; it != middle; ++it) half += it->weight;
    if (mass + half >= target) {
      end = middle;
    } else {
      mass += half;
      begin = middle;
    }
  }
  std::sort(begin, end, is_heavier);
  for (auto it = begin; it != end; ++it) {
    mass += it->weight;
    if (mass >= target) return *it;
  }
  return *(end - 1);
}

// One draw among the kept candidates, laid out in the order of their ids.
int32_t Sampler::draw(size_t position) {
  const Candidate last = candidates_.empty() ? Candidate{0, std::numeric_limits<int32_t>::max()} : find_last_kept();
  const double least = options_.sampling.min_p;  // the heaviest has weight 1
  double total = 0;
  for (size_t i = 0; i < weights_.size(); ++i) {
    const Candidate candidate{weights_[i], static_cast<int32_t>(i)};
    if (candidate.weight < least || is_heavier(last, candidate)) weights_[i] = 0;
    total += weights_[i];
  }
  double rest = uniform_draw(key_, position) * total;
  int32_t last_possible = 0;
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] == 0) continue;
    last_possible = static_cast<int32_t>(i);
    rest -= weights_[i];
    if (rest < 0) break;
  }
  return last_possible;
}

}  // namespace kvfork::engine
