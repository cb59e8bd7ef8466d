// The check of the tensors that a checkpoint holds against those that a model needs.
#include "checkpoint/weight.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"

namespace kvfork::checkpoint {
namespace {

constexpr size_t kMaxListed = 20;

struct Problems {
  std::vector<std::string> lines;
  bool has_other_than_type = false;

  void add(std::string line, bool is_type = false) {
    lines.push_back(std::move(line));
    has_other_than_type |= !is_type;
  }
};

void check_one(const FoundTensor& tensor, const TensorSpec& expected, Problems& problems) {
  if (tensor.shape != expected.shape)
    problems.add(fmt::format("{}: expected shape {}, found {}", tensor.file_name, describe_shape(expected.shape),
                             describe_shape(tensor.shape)));
  if (!tensor.is_supported_type)
    problems.add(fmt::format("{}: {} is not supported as a weight type", tensor.file_name, tensor.type), true);
}

// The layer's number in a name, or 0.
size_t layer_of(std::string_view name) {
  for (const std::string_view before : {"layers.", "blk."}) {
    const size_t at = name.find(before);
    if (at == std::string_view::npos) continue;
    size_t number = 0;
    const std::string_view digits = name.substr(at + before.size());
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return number;
  }
  return 0;
}

}  // namespace

bool is_ignorable_tensor(std::string_view file_name, const ModelSpec& spec) {
  const auto has = [file_name](std::string_view part) { return file_name.find(part) != std::string_view::npos; };
  const bool is_tied = spec.head.tensor == spec.embedding.tensor;
  if (is_tied && file_name.ends_with("lm_head.weight")) return true;
  // Buffers of older files: frequencies, and masks of attention.
  if (file_name.ends_with("rotary_emb.inv_freq") || file_name.ends_with(".attn.bias") ||
      file_name.ends_with(".attn.masked_bias") || file_name.ends_with("attention.masked_bias"))
    return true;
  if (file_name.starts_with("rope_f")) return true;  // of a GGUF file: read into the rotation
  if (spec.has_other_parts && (has("vision") || has("visual") || has("audio") || has("multi_modal_projector")))
    return true;
  if (file_name.starts_with("mtp.")) return true;
  return spec.has_draft_layers && layer_of(file_name) >= spec.layers.size();
}

void check_tensors(const std::vector<FoundTensor>& found, const ModelSpec& spec, std::string_view model,
                   std::string_view subject) {
  std::unordered_map<std::string_view, const FoundTensor*> by_name;
  for (const FoundTensor& tensor : found) by_name.emplace(tensor.file_name, &tensor);

  Problems problems;
  std::unordered_set<std::string_view> needed;
  for (const TensorSpec& tensor : spec.tensors) {
    needed.insert(tensor.file_name);
    const auto match = by_name.find(tensor.file_name);
    if (match == by_name.end()) {
      problems.add(fmt::format("{} {} is missing", tensor.name, describe_shape(tensor.shape)));
    } else {
      check_one(*match->second, tensor, problems);
    }
  }
  for (const FoundTensor& tensor : found) {
    if (needed.count(tensor.file_name) == 0 && !is_ignorable_tensor(tensor.file_name, spec))
      problems.add(fmt::format("{} is unexpected", tensor.file_name));
  }
  if (problems.lines.empty()) return;

  const size_t n_problems = problems.lines.size();
  if (n_problems > kMaxListed) {
    problems.lines.resize(kMaxListed);
    problems.lines.push_back(fmt::format("and {} more", n_problems - kMaxListed));
  }
  base::fail(problems.has_other_than_type ? ErrorCode::Corrupt : ErrorCode::Unsupported,
             "{}: the tensors do not fit the config of a {}: {}", subject, model, fmt::join(problems.lines, "; "));
}

}  // namespace kvfork::checkpoint
