// Opens a checkpoint: which files there are, what they say, and where each weight lies.
#include "checkpoint/checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <unordered_map>

#include "base/error.h"
#include "base/mapped_file.h"
#include "checkpoint/gguf_config.h"
#include "checkpoint/gguf_weights.h"
#include "checkpoint/shard_index.h"

namespace kvfork::checkpoint {
namespace {

namespace fs = std::filesystem;
using base::fail;

constexpr size_t kMaxConfigBytes = size_t{16} << 20;
constexpr size_t kMaxIndexBytes = size_t{256} << 20;

bool file_exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_weight_type(DType dtype) {
  return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16;
}

[[noreturn]] void fail_no_config(const fs::path& directory) {
  std::string hint = "a checkpoint directory holds config.json beside its weights";
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".gguf") {
      hint = fmt::format("give the GGUF file itself: {}", entry.path().string());
      break;
    }
  }
  fail(ErrorCode::NotFound, "{}: expected config.json, found none; {}", directory.string(), hint);
}

[[noreturn]] void fail_no_weights(const fs::path& directory) {
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (file_exists(directory / name))
      fail(
          ErrorCode::Unsupported,
          "{}: expected model.safetensors, found {}; pickled weights are not read: convert them with Transformers' "
          "save_pretrained, or take the repository's safetensors revision",
          directory.string(), name);
  }
  fail(ErrorCode::NotFound, "{}: expected model.safetensors or model.safetensors.index.json, found neither",
       directory.string());
}

size_t bytes_of(const Weight& weight) {
  return static_cast<size_t>(*count_elements(weight.shape)) * (weight.dtype == DType::F32 ? 4 : 2);
}

// out [.., rows, row_elements] from [.., row_elements, rows]; of pairs, even rows come first. `size` bytes an
// element.
void turn(const TensorSpec& tensor, const Weight& weight, std::byte* out) {
  const size_t size = weight.dtype == DType::F32 ? 4 : 2;
  const auto n_rows = static_cast<size_t>(weight.shape.back()), n = tensor.row_elements;
  const size_t n_parts = bytes_of(weight) / size / n_rows / n;
  const bool is_pairs = tensor.arrangement == Arrangement::TransposedPairs;
  const auto* in = static_cast<const std::byte*>(weight.data);
  for (size_t part = 0; part < n_parts; ++part) {
    for (size_t column = 0; column < n; ++column) {
      for (size_t row = 0; row < n_rows; ++row, in += size) {
        const size_t place = is_pairs ? row % 2 * (n_rows / 2) + row / 2 : row;
        std::memcpy(out + ((part * n_rows + place) * n + column) * size, in, size);
      }
    }
  }
}

}  // namespace

Checkpoint Checkpoint::open(const fs::path& path, size_t n_threads) {
  Checkpoint checkpoint;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    checkpoint.open_directory(path);
    return checkpoint;
  }
  const auto file = base::MappedFile::open(path);
  if (path.extension() != ".gguf" && !has_gguf_magic(file.bytes()))
    fail(ErrorCode::InvalidArgument,
         "{}: expected a checkpoint directory or a GGUF file, found another file; for a .safetensors file give the "
         "directory that holds it and config.json",
         path.string());
  if (n_threads == 0) n_threads = std::max(1u, std::thread::hardware_concurrency());
  checkpoint.open_gguf(GgufFile::open(path), n_threads);
  return checkpoint;
}

const std::vector<int32_t>& Checkpoint::eos_token_ids() const noexcept {
  return generation_config_.eos_token_id ? *generation_config_.eos_token_id : config_.eos_token_id;
}

const Weight* Checkpoint::find_weight(std::string_view name) const noexcept {
  const auto found =
      std::find_if(weights_.begin(), weights_.end(), [name](const Weight& weight) { return weight.name == name; });
  return found != weights_.end() ? &*found : nullptr;
}

std::vector<const base::MappedFile*> Checkpoint::files() const {
  std::vector<const base::MappedFile*> files;
  for (const Safetensors& shard : shards_) files.push_back(&shard.file());
  if (gguf_) {
    for (const base::MappedFile& part : gguf_->files()) files.push_back(&part);
  }
  return files;
}

