// Options that say how an answer is generated, the same in every command that generates.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "kvfork/generate.h"
#include "kvfork/model.h"

namespace kvfork::cli {

/// What options and the lines of a batch may ask for, both ends included.
struct Bounds {
  double low, high;
};
inline constexpr Bounds kTemperatures{0, 1e6}, kTopPs{1e-12, 1}, kMinPs{0, 1}, kRepetitionPenalties{1e-6, 1e6};

/// --max-new-tokens, --temperature, --top-k, --top-p, --min-p, --seed, --repetition-penalty, --stop, --logprobs.
struct GenerationFlags {
  size_t max_new_tokens = 128;
  SamplingOptions sampling;
  double repetition_penalty = 1.0;
  std::vector<std::string> stop;
  bool logprobs = false;
  CLI::Option* repetition_option = nullptr;

  void add_to(CLI::App& app);

  /// What the options ask of this model. Throws Error{InvalidArgument} naming the first that is out of range.
  GenerateOptions options(const GenerationDefaults& defaults) const;
};

}  // namespace kvfork::cli
