// Reading request lines and writing answer lines.
#include "cli/batch_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "cli/generation_flags.h"
#include "cli/json_object.h"
#include "cli/output.h"
#include "kvfork/error.h"

namespace kvfork::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kWhiteSpace = " \t\r\n";

// Options of generate() and of other engines' requests that would change the answer and that a line cannot give
// here. Any other key is the caller's own, and ignored.
constexpr std::array kRefusedKeys = {"max_tokens",
                                     "max_completion_tokens",
                                     "max_length",
                                     "min_length",
                                     "min_new_tokens",
                                     "max_time",
                                     "do_sample",
                                     "num_beams",
                                     "num_beam_groups",
                                     "num_return_sequences",
                                     "n",
                                     "best_of",
                                     "penalty_alpha",
                                     "typical_p",
                                     "epsilon_cutoff",
                                     "eta_cutoff",
                                     "diversity_penalty",
                                     "length_penalty",
                                     "no_repeat_ngram_size",
                                     "encoder_repetition_penalty",
                                     "bad_words_ids",
                                     "force_words_ids",
                                     "suppress_tokens",
                                     "begin_suppress_tokens",
                                     "sequence_bias",
                                     "logit_bias",
                                     "presence_penalty",
                                     "frequency_penalty",
                                     "stop_strings",
                                     "stop_sequences",
                                     "stop_token_ids",
                                     "eos_token_id",
                                     "logprobs",
                                     "top_logprobs",
                                     "system",
                                     "context",
                                     "tools",
                                     "tool_choice",
                                     "documents",
                                     "response_format",
                                     "guidance_scale",
                                     "echo",
                                     "suffix"};

// What is wrong with a line; becomes its error.
struct LineError {
  std::string text;  // which may hold a NUL of the line
};

using Members = std::map<std::string, std::string_view>;

std::string shown(std::string_view text) {
  constexpr size_t kLongest = 60;
  if (text.size() <= kLongest) return std::string(text);
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

[[noreturn]] void refuse(std::string_view key, std::string_view expected, std::string_view found) {
  throw LineError{fmt::format("{}: expected {}, found {}", key, expected, shown(found))};
}

// The text of an optional key's value; null stands for its absence.
std::optional<std::string_view> find(const Members& line, const char* key) {
  const auto it = line.find(key);
  return it == line.end() || it->second == "null" ? std::nullopt : std::optional(it->second);
}

template <typename Number>
void read_number(const Members& line, const char* key, Number& value) {
  const auto found = find(line, key);
  if (!found) return;
  const Json number = parse_value(*found);
  if constexpr (std::is_floating_point_v<Number>) {
    if (!number.is_number()) refuse(key, "a number", *found);
    value = number.get<double>();
  } else {
    if (!number.is_number_unsigned()) refuse(key, "a whole number of at least 0", *found);
    value = number.get<uint64_t>();
  }
}

void read_number(const Members& line, const char* key, double& value, Bounds bounds) {
  const auto found = find(line, key);
  if (!found) return;
  read_number(line, key, value);
  if (!(value >= bounds.low && value <= bounds.high))
    refuse(key, fmt::format("a number from {} to {}", bounds.low, bounds.high), *found);
}

void read_stop(const Members& line, std::vector<std::string>& stop) {
  const auto found = find(line, "stop");
  if (!found) return;
  Json texts = parse_value(*found);
  if (texts.is_string()) texts = Json::array({texts});
  if (!texts.is_array()) refuse("stop", "a string or a list of strings", *found);
  stop.clear();
  for (const Json& text : texts) {
    if (!text.is_string()) refuse("stop", "a string or a list of strings", *found);
    stop.push_back(text.get<std::string>());
  }
}

void read_id(const Members& line, Json& id) {
  const auto found = find(line, "id");
  if (!found) throw LineError{"id: expected a string or a whole number, found none"};
  Json value = parse_value(*found);
  if (!value.is_string() && !value.is_number_integer())
    refuse("id", "a string or a whole number of 64 bits", *found);
  id = std::move(value);
}

bool is_list_of_something(std::string_view text) {
  return text.starts_with('[') && text.find_first_not_of(kWhiteSpace, 1) < text.size() - 1;
}

void read_text(const Members& line, RequestLine& request) {
  const auto prompt = find(line, "prompt");
  const auto messages = find(line, "messages");
  if (!prompt && !messages) throw LineError{"request: expected prompt or messages, found neither"};
  if (prompt && messages) throw LineError{"request: expected prompt or messages, found both"};
  if (prompt) {
    if (!prompt->starts_with('"')) refuse("prompt", "a string", *prompt);
    request.prompt = parse_string(*prompt);
  } else {
    if (!is_list_of_something(*messages)) refuse("messages", "a list of messages", *messages);
    request.messages_json = *messages;
  }
}

// What is not read here must be JSON all the same, messages aside: those are read by the template engine.
void expect_json(const Members& line) {
  for (const auto& [key, value] : line) {
    if (key != "messages" && !Json::accept(value)) refuse(key, "JSON", value);
  }
}

void read_options(const Members& line, GenerateOptions& options) {
  for (const char* key : kRefusedKeys) {
    if (find(line, key)) throw LineError{fmt::format("{}: not an option of a line; docs/batch.md lists them", key)};
  }
  read_number(line, "max_new_tokens", options.max_new_tokens);
  read_number(line, "temperature", options.sampling.temperature, kTemperatures);
  read_number(line, "top_k", options.sampling.top_k);
  read_number(line, "top_p", options.sampling.top_p, kTopPs);
  read_number(line, "min_p", options.sampling.min_p, kMinPs);
  read_number(line, "seed", options.sampling.seed);
  read_number(line, "repetition_penalty", options.repetition_penalty, kRepetitionPenalties);
  read_stop(line, options.stop);
  check_options(options);
}

Members split_line(std::string_view line) {
  try {
    return split_object(line);
  } catch (const Error& error) {
    throw LineError{fmt::format("line: expected a JSON object; {}", error.what())};
  }
}

// FNV-1a over whatever is added.
class Hash {
 public:
  void add(const void* data, size_t n_bytes) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < n_bytes; ++i) state_ = (state_ ^ bytes[i]) * 0x100000001B3u;
  }
  template <typename Value>
  void add(const Value& value) {
    static_assert(std::is_arithmetic_v<Value>);
    add(&value, sizeof(value));
  }
  void add(std::string_view text) {
    add(text.size());
    add(text.data(), text.size());
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xCBF29CE484222325u;
};

