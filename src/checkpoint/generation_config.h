// generation_config.json: how `generate` would decode with this checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvfork::checkpoint {

/// A field is empty where the file does not have it (or has null).
struct GenerationConfig {
  std::optional<std::vector<int32_t>> eos_token_id;
  std::optional<int32_t> bos_token_id;
  std::optional<int32_t> pad_token_id;
  std::optional<double> repetition_penalty;  ///< > 0
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<int64_t> top_k;
  std::optional<int64_t> max_length;
  std::optional<int64_t> max_new_tokens;

  /// Fields that kvfork does not implement and that act only on sampling ("typical_p", ...): whoever samples by
  /// this file's settings must refuse when this is not empty; greedy decoding does not depend on them.
  std::vector<std::string> unsupported_for_sampling;
};

/// Throws Error{Corrupt} for malformed values, and Error{Unsupported} naming a field that would change greedy
/// output and is not implemented (no_repeat_ngram_size, suppress_tokens, num_beams, ...), unless its value is
/// neutral. Fields that change nothing are ignored.
GenerationConfig parse_generation_config(std::string_view json, std::string_view subject);

}  // namespace kvfork::checkpoint
