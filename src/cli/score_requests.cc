// Lines of requests in, lines of scores out. docs/cli.md describes both.
#include "cli/score_requests.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <vector>

#include "base/error.h"
#include "cli/batch_lines.h"
#include "cli/json_object.h"
#include "cli/options.h"
#include "cli/output.h"
#include "kvfork/error.h"
#include "kvfork/score.h"
#include "kvfork/text.h"

namespace kvfork::cli {
namespace {

using Json = nlohmann::ordered_json;

// A line of the input, and its continuations' places among the requests.
struct ScoreLine {
  Json id;
  std::string error;
  bool is_list = false;
  std::vector<size_t> places;
};

class ScoreRequests {
 public:
  ScoreRequests(const Model& model, bool add_special_tokens) : model_(model) {
    encoding_.add_special_tokens = add_special_tokens;
  }

  int run(const std::string& text, Progress::Show show) {
    for (const std::string_view line : split_lines(text)) lines_.push_back(read(line));
    scores_.resize(requests_.size());
    const size_t n_all = std::accumulate(requests_.begin(), requests_.end(), size_t{0},
                                         [](size_t n, const auto& request) { return n + request.ids.size(); });
    {
      Progress progress("scoring", show, Progress::Unit::Tokens);
      ScoreOptions options;
      options.on_progress = [&](size_t n_rows) { progress.update(n_rows, n_all); };
      score_all(model_, requests_, options, [&](size_t i, Score score) { scores_[i] = std::move(score); });
    }
    bool has_errors = false;
    for (const ScoreLine& line : lines_) {
      const Json answer = answer_of(line);
      has_errors = has_errors || answer.contains("error");
      write_json(answer);
    }
    return has_errors ? 1 : 0;
  }

 private:
  ScoreLine read(std::string_view text) {
    ScoreLine line;
    try {
      const Json json = parse_value(text);
      if (!json.is_object())
        base::fail(ErrorCode::InvalidArgument, "line {}: expected a JSON object", lines_.size() + 1);
      line.id = json.value("id", Json(lines_.size()));
      line.is_list = json.contains("continuations");
      const std::vector<int32_t> given = ids_of(json, "context");
      const Json one = json.contains("continuation") ? Json::array({json["continuation"]}) : Json::array();
      const Json& continuations = line.is_list ? json["continuations"] : one;
      if (!continuations.is_array() || continuations.empty() || (line.is_list && !one.empty()))
        base::fail(ErrorCode::InvalidArgument, "line {}: expected continuation, or continuations, a list",
                   lines_.size() + 1);
      const size_t n_before = requests_.size();
      try {
        for (const Json& continuation : continuations) add(json["context"], given, continuation, line);
      } catch (...) {
        requests_.resize(n_before);
        throw;
      }
    } catch (const Error& error) {
      line.places.clear();
      line.error = error.what();
    }
    return line;
  }

  // A text, or a list of ids. Where there are none the model's own beginning stands for them.
  std::vector<int32_t> ids_of(const Json& json, const char* key) const {
    if (!json.contains(key))
      base::fail(ErrorCode::InvalidArgument, "line {}: expected {}, found none", lines_.size() + 1, key);
    std::vector<int32_t> ids = parse(json[key], key);
    if (ids.empty()) ids.push_back(beginning());
    return ids;
  }

  std::vector<int32_t> parse(const Json& value, const char* key) const {
    if (value.is_string()) return model_.text().tokenizer().encode(value.get<std::string>(), encoding_);
    if (!value.is_array())
      base::fail(ErrorCode::InvalidArgument, "line {}: {}: expected a text or a list of ids", lines_.size() + 1,
                 key);
    return parse_id_list(value.dump());
  }

  int32_t beginning() const {
    const Tokenizer& tokenizer = model_.text().tokenizer();
    for (const std::string& name : {tokenizer.bos_token(), tokenizer.eos_token()}) {
      if (const auto id = tokenizer.find_id(name); !name.empty() && id) return *id;
    }
    base::fail(ErrorCode::InvalidArgument, "line {}: context: expected at least one token, found none",
               lines_.size() + 1);
  }

  // Texts are tokenized as one: the continuation begins where the ids of the two part.
  void add(const Json& context, const std::vector<int32_t>& given, const Json& continuation, ScoreLine& line) {
    std::vector<int32_t> ids = given;
    size_t n_given = given.size();
    if (context.is_string() && continuation.is_string() && !context.get_ref<const std::string&>().empty()) {
      ids =
          model_.text().tokenizer().encode(context.get<std::string>() + continuation.get<std::string>(), encoding_);
      const auto parted = std::ranges::mismatch(ids, given).in1;
      n_given = std::max<size_t>(1, static_cast<size_t>(parted - ids.begin()));
    } else {
      const std::vector<int32_t> more = continuation.is_string()
                                            ? model_.text().tokenizer().encode(continuation.get<std::string>())
                                            : parse(continuation, "continuation");
      ids.insert(ids.end(), more.begin(), more.end());
    }
    line.places.push_back(requests_.size());
    requests_.push_back({std::move(ids), n_given});
  }

  Json answer_of(const ScoreLine& line) const {
    Json answer = {{"id", line.id}};
    std::string error = line.error;
    for (const size_t place : line.places) {
      if (scores_[place].error && error.empty()) error = scores_[place].error->what();
    }
    if (!error.empty()) {
      answer["error"] = error;
      return answer;
    }
    if (!line.is_list) {
      answer.update(score_json(line.places[0]));
      return answer;
    }
    answer["scores"] = Json::array();
    for (const size_t place : line.places) answer["scores"].push_back(score_json(place));
    return answer;
  }

  Json score_json(size_t place) const {
    const Score& score = scores_[place];
    const auto& ids = requests_[place].ids;
    return {{"logprob", std::accumulate(score.logprobs.begin(), score.logprobs.end(), 0.0)},
            {"is_greedy", score.is_greedy},
            {"ids", std::vector(ids.begin() + static_cast<ptrdiff_t>(requests_[place].n_given), ids.end())},
            {"logprobs", score.logprobs}};
  }

  const Model& model_;
  EncodeOptions encoding_;
  std::vector<ScoreLine> lines_;
  std::vector<ScoreRequest> requests_;
  std::vector<Score> scores_;
};

}  // namespace

int score_requests(const std::shared_ptr<const Model>& model, const std::string& file, bool add_special_tokens,
                   Progress::Show show) {
  return ScoreRequests(*model, add_special_tokens).run(file == "-" ? read_standard_input() : read_text(file), show);
}

}  // namespace kvfork::cli
