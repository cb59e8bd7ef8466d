// The options of generation, and their ranges.
#include "cli/generation_flags.h"

#include "cli/options.h"

namespace kvfork::cli {

void GenerationFlags::add_to(CLI::App& app) {
  app.add_option("--max-new-tokens", max_new_tokens, "New tokens per answer, at most")
      ->check(whole_number(1))
      ->capture_default_str();
  app.add_option("--temperature", sampling.temperature, "Sample at this temperature; 0 is greedy")
      ->check(number_between(kTemperatures.low, kTemperatures.high))
      ->capture_default_str();
  app.add_option("--top-k", sampling.top_k, "Keep the k most likely tokens; 0 keeps all")
      ->check(whole_number())
      ->capture_default_str();
  app.add_option("--top-p", sampling.top_p, "Keep the most likely tokens of this total probability")
      ->check(number_between(kTopPs.low, kTopPs.high))
      ->capture_default_str();
  app.add_option("--min-p", sampling.min_p, "Keep tokens at least this likely relative to the best")
      ->check(number_between(kMinPs.low, kMinPs.high))
      ->capture_default_str();
  app.add_option("--seed", sampling.seed, "Seed of the draws")->check(whole_number())->capture_default_str();
  repetition_option =
      app.add_option("--repetition-penalty", repetition_penalty, "Instead of generation_config.json's")
          ->check(number_between(kRepetitionPenalties.low, kRepetitionPenalties.high));
  app.add_option("--stop", stop, "Text that ends an answer and is no part of it; repeatable")
      ->allow_extra_args(false)
      ->check(CLI::Validator(
          [](const std::string& text) { return text.empty() ? "expected text, found none" : ""; }, ""));
  app.add_flag("--logprobs", logprobs, "Also the log-probability of each new token");
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
