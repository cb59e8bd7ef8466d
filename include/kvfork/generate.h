// From logits to tokens: greedy as Transformers' generate(do_sample=False), or seeded sampling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace kvfork {

class Fork;
struct GenerationDefaults;

/// Filters apply in Transformers' order: temperature, top_k, top_p, min_p. The draw for a position depends only on
/// the seed, the request's token ids and the position.
struct SamplingOptions {
  double temperature = 0.0;  ///< 0: greedy, the rest is not read
  size_t top_k = 0;          ///< keep this many most likely tokens; 0: all
  double top_p = 1.0;        ///< keep the smallest set of most likely tokens whose probability reaches this
  double min_p = 0.0;        ///< keep tokens at least this likely relative to the most likely one
  uint64_t seed = 0;
};

/// How the next tokens are guessed, to be checked in one pass.
enum class Speculation { Off, Lookup };

struct GenerateOptions {
  size_t max_new_tokens = 64;
  std::vector<int32_t> eos_token_ids;
  double repetition_penalty = 1.0;  ///< over prompt and generated ids alike; 1: none
  SamplingOptions sampling;
  bool fingerprint_logits = false;  ///< fill Generation::logit_fingerprints
  /// Texts that end the answer as soon as its text (AnswerStream, answer_stream.h) holds one of them. Needs the
  /// model's tokenizer.
  std::vector<std::string> stop;
  bool logprobs = false;  ///< fill Generation::logprobs
  /// Lookup: several tokens per pass where the answer copies from what came before. The answer is the same in every
  /// bit.
  Speculation speculation = Speculation::Off;

  /// The model's defaults with this many new tokens.
  static GenerateOptions from_defaults(const GenerationDefaults& defaults, size_t max_new_tokens);
};

enum class StopReason { Eos, Length, Stop };

/// "eos", "length" or "stop".
const char* stop_reason_name(StopReason reason) noexcept;

struct Generation {
  /// New tokens only: up to the EOS that ended the answer, or the token that completed a stop string, that one
  /// included. The text without the stop string is answer_text(), answer_stream.h.
  std::vector<int32_t> ids;
  StopReason stop = StopReason::Length;
  std::vector<uint64_t>
      logit_fingerprints;        ///< [ids.size()] of the logit bits each id was picked from, if asked for
  std::vector<double> logprobs;  ///< [ids.size()] log_probability() of each id, if asked for
  size_t n_passes = 0;           ///< over the weights, those that the request itself took not counted
};

/// Natural logarithm of the probability that the model itself gives to `id`: log-softmax of the logits before
/// repetition penalty, temperature and filters.
/// Throws Error{InvalidArgument} for an id that has no logit.
double log_probability(std::span<const float> logits, int32_t id);

/// Throws Error{InvalidArgument} naming the first option out of range.
void check_options(const GenerateOptions& options);

/// Continues `fork`, which holds the whole request. `on_token` sees each id as soon as it is known; returning false
/// ends the generation with StopReason::Stop after that id. Throws Error{Limit} before any work when fork.size() +
/// max_new_tokens is beyond the model's context limit, Error{InvalidArgument} for options out of range or an empty
/// timeline, Error{Corrupt} when logits are not numbers; with stop strings also what Model::text() throws.
Generation generate(Fork& fork, const GenerateOptions& options, const std::function<bool(int32_t)>& on_token = {});

}  // namespace kvfork
