// A checkpoint opened for running: weights, text side, kernel set, threads.
//
// Held as shared_ptr<const Model>. Immutable after opening; any number of threads may prefill, fork and generate
// from one Model at a time (they share its thread pool, one parallel region at a time).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kvfork {

class Context;
class Fork;
class Text;
struct ContextOrigin;
struct Identity;
namespace engine {
struct ModelState;
struct StateAccess;
}  // namespace engine

/// How activations and the KV cache are held. Weights always stay as stored.
enum class ComputeMode {
  Float32,   ///< activations and KV in float32
  BFloat16,  ///< activations rounded to bfloat16 at matrix products, KV in bfloat16
};

/// "float32" or "bfloat16".
const char* compute_mode_name(ComputeMode mode) noexcept;

struct ModelOptions {
  ComputeMode mode = ComputeMode::Float32;
  size_t n_threads = 0;    ///< 0: the cores this process may use
  std::string kernel_set;  ///< portable, avx2, avx512; empty: KVFORK_ISA if set, else the best this machine runs
};

/// What was opened. Sizes in bytes where the name says so.
struct ModelInfo {
  std::string path;
  std::string architecture;  ///< as in config.json: "Qwen2ForCausalLM"
  std::string kernel_set;
  ComputeMode mode = ComputeMode::Float32;
  size_t n_threads = 0;
  size_t vocab_size = 0;
  size_t n_layers = 0;
  size_t hidden_size = 0;
  size_t max_position_embeddings = 0;
  size_t kv_bytes_per_token = 0;
  size_t state_bytes = 0;   ///< of layers whose memory is a state, at one position
  size_t weight_bytes = 0;  ///< of the files that hold the weights
};

/// What generation_config.json asks of greedy decoding, config.json's EOS where it names none.
struct GenerationDefaults {
  std::vector<int32_t> eos_token_ids;
  double repetition_penalty = 1.0;
};

struct OpenContextOptions {
  std::string parent;  ///< the parent's file; empty: looked for beside the child's
  /// Every byte of a parent's file is checked before it is taken, so that a damaged one hides no sound one beside
  /// it. False: only what is checked of every file that opens, for a program that opens many children and uses few.
  bool check_parents = true;
};

class Model : public std::enable_shared_from_this<Model> {
 public:
  /// Opens a directory in Hugging Face layout or a GGUF file. Weights of safetensors files are mapped, not read.
  /// Throws Error{NotFound, Corrupt, Unsupported, InvalidArgument, Io, Limit}.
  static std::shared_ptr<const Model> open(const std::string& path, const ModelOptions& options = {});
  ~Model();

  const ModelInfo& info() const noexcept;
  const GenerationDefaults& generation_defaults() const noexcept;

  /// Tokenizer and chat template, read at first use. Throws as Text::open.
  const Text& text() const { return *shared_text(); }
  const std::shared_ptr<const Text>& shared_text() const;

  /// The fields that decide bits; those of the text are empty. The first call reads all weights, unless their
  /// fingerprint is remembered from an earlier process. Throws Error{Io}.
  const Identity& identity() const;

  /// Runs `ids` from position 0 and seals the result. `on_progress` is called after each part with tokens done.
  /// Where layers have a state, the context keeps theirs at up to eight places, so that forks can start inside of
  /// it. `origin` says what the ids were rendered from; a context without one can be forked and saved, but renders
  /// no requests. Throws Error{InvalidArgument} for no ids or an id outside the vocabulary, Error{Limit} beyond
  /// max_position_embeddings or memory.
  std::shared_ptr<const Context> prefill(std::span<const int32_t> ids,
                                         const std::function<void(size_t)>& on_progress = {},
                                         std::shared_ptr<const ContextOrigin> origin = nullptr) const;

  /// Opens what Context::save wrote. Keys and values are mapped and used in place; they are checked at the first
  /// fork, or by Context::check, everything else here; those of parents as the options say. The file should be
  /// replaced, never changed in place: docs/cache-file.md says what is noticed while it is open. Throws
  /// Error{NotFound, Io}; Error{Corrupt} for a damaged file; Error{InvalidArgument} for one that another model,
  /// tokenizer, template, mode, kernel set or format version made, naming the field with expected and found, and
  /// for a child whose parent is not found; of a parent that is there and cannot be used, the Error that its file
  /// gives.
  std::shared_ptr<const Context> open_context(const std::string& path,
                                              const OpenContextOptions& options = {}) const;

  /// An empty timeline without a context: the uncached path.
  Fork start() const;

 private:
  friend struct engine::StateAccess;
  Model();

  std::unique_ptr<engine::ModelState> state_;
};

}  // namespace kvfork
