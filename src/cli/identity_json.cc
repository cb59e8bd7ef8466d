#include "cli/identity_json.h"

namespace kvfork::cli {
namespace {

nlohmann::ordered_json or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
}

}  // namespace

nlohmann::ordered_json identity_json(const Identity& identity) {
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
