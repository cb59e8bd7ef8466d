// Special tokens around an encoded text.
#include "tokenizer/post_processor.h"

#include "base/error.h"

namespace kvfork::tokenizer {
namespace {

constexpr size_t kMaxDepth = 64;

std::unique_ptr<const PostProcessor> make(const Json& json, size_t depth);

int32_t id_of(const Json& json) {
  const int64_t id = json.as_int();
  if (id < 0 || id > INT32_MAX)
    base::fail(ErrorCode::Corrupt, "{}: expected a token id, found {}", json.where(), id);
  return static_cast<int32_t>(id);
}

class Template : public PostProcessor {
 public:
  /// A token, or the text's own tokens.
  struct Item {
    bool is_text = false;
    int32_t id = 0;
    std::string piece;
  };
  explicit Template(std::vector<Item> items) : items_(std::move(items)) {}

  void apply(std::vector<int32_t>& ids, std::vector<std::string>* pieces) const override {
    std::vector<int32_t> out;
    std::vector<std::string> out_pieces;
    out.reserve(ids.size() + items_.size());
    for (const Item& item : items_) {
      if (item.is_text) {
        out.insert(out.end(), ids.begin(), ids.end());
        if (pieces != nullptr) out_pieces.insert(out_pieces.end(), pieces->begin(), pieces->end());
      } else {
        out.push_back(item.id);
        if (pieces != nullptr) out_pieces.push_back(item.piece);
      }
    }
    ids = std::move(out);
    if (pieces != nullptr) *pieces = std::move(out_pieces);
  }

 private:
  std::vector<Item> items_;
};

/// ByteLevel and the like, which change offsets only.
class Nothing : public PostProcessor {
 public:
  void apply(std::vector<int32_t>&, std::vector<std::string>*) const override {}
};

class Sequence : public PostProcessor {
 public:
  explicit Sequence(std::vector<std::unique_ptr<const PostProcessor>> steps) : steps_(std::move(steps)) {}
  void apply(std::vector<int32_t>& ids, std::vector<std::string>* pieces) const override {
    for (const auto& step : steps_) step->apply(ids, pieces);
  }

 private:
  std::vector<std::unique_ptr<const PostProcessor>> steps_;
};

std::unique_ptr<const PostProcessor> make_template(const Json& json) {
  std::vector<Template::Item> items;
  for (const Json part : json.get("single").items()) {
    if (const auto sequence = part.find("Sequence")) {
      const Json which = sequence->get("id");
      if (which.as_string() != "A") which.expected("the sequence A in a template for one text");
      items.push_back({true, 0, ""});
      continue;
    }
    const Json name = part.get("SpecialToken").get("id");
    const Json token = json.get("special_tokens").get(name.as_string());
    const std::vector<Json> ids = token.get("ids").list(), tokens = token.get("tokens").list();
    if (ids.size() != tokens.size()) token.expected("as many ids as tokens");
    for (size_t i = 0; i < ids.size(); ++i)
      items.push_back({false, id_of(ids[i]), std::string(tokens[i].as_string())});
  }
  return std::make_unique<Template>(std::move(items));
}

std::pair<std::string, int32_t> token_pair(const Json& json) {
  const std::vector<Json> parts = json.list();
  if (parts.size() != 2) json.expected("a pair of token and id");
  return {std::string(parts[0].as_string()), id_of(parts[1])};
}

std::unique_ptr<const PostProcessor> make(const Json& json, size_t depth) {
  if (depth > kMaxDepth) base::fail(ErrorCode::Corrupt, "{}: post-processors nested too deep", json.where());
  const std::string_view type = json.get("type").as_string();
  if (type == "TemplateProcessing") return make_template(json);
  if (type == "ByteLevel") return std::make_unique<Nothing>();
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    return make_affixes({token_pair(json.get("cls"))}, {token_pair(json.get("sep"))});
  }
  if (type == "Sequence") {
    std::vector<std::unique_ptr<const PostProcessor>> steps;
    for (const Json step : json.get("processors").items()) steps.push_back(make(step, depth + 1));
    return std::make_unique<Sequence>(std::move(steps));
  }
  base::fail(ErrorCode::Unsupported, "{}: the post-processor \"{}\" is not supported", json.where(), type);
}

}  // namespace

std::unique_ptr<const PostProcessor> make_post_processor(const Json& json) {
  return make(json, 0);
}

std::unique_ptr<const PostProcessor> make_affixes(std::vector<std::pair<std::string, int32_t>> before,
                                                  std::vector<std::pair<std::string, int32_t>> after) {
  std::vector<Template::Item> items;
  for (auto& [piece, id] : before) items.push_back({false, id, std::move(piece)});
  items.push_back({true, 0, ""});
  for (auto& [piece, id] : after) items.push_back({false, id, std::move(piece)});
  return std::make_unique<Template>(std::move(items));
}

}  // namespace kvfork::tokenizer
