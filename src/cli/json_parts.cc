// JSON of times, versions and identities.
#include "cli/json_parts.h"

#include "kvfork/version.h"

namespace kvfork::cli {

using Json = nlohmann::ordered_json;

Json or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json times_json(const Times& times) {
  if (times.empty()) return nullptr;
  return {{"median", times.median()}, {"min", times.least()}, {"max", times.most()}};
}

Json what_ran_json(const ModelInfo& info) {
  return {{"dtype", compute_mode_name(info.mode)},
          {"kernel_set", info.kernel_set},
          {"threads", info.n_threads},
          {"versions", {{"kvfork", version()}, {"compiler", __VERSION__}}}};
}

Json what_ran_json(const Model& model) {
  return what_ran_json(model.info());
}

Json identity_json(const Identity& identity) {
  return {{"architecture", identity.architecture},
          {"config", identity.config},
          {"weights", identity.weights},
          {"dtype", identity.dtype},
          {"kernel_set", identity.kernel_set},
          {"kernel_bits", identity.kernel_bits},
          {"tokenizer", or_null(identity.tokenizer)},
          {"template", or_null(identity.chat_template)},
          {"revision", or_null(identity.revision)}};
}

}  // namespace kvfork::cli
