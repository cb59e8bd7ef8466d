// The options of generation, and their ranges.
#include "cli/generation_flags.h"

#include "cli/help.h"
#include "cli/options.h"

namespace kvfork::cli {

void GenerationFlags::add_to(CLI::App& app) {
  app.add_option("--max-new-tokens", max_new_tokens, "The most new tokens of an answer")
      ->group(kSamplingGroup)
      ->type_name("N")
      ->check(whole_number(1))
      ->capture_default_str();
  app.add_option("--temperature", sampling.temperature, "Temperature of sampling; 0 takes the most likely token")
      ->group(kSamplingGroup)
      ->type_name("X")
      ->check(number_between(kTemperatures.low, kTemperatures.high))
      ->capture_default_str();
  app.add_option("--top-k", sampling.top_k, "Sample from the N most likely tokens; 0: from all")
      ->group(kSamplingGroup)
      ->type_name("N")
      ->check(whole_number())
      ->capture_default_str();
  app.add_option("--top-p", sampling.top_p,
                 "Sample from the most likely tokens that together have this probability")
      ->group(kSamplingGroup)
      ->type_name("X")
      ->check(number_between(kTopPs.low, kTopPs.high))
      ->capture_default_str();
  app.add_option("--min-p", sampling.min_p,
                 "Sample from tokens that have at least this share of the best probability")
      ->group(kSamplingGroup)
      ->type_name("X")
      ->check(number_between(kMinPs.low, kMinPs.high))
      ->capture_default_str();
  app.add_option("--seed", sampling.seed, "Seed of the random draws")
      ->group(kSamplingGroup)
      ->type_name("N")
      ->check(whole_number())
      ->capture_default_str();
  repetition_option = app.add_option("--repetition-penalty", repetition_penalty,
                                     "Repetition penalty (default: the one of generation_config.json)")
                          ->group(kSamplingGroup)
                          ->type_name("X")
                          ->check(number_between(kRepetitionPenalties.low, kRepetitionPenalties.high));
  app.add_option("--stop", stop, "End the answer before this text; repeatable")
      ->group(kSamplingGroup)
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->check(CLI::Validator(
          [](const std::string& text) { return text.empty() ? "expected text, found none" : ""; }, ""));
  app.add_flag("--logprobs", logprobs, "Also give the log-probability of each new token")->group(kSamplingGroup);
}

GenerateOptions GenerationFlags::options(const GenerationDefaults& defaults) const {
  GenerateOptions options = GenerateOptions::from_defaults(defaults, max_new_tokens);
  options.sampling = sampling;
  if (*repetition_option) options.repetition_penalty = repetition_penalty;
  options.stop = stop;
  options.logprobs = logprobs;
  check_options(options);
  return options;
}

}  // namespace kvfork::cli
