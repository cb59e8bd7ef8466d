// Model: opening a checkpoint, and the scratch buffers that passes borrow.
#include "kvfork/model.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/float_environment.h"
#include "engine/context_state.h"
#include "engine/fork_state.h"
#include "engine/model_state.h"
#include "kernels/select.h"
#include "kvfork/context.h"
#include "kvfork/fork.h"
#include "kvfork/version.h"

namespace kvfork {
namespace {

constexpr size_t kMaxThreads = 1024;

// Frequencies that change with the length of the timeline would leave what was computed before the change wrong, so
// such a model runs on the near side of it.
size_t longest_timeline(const checkpoint::ModelConfig& config) {
  size_t longest = config.max_position_embeddings;
  for (const checkpoint::RotationSpec& rotation : config.spec.rotations) {
    if (rotation.switch_length != 0) longest = std::min(longest, rotation.switch_length);
  }
  return longest;
}

std::string names_of(std::span<const kernels::KernelTable* const> sets) {
  std::string names;
  for (const auto* set : sets) names += (names.empty() ? "" : ", ") + std::string(set->name);
  return names;
}

// The set, ready to run. A system that refuses what it needs is an error: another set would give other bits.
const kernels::KernelTable& prepared(const kernels::KernelTable& set) {
  const int refusal = kernels::prepare_kernel_set(set);
  if (refusal == 0) return set;
  const char* hint = refusal == ENOSPC ? "a signal stack of this process (sigaltstack) is too small for them" : "";
  base::fail(
      ErrorCode::Unsupported,
      "kernel set: the system refuses the tile registers of '{}' to this process: {}{}{}; choose another set, e.g. "
      "KVFORK_ISA=avx512",
      set.name, std::strerror(refusal), *hint == 0 ? "" : "; ", hint);
}

const kernels::KernelTable& select_kernel_set(const std::string& asked) {
  std::string name = asked;
  std::string subject = "kernel set";
  if (name.empty()) {
    const char* override_name = std::getenv("KVFORK_ISA");
    if (override_name != nullptr) name = override_name;
    subject = "KVFORK_ISA";
  }
  const auto supported = kernels::supported_kernel_sets();
  if (name.empty()) return prepared(*supported.front());
  const kernels::KernelTable* table = kernels::find_kernel_set(name);
  if (table != nullptr) return prepared(*table);
  const auto built = kernels::built_kernel_sets();
  if (std::find(built.begin(), built.end(), name) != built.end())
    base::fail(ErrorCode::Unsupported, "{}: this machine cannot run '{}'; it runs {}", subject, name,
               names_of(supported));
  base::fail(ErrorCode::InvalidArgument, "{}: expected one of {}, found '{}'", subject, names_of(supported), name);
}

size_t check_threads(size_t n_threads) {
  if (n_threads > kMaxThreads)
    base::fail(ErrorCode::InvalidArgument, "threads: expected at most {}, found {}", kMaxThreads, n_threads);
  return n_threads;
}

kernels::Rounding rounding_of(ComputeMode mode) {
  return mode == ComputeMode::BFloat16 ? kernels::Rounding::ToBF16 : kernels::Rounding::None;
}

// Tokens between the places where a context keeps the states of its layers: at most so many places, and none nearer
// to the one before than what runs in a pass anyway.
size_t distance_of_places(size_t n_tokens) {
  constexpr size_t kMostPlaces = 8;
  const size_t n_passes = (n_tokens + engine::kMaxPassRows - 1) / engine::kMaxPassRows;
  return std::max<size_t>(1, (n_passes + kMostPlaces - 1) / kMostPlaces) * engine::kMaxPassRows;
}

GenerationDefaults make_defaults(const checkpoint::Checkpoint& checkpoint) {
  const checkpoint::GenerationConfig& generation = checkpoint.generation_config();
  return {.eos_token_ids = generation.eos_token_id.value_or(checkpoint.config().eos_token_id),
          .repetition_penalty = generation.repetition_penalty.value_or(1.0)};
}

}  // namespace

namespace engine {

ScratchPool::Lease ScratchPool::borrow(size_t n_rows) const {
  std::unique_ptr<model::Scratch> scratch;
  {
    const std::lock_guard lock(mutex_);
    const auto fits = std::find_if(free_.begin(), free_.end(),
                                   [n_rows](const auto& candidate) { return candidate->max_rows() >= n_rows; });
    if (fits != free_.end()) {
      scratch = std::move(*fits);
      free_.erase(fits);
    }
  }
  if (scratch == nullptr) {
    const size_t max_rows = n_rows <= 32 ? 32 : kMaxPassRows;
    scratch = std::make_unique<model::Scratch>(spec_, kernels_, max_rows, n_threads_);
    // Its place in the list is there before it is lent, so that giving it back cannot fail.
    const std::lock_guard lock(mutex_);
    free_.reserve(n_made_ + 1);
    ++n_made_;
  }
  return Lease(scratch.release(), Return{this});
}

void ScratchPool::take_back(std::unique_ptr<model::Scratch> scratch) const {
  const std::lock_guard lock(mutex_);
  // Smallest first, so that a short pass leaves the large buffers to others.
  const auto place = std::find_if(free_.begin(), free_.end(), [&scratch](const auto& candidate) {
    return candidate->max_rows() >= scratch->max_rows();
  });
  free_.insert(place, std::move(scratch));
}

}  // namespace engine

const char* version() noexcept {
  return KVFORK_VERSION;
}

const char* compute_mode_name(ComputeMode mode) noexcept {
  return mode == ComputeMode::Float32 ? "float32" : "bfloat16";
}

engine::ModelState::ModelState(const std::string& path, const ModelOptions& options)
    : checkpoint(
          checkpoint::Checkpoint::open(path, options.n_threads == 0 ? base::available_cores() : options.n_threads)),
      weight_files(checkpoint.files()),
      kernels(select_kernel_set(options.kernel_set)),
      pool(options.n_threads),
      weights(model::make_weights(checkpoint)),
      kv_layout(std::make_shared<model::StateLayout>(model::StateLayout::of(
          checkpoint.config().spec,
          options.mode == ComputeMode::BFloat16 ? kernels::Element::BF16 : kernels::Element::F32))),
      forward(checkpoint.config().spec, weights, kernels, pool, rounding_of(options.mode)),
      scratch(checkpoint.config().spec, kernels, pool.n_threads()),
      info{.path = path,
           .architecture = checkpoint.config().architecture,
           .kernel_set = kernels.name,
           .mode = options.mode,
           .n_threads = pool.n_threads(),
           .vocab_size = checkpoint.config().vocab_size,
           .n_layers = checkpoint.config().num_hidden_layers,
           .hidden_size = checkpoint.config().hidden_size,
           .max_position_embeddings = longest_timeline(checkpoint.config()),
           .kv_bytes_per_token = kv_layout->token_bytes(),
           .state_bytes = kv_layout->n_state_floats() * sizeof(float),
           .weight_bytes = checkpoint.file_bytes()},
      defaults(make_defaults(checkpoint)) {}

void engine::ModelState::expect_unchanged_weights() const {
  for (const base::MappedFile* file : weight_files) file->expect_unchanged();
}

Model::Model() = default;
Model::~Model() = default;

std::shared_ptr<const Model> Model::open(const std::string& path, const ModelOptions& options) {
  return base::only_errors([&]() -> std::shared_ptr<const Model> {
    const base::FloatEnvironment environment;
    check_threads(options.n_threads);
    select_kernel_set(options.kernel_set);  // refused before any file is read
    const std::shared_ptr<Model> model(new Model);
    model->state_ = std::make_unique<engine::ModelState>(path, options);
    return model;
  });
}

const ModelInfo& Model::info() const noexcept {
  return state_->info;
}

const GenerationDefaults& Model::generation_defaults() const noexcept {
  return state_->defaults;
}

const std::shared_ptr<const Text>& Model::shared_text() const {
  return base::only_errors([&]() -> const std::shared_ptr<const Text>& {
    const std::lock_guard lock(state_->text_mutex);
    if (state_->text == nullptr) state_->text = Text::open(state_->info.path);
    return state_->text;
  });
}

std::shared_ptr<const Context> Model::prefill(std::span<const int32_t> ids,
                                              const std::function<void(size_t)>& on_progress,
                                              std::shared_ptr<const ContextOrigin> origin) const {
  return base::only_errors([&]() -> std::shared_ptr<const Context> {
    Fork timeline = start();
    const size_t distance = state_->kv_layout->has_states() ? distance_of_places(ids.size()) : ids.size();
    do {  // no ids: append refuses nothing, and seal does
      const size_t first = timeline.size();
      const auto part = ids.subspan(first, std::min(distance, ids.size() - first));
      timeline.append(part, on_progress ? [&](size_t done) { on_progress(first + done); } : on_progress);
      if (timeline.size() < ids.size()) engine::state_of(timeline).kv.keep_states();
    } while (timeline.size() < ids.size());
    return std::move(timeline).seal(std::move(origin));
  });
}

Fork Model::start() const {
  return base::only_errors([&]() -> Fork {
    return engine::StateAccess::make_fork(
        std::make_unique<engine::ForkState>(shared_from_this(), nullptr, model::KvSequence(state_->kv_layout)));
  });
}

}  // namespace kvfork