constexpr std::string_view kCheck = ",\"check\":\"";

std::string check_of(std::string_view text) {
  Hash hash;
  hash.add(text);
  return fmt::format("{:016x}", hash.value());
}

// The object as a line that ends with a hash of what stands before it.
std::string seal(const Json& object) {
  std::string line = to_json_text(object);
  line.pop_back();
  return fmt::format("{}{}{}\"}}\n", line, kCheck, check_of(line));
}

}  // namespace

std::vector<std::string_view> split_lines(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.find_first_not_of(kWhiteSpace) != std::string_view::npos) lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

RequestLine parse_request_line(std::string_view line, const GenerateOptions& defaults) {
  RequestLine request;
  request.options = defaults;
  try {
    const Members members = split_line(line);
    read_id(members, request.id);
    expect_json(members);
    read_text(members, request);
    read_options(members, request.options);
  } catch (const LineError& error) {
    request.error = error.text;
  } catch (const Error& error) {
    request.error = error.what();
  }
  return request;
}

std::string make_digest(std::string_view model, std::span<const int32_t> ids, const GenerateOptions& options) {
  Hash hash;
  hash.add(model);
  hash.add(ids.size());
  hash.add(ids.data(), ids.size_bytes());
  hash.add(options.max_new_tokens);
  hash.add(options.eos_token_ids.size());
  for (const int32_t id : options.eos_token_ids) hash.add(id);
  hash.add(options.repetition_penalty);
  const SamplingOptions& sampling = options.sampling;
  hash.add(sampling.temperature);
  if (sampling.temperature > 0) {
    hash.add(sampling.top_k);
    hash.add(sampling.top_p);
    hash.add(sampling.min_p);
    hash.add(sampling.seed);
  }
  hash.add(options.stop.size());
  for (const std::string& text : options.stop) hash.add(std::string_view(text));
  hash.add(options.logprobs);
  return fmt::format("{:016x}", hash.value());
}

std::string format_answer(const Json& id, const Generation& generation, const std::string& text,
                          size_t n_request_tokens, size_t n_cached_tokens, const std::string& digest) {
  Json answer = {{"id", id}, {"ids", generation.ids}, {"text", text}, {"stop", stop_reason_name(generation.stop)}};
  if (!generation.logprobs.empty()) answer["logprobs"] = generation.logprobs;
  answer["cached_tokens"] = n_cached_tokens;
  answer["request_tokens"] = n_request_tokens;
  answer["digest"] = digest;
  return seal(answer);
}

std::string format_error(const Json& id, std::string_view error) {
  return to_json_text({{"id", id}, {"error", error}}) + "\n";
}

std::string format_failure(const Json& id, std::string_view error, const std::string& digest) {
  return seal({{"id", id}, {"error", error}, {"digest", digest}});
}

bool is_as_written(std::string_view line) {
  constexpr size_t kTailBytes = kCheck.size() + 16 + 2;
  if (line.size() < kTailBytes) return false;
  const std::string_view text = line.substr(0, line.size() - kTailBytes);
  return line.substr(text.size()) == fmt::format("{}{}\"}}", kCheck, check_of(text));
}

}  // namespace kvfork::cli
