// Parses generation_config.json and refuses by name what would change greedy output.

#include "checkpoint/generation_config.h"

#include <array>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/json_fields.h"

namespace kvfork::checkpoint {
namespace {

using base::describe_json;
using base::fail;
using simdjson::dom::element;

// What a field must be to change nothing.
enum class Neutral { NullOrEmpty, False, ZeroOrLess, One, OneOrLess, OneOrMore, NullOnly };

struct Refused {
  std::string_view name;
  Neutral neutral;
};

// The fields of Transformers 4.57.3's GenerationConfig that change greedy output and are not implemented: its
// _get_logits_processor, get_generation_mode and stopping criteria.
constexpr std::array kRefused = {
    Refused{"no_repeat_ngram_size", Neutral::ZeroOrLess},
    Refused{"encoder_no_repeat_ngram_size", Neutral::ZeroOrLess},
    Refused{"encoder_repetition_penalty", Neutral::One},
    Refused{"bad_words_ids", Neutral::NullOrEmpty},
    Refused{"force_words_ids", Neutral::NullOrEmpty},
    Refused{"constraints", Neutral::NullOrEmpty},
    Refused{"sequence_bias", Neutral::NullOrEmpty},
    Refused{"suppress_tokens", Neutral::NullOrEmpty},
    Refused{"begin_suppress_tokens", Neutral::NullOrEmpty},
    Refused{"forced_bos_token_id", Neutral::NullOnly},
    Refused{"forced_eos_token_id", Neutral::NullOnly},
    Refused{"forced_decoder_ids", Neutral::NullOrEmpty},
    Refused{"exponential_decay_length_penalty", Neutral::NullOrEmpty},
    Refused{"min_length", Neutral::ZeroOrLess},
    Refused{"min_new_tokens", Neutral::ZeroOrLess},
    Refused{"num_beams", Neutral::OneOrLess},
    Refused{"num_beam_groups", Neutral::OneOrLess},
    Refused{"penalty_alpha", Neutral::ZeroOrLess},
    Refused{"dola_layers", Neutral::NullOrEmpty},
    Refused{"guidance_scale", Neutral::One},
    Refused{"token_healing", Neutral::False},
    Refused{"stop_strings", Neutral::NullOrEmpty},
    Refused{"watermarking_config", Neutral::NullOrEmpty},
};

constexpr std::array kRefusedForSampling = {
    Refused{"typical_p", Neutral::OneOrMore},
    Refused{"epsilon_cutoff", Neutral::ZeroOrLess},
    Refused{"eta_cutoff", Neutral::ZeroOrLess},
};

bool is_neutral(element value, Neutral neutral) {
  if (value.is_null()) return true;
  simdjson::dom::array list;
  simdjson::dom::object object;
  std::string_view text;
  bool flag = true;
  double number = std::nan("");
  const bool is_number = value.get(number) == simdjson::SUCCESS;
  switch (neutral) {
    case Neutral::NullOnly:
      return false;
    case Neutral::NullOrEmpty:
      if (value.get(list) == simdjson::SUCCESS) return list.size() == 0;
      if (value.get(object) == simdjson::SUCCESS) return object.size() == 0;
      return value.get(text) == simdjson::SUCCESS && text.empty();
    case Neutral::False:
      return value.get(flag) == simdjson::SUCCESS && !flag;
    case Neutral::ZeroOrLess:
      return is_number && number <= 0;
    case Neutral::One:
      return is_number && number == 1;
    case Neutral::OneOrLess:
      return is_number && number <= 1;
    case Neutral::OneOrMore:
      return is_number && number >= 1;
  }
  return false;
}

template <typename T>
void check_range(const JsonFields& fields, std::string_view name, std::optional<T> value, double min, double max) {
  if (!value) return;
  const auto number = static_cast<double>(*value);
  if (!(number >= min && number <= max))
    fail(ErrorCode::Corrupt, "{}: {}: expected {} to {}, found {}", fields.subject(), name, min, max, number);
}

void refuse_unsupported(const JsonFields& fields, GenerationConfig& config) {
  for (const Refused& refused : kRefused) {
    const auto value = fields.find(refused.name);
    if (value && !is_neutral(*value, refused.neutral))
      fail(ErrorCode::Unsupported, "{}: {}: found {}, which would change the output and is not implemented",
           fields.subject(), refused.name, describe_json(*value));
  }
  if (fields.find("cache_implementation") && fields.find_string("cache_implementation") == "quantized")
    fail(ErrorCode::Unsupported, "{}: cache_implementation: found \"quantized\", which is not implemented",
         fields.subject());
  for (const Refused& refused : kRefusedForSampling) {
    const auto value = fields.find(refused.name);
    if (value && !is_neutral(*value, refused.neutral)) config.unsupported_for_sampling.emplace_back(refused.name);
  }
}

}  // namespace

GenerationConfig parse_generation_config(std::string_view json, std::string_view subject) {
  constexpr double kTiny = 1e-12;
  constexpr double kHuge = 1e12;
  const auto document = base::JsonDocument::parse(json, subject);
  const JsonFields fields(document.root(), subject);
  GenerationConfig config;
  refuse_unsupported(fields, config);
  config.eos_token_id = fields.find_token_ids("eos_token_id");
  config.bos_token_id = fields.find_token_id("bos_token_id");
  config.pad_token_id = fields.find_token_id("pad_token_id");
  config.repetition_penalty = fields.find_number("repetition_penalty");
  config.do_sample = fields.find_bool("do_sample");
  config.temperature = fields.find_number("temperature");
  config.top_p = fields.find_number("top_p");
  config.min_p = fields.find_number("min_p");
  config.top_k = fields.find_integer("top_k");
  config.max_length = fields.find_integer("max_length");
  config.max_new_tokens = fields.find_integer("max_new_tokens");
  check_range(fields, "repetition_penalty", config.repetition_penalty, kTiny, kHuge);
  check_range(fields, "temperature", config.temperature, 0, kHuge);
  check_range(fields, "top_p", config.top_p, 0, 1);
  check_range(fields, "min_p", config.min_p, 0, 1);
  check_range(fields, "top_k", config.top_k, 0, kHuge);
  return config;
}

}  // namespace kvfork::checkpoint
