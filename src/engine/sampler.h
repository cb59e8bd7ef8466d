// From one position's logits to a token id.
//
// A Sampler belongs to one generation and one thread. Its draws are a pure function of (seed, request ids,
// position).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvfork/generate.h"

namespace kvfork::engine {

/// Uniform in [0, 1) from a counter-based generator: no state, so a draw does not depend on earlier ones.
double uniform_draw(uint64_t key, uint64_t position) noexcept;

/// The generator's key for a request: its seed and all its token ids.
uint64_t make_draw_key(uint64_t seed, std::span<const int32_t> context_ids,
                       std::span<const int32_t> request_ids) noexcept;

class Sampler {
 public:
  static constexpr size_t kBytesPerId = 24;  ///< memory per id of the vocabulary that sampling takes, at most

  /// The request is context_ids followed by own_ids; both count for the repetition penalty.
  Sampler(const GenerateOptions& options, std::span<const int32_t> context_ids, std::span<const int32_t> own_ids,
          size_t vocab_size);

  /// Picks the token for `position` from its logits and remembers it for the repetition penalty. Ties go to the
  /// lowest id. Throws Error{Corrupt} when a logit is NaN or none is finite.
  int32_t pick(std::span<const float> logits, size_t position);

 private:
  struct Candidate {
    double weight;  // a probability, not normalized
    int32_t id;
  };
  static_assert(sizeof(Candidate) + sizeof(double) == kBytesPerId);

  void remember(int32_t id);
  int32_t draw(size_t position);
  Candidate find_last_kept();
  Candidate find_mass(std::vector<Candidate>::iterator end, double target);
  static bool is_heavier(const Candidate& a, const Candidate& b) noexcept;

  const GenerateOptions& options_;
  uint64_t key_;
  std::vector<bool> is_seen_;          // [vocab], with a repetition penalty
  std::vector<int32_t> seen_;          // the ids set there
  std::vector<float> scores_;          // [vocab] logits after the penalty
  std::vector<double> weights_;        // [vocab] exp of the scores while sampling; 1 for the most likely id
  std::vector<Candidate> candidates_;  // [vocab] with top_k or top_p, in no order
};

}  // namespace kvfork::engine
