// A checkpoint, opened: config, generation config, and every weight checked and addressable.
//
// A directory as it lies on the Hub (config.json, generation_config.json, model.safetensors or an index with
// shards) or a GGUF file. Safetensors weights are used where the files are mapped; GGUF's quantized ones are
// dequantized to float32 once, here. Owns the mappings: weights live as long as the Checkpoint. Move-only. Thread
// rule: immutable after open; any thread may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory_region.h"
#include "checkpoint/config.h"
#include "checkpoint/generation_config.h"
#include "checkpoint/gguf.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/weight.h"

namespace kvfork::checkpoint {

class Checkpoint {
 public:
  /// Opens a directory or a GGUF file (known by its first bytes). `n_threads` dequantize; 0 means one per core.
  /// Throws Error{NotFound, Io, Corrupt, Unsupported, InvalidArgument, Limit} naming file and field or tensor.
  static Checkpoint open(const std::filesystem::path& path, size_t n_threads = 0);

  const ModelConfig& config() const noexcept { return config_; }
  const GenerationConfig& generation_config() const noexcept { return generation_config_; }

  /// generation_config's eos_token_id where it has it, else the config's.
  const std::vector<int32_t>& eos_token_ids() const noexcept;

  /// weights()[i] is the tensor spec.tensors[i] of the config: nothing missing, nothing else (a tied checkpoint's
  /// lm_head.weight is not among them).
  const std::vector<Weight>& weights() const noexcept { return weights_; }
  /// A weight by its name; a walk over all of them.
  const Weight* find_weight(std::string_view name) const noexcept;

  bool is_gguf() const noexcept { return gguf_.has_value(); }
  /// The file, for tokenizer and template; nullptr for a directory.
  const GgufFile* gguf() const noexcept { return gguf_ ? &*gguf_ : nullptr; }

  /// The weight files, in the order of their names or of the parts of a split GGUF file.
  std::vector<const base::MappedFile*> files() const;

  /// The text of config.json; empty for a GGUF file.
  const std::string& config_json() const noexcept { return config_json_; }

  /// Total size of the weight files.
  size_t file_bytes() const noexcept { return file_bytes_; }

 private:
  void open_directory(const std::filesystem::path& path);
  void open_shards(const std::filesystem::path& index);
  void take_safetensors(std::string_view config_subject, std::string_view subject);
  void open_gguf(GgufFile file, size_t n_threads);

  ModelConfig config_;
  std::string config_json_;
  GenerationConfig generation_config_;
  std::vector<Weight> weights_;
  std::vector<Safetensors> shards_;
  std::optional<GgufFile> gguf_;
  base::MemoryRegion memory_;
  size_t file_bytes_ = 0;
};

}  // namespace kvfork::checkpoint
