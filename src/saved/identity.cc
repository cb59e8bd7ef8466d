// What a model's and a context's bits depend on, gathered; and the id made from it.
#include "saved/identity.h"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "base/error.h"
#include "base/sha256.h"
#include "engine/context_state.h"
#include "engine/model_state.h"
#include "saved/kernel_fingerprint.h"
#include "saved/weight_fingerprint.h"

namespace kvfork::saved {
namespace {

constexpr IdentityField kBitFields[] = {
    {"architecture", &Identity::architecture}, {"config", &Identity::config},
    {"weights", &Identity::weights},           {"dtype", &Identity::dtype},
    {"kernel_set", &Identity::kernel_set},     {"kernel_bits", &Identity::kernel_bits},
};

constexpr IdentityField kDecidingFields[] = {
    kBitFields[0],
    kBitFields[1],
    kBitFields[2],
    kBitFields[3],
    kBitFields[4],
    kBitFields[5],
    {"tokenizer", &Identity::tokenizer},
    {"template", &Identity::chat_template},
};

bool is_commit(std::string_view name) {
  return name.size() == 40 && std::all_of(name.begin(), name.end(),
                                          [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

namespace {

Identity make_identity(const engine::ModelState& model) {
  const checkpoint::Checkpoint& checkpoint = model.checkpoint;
  Identity identity;
  identity.architecture = model.info.architecture;
  identity.weights = fingerprint_weights(checkpoint.files(), model.pool);
  identity.config = checkpoint.is_gguf() ? identity.weights : base::sha256_hex(checkpoint.config_json());
  identity.dtype = compute_mode_name(model.info.mode);
  identity.kernel_set = model.kernels.name;
  identity.kernel_bits = fingerprint_kernels(model.kernels, model.kv_layout->has_states());
  identity.revision = find_revision(model.info.path);
  return identity;
}

}  // namespace

std::span<const IdentityField> deciding_fields() {
  return kDecidingFields;
}

std::string make_context_id(const Identity& identity, std::span<const int32_t> ids) {
  std::string text;
  for (const IdentityField& field : kBitFields) text += fmt::format("{} {}\n", field.name, identity.*field.value);
  for (const int32_t id : ids) fmt::format_to(std::back_inserter(text), FMT_COMPILE("{} "), id);
  return base::sha256_hex(text);
}

std::string find_revision(const std::string& path) {
  const std::filesystem::path absolute = std::filesystem::absolute(path).lexically_normal();
  bool in_snapshots = false;
  for (const auto& part : absolute) {
    if (in_snapshots && is_commit(part.string())) return part.string();
    in_snapshots = part == "snapshots";
  }
  return "";
}

}  // namespace kvfork::saved

namespace kvfork {

const Identity& Model::identity() const {
  return base::only_errors([&]() -> const Identity& {
    const std::lock_guard lock(state_->identity_mutex);
    if (!state_->identity) {
      state_->expect_unchanged_weights();
      state_->identity = saved::make_identity(*state_);
    }
    return *state_->identity;
  });
}

Identity Context::identity() const {
  return base::only_errors([&]() -> Identity {
    Identity identity = state_->model->identity();
    if (state_->origin != nullptr) {
      identity.tokenizer = state_->origin->tokenizer;
      identity.chat_template = state_->origin->chat_template;
    }
    return identity;
  });
}

std::string Context::id() const {
  return base::only_errors(
      [&]() -> std::string { return saved::make_context_id(state_->model->identity(), state_->ids); });
}

}  // namespace kvfork