void Checkpoint::open_directory(const fs::path& path) {
  const fs::path config_path = path / "config.json";
  if (!file_exists(config_path)) fail_no_config(path);
  if (file_exists(path / "adapter_config.json"))
    fail(ErrorCode::Unsupported, "{}: adapters are not applied; merge it into the model and save that",
         (path / "adapter_config.json").string());
  config_json_ = base::read_file(config_path, kMaxConfigBytes);
  config_ =
      parse_config(config_json_, config_path.string());  // a model that does not run is refused before its weights
  const fs::path generation_path = path / "generation_config.json";
  // Without the file, Transformers takes generation settings out of config.json, where older checkpoints have them.
  generation_config_ =
      file_exists(generation_path)
          ? parse_generation_config(base::read_file(generation_path, kMaxConfigBytes), generation_path.string())
          : parse_generation_config(config_json_, config_path.string());

  // The order is Transformers': the single file wins over an index.
  const fs::path single = path / "model.safetensors";
  const fs::path index = path / "model.safetensors.index.json";
  if (file_exists(single)) {
    shards_.push_back(Safetensors::open(single));
    take_safetensors(config_path.string(), single.string());
  } else if (file_exists(index)) {
    open_shards(index);
    take_safetensors(config_path.string(), index.string());
  } else {
    fail_no_weights(path);
  }
}

void Checkpoint::open_shards(const fs::path& index) {
  const auto shard_of = parse_shard_index(base::read_file(index, kMaxIndexBytes), index.string());
  std::set<std::string> files;
  for (const auto& [name, file] : shard_of) files.insert(file);
  std::vector<std::string> problems;
  std::set<std::string_view> seen;
  for (const std::string& file : files) {
    const fs::path path = index.parent_path() / file;
    if (!file_exists(path))
      fail(ErrorCode::NotFound, "{}: the index names the shard {}, which is not there; download it again",
           index.string(), file);
    shards_.push_back(Safetensors::open(path));
    for (const TensorView& tensor : shards_.back().tensors()) {
      const auto entry = shard_of.find(tensor.name);
      if (entry == shard_of.end()) {
        problems.push_back(fmt::format("{} is in {} and not in the index", tensor.name, file));
      } else if (entry->second != file) {
        problems.push_back(fmt::format("{} is in {}, the index says {}", tensor.name, file, entry->second));
      } else {
        seen.insert(entry->first);
      }
    }
  }
  for (const auto& [name, file] : shard_of) {
    if (seen.count(name) == 0) problems.push_back(fmt::format("{} is not in {}", name, file));
  }
  if (problems.empty()) return;
  constexpr size_t kMaxListed = 20;
  const size_t n_problems = problems.size();
  if (n_problems > kMaxListed) {
    problems.resize(kMaxListed);
    problems.push_back(fmt::format("and {} more", n_problems - kMaxListed));
  }
  fail(ErrorCode::Corrupt, "{}: index and shards disagree: {}", index.string(), fmt::join(problems, "; "));
}

void Checkpoint::take_safetensors(std::string_view config_subject, std::string_view subject) {
  TensorNames names;
  std::vector<FoundTensor> found;
  for (const Safetensors& shard : shards_) {
    file_bytes_ += shard.file_bytes();
    for (const TensorView& tensor : shard.tensors()) {
      names.names.emplace(tensor.name);
      found.push_back({tensor.name, tensor.shape, dtype_name(tensor.dtype), is_weight_type(tensor.dtype)});
    }
  }
  config_ = parse_config(config_json_, config_subject, names);
  check_tensors(found, config_.spec, config_.architecture, subject);
  std::unordered_map<std::string_view, const TensorView*> by_name;
  for (const Safetensors& shard : shards_) {
    for (const TensorView& tensor : shard.tensors()) by_name.emplace(tensor.name, &tensor);
  }
  size_t n_bytes = 0;
  for (const TensorSpec& tensor : config_.spec.tensors) {
    const TensorView& view = *by_name.at(tensor.file_name);
    weights_.push_back({tensor.name, view.dtype, view.shape, view.data});
    if (tensor.arrangement != Arrangement::AsStored) n_bytes += bytes_of(weights_.back());
  }
  if (n_bytes == 0) return;
  memory_ = base::MemoryRegion::allocate(n_bytes, subject);
  std::byte* out = memory_.data();
  for (size_t i = 0; i < weights_.size(); ++i) {
    const TensorSpec& tensor = config_.spec.tensors[i];
    if (tensor.arrangement == Arrangement::AsStored) continue;
    turn(tensor, weights_[i], out);
    weights_[i].data = out;
    out += bytes_of(weights_[i]);
  }
  memory_.make_read_only();
}

void Checkpoint::open_gguf(GgufFile file, size_t n_threads) {
  gguf_ = std::move(file);
  config_ = make_gguf_config(*gguf_);
  GgufWeights loaded = load_gguf_weights(*gguf_, config_, n_threads);
  weights_ = std::move(loaded.weights);
  memory_ = std::move(loaded.memory);
  file_bytes_ = gguf_->file_bytes();
}

}  // namespace kvfork::checkpoint
