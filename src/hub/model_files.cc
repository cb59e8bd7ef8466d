// The files of a repository that kvfork reads, and which of them a snapshot lacks.
#include "hub/model_files.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/json_tree.h"
#include "base/mapped_file.h"
#include "hub/names.h"
#include "hub/reply_errors.h"

namespace kvfork::hub {
namespace {

constexpr std::string_view kTemplateFolder = "additional_chat_templates/";
constexpr size_t kMaxIndexBytes = 64 << 20;
constexpr size_t kMaxNamesShown = 8;
constexpr size_t kMaxGgufParts = 1000;

bool holds(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string join_names(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size() && i < kMaxNamesShown; ++i) out += (i ? ", " : "") + printable(names[i]);
  return names.size() > kMaxNamesShown ? out + ", ..." : out;
}

std::vector<std::string> with_suffix(const std::vector<std::string>& names, std::string_view suffix) {
  std::vector<std::string> out;
  std::copy_if(names.begin(), names.end(), std::back_inserter(out),
               [&](const std::string& n) { return n.ends_with(suffix); });
  return out;
}

std::vector<std::string> missing_weights(const RepoCache& cache, const std::string& commit) {
  if (cache.has_file(commit, kWeightsFile)) return {};
  if (!cache.has_file(commit, kWeightsIndexFile)) return {std::string(kWeightsFile)};
  const auto index = cache.file_path(commit, kWeightsIndexFile);
  std::vector<std::string> missing = parse_shard_names(base::read_file(index, kMaxIndexBytes), index.string());
  std::erase_if(missing, [&](const std::string& shard) { return cache.has_file(commit, shard); });
  return missing;
}

}  // namespace

const std::vector<std::string>& small_file_names() {
  static const std::vector<std::string> names = {
      std::string(kConfigFile),  "generation_config.json", "tokenizer.json",      "tokenizer_config.json",
      "special_tokens_map.json", "added_tokens.json",      "vocab.json",          "merges.txt",
      "chat_template.jinja",     "chat_template.json",     "adapter_config.json",
  };
  return names;
}

std::vector<std::string> choose_small_files(const std::vector<std::string>& listed, const PullOptions& options) {
  std::vector<std::string> chosen;
  if (options.gguf_file) {
    // The tokenizer, template and sizes are in the GGUF itself; generation defaults are not.
    if (holds(listed, "generation_config.json")) chosen.push_back("generation_config.json");
    return chosen;
  }
  for (const std::string& name : small_file_names()) {
    if (holds(listed, name)) chosen.push_back(name);
  }
  for (const std::string& name : listed) {
    if (name.starts_with(kTemplateFolder) && name.ends_with(".jinja")) chosen.push_back(name);
  }
  if (!holds(listed, kWeightsFile) && holds(listed, kWeightsIndexFile))
    chosen.push_back(std::string(kWeightsIndexFile));
  return chosen;
}

std::vector<std::string> parse_shard_names(std::string_view index_json, const std::string& subject) {
  const auto index = base::JsonTree::try_parse(std::string(index_json));
  const auto map = index && index->root().is_object() ? index->root().find("weight_map") : std::nullopt;
  if (!map || !map->is_object()) {
    base::fail(ErrorCode::Corrupt, "{}: expected a JSON object with \"weight_map\", found something else", subject);
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->members()) {
    if (!file.is_string())
      base::fail(ErrorCode::Corrupt, "{}: expected a file name for tensor '{}'", subject,
                 printable(std::string(tensor)));
    names.emplace(file.as_string());
  }
  for (const std::string& name : names) {
    if (!stays_inside(name)) {
      base::fail(ErrorCode::Corrupt, "{}: expected file names inside the repository, found '{}'", subject,
                 printable(name));
    }
  }
  if (names.empty()) base::fail(ErrorCode::Corrupt, "{}: expected at least one tensor in \"weight_map\"", subject);
  return {names.begin(), names.end()};
}

std::vector<std::string> gguf_parts(const std::string& file) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";
  if (file.size() <= kPattern.size()) return {file};
  const std::string stem = file.substr(0, file.size() - kPattern.size());
  const std::string tail = file.substr(stem.size());
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const bool digit = tail[i] >= '0' && tail[i] <= '9';
    if (kPattern[i] == '0' ? !digit : tail[i] != kPattern[i]) return {file};
  }
  const size_t n_parts = std::stoul(tail.substr(10, 5));
  if (n_parts == 0 || n_parts > kMaxGgufParts) return {file};
  std::vector<std::string> parts;
  for (size_t part = 1; part <= n_parts; ++part)
    parts.push_back(fmt::format("{}-{:05}-of-{:05}.gguf", stem, part, n_parts));
  return parts;
}

Error no_weights(const std::string& repo_id, const std::vector<std::string>& listed) {
  const auto gguf = with_suffix(listed, ".gguf");
  if (!gguf.empty()) {
    return {ErrorCode::Unsupported,
            fmt::format("{}: expected model.safetensors, found GGUF files; choose one with --gguf: {}", repo_id,
                        join_names(gguf))};
  }
  auto pickles = with_suffix(listed, ".bin");
  for (const char* suffix : {".pt", ".pth"}) {
    for (std::string& name : with_suffix(listed, suffix)) pickles.push_back(std::move(name));
  }
  if (!pickles.empty()) {
    return {
        ErrorCode::Unsupported,
        fmt::format("{}: expected model.safetensors, found only {}, which are Python pickles: they can run code "
                    "when opened, so kvfork never reads them; convert once with Transformers: "
                    "AutoModelForCausalLM.from_pretrained('{}').save_pretrained('DIR'), then use DIR",
                    repo_id, join_names(pickles), repo_id)};
  }
  const auto other = with_suffix(listed, ".safetensors");
  return {ErrorCode::NotFound,
          fmt::format("{}: expected model.safetensors or model.safetensors.index.json, found {}; is this a "
                      "Transformers model?",
                      repo_id, other.empty() ? "no weights" : join_names(other))};
}

std::vector<std::string> missing_files(const RepoCache& cache, const std::string& commit,
                                       const PullOptions& options, Need need) {
  std::vector<std::string> missing;
  if (options.gguf_file) {
    if (options.files == PullFiles::Small) return {};
    missing = gguf_parts(*options.gguf_file);
    std::erase_if(missing, [&](const std::string& part) { return cache.has_file(commit, part); });
    return missing;
  }
  if (!cache.has_file(commit, kConfigFile)) missing.push_back(std::string(kConfigFile));
  if (need == Need::Everything) {
    if (!cache.has_file(commit, "tokenizer.json")) missing.push_back("tokenizer.json");
    for (const char* name : {"generation_config.json", "tokenizer_config.json"}) {
      if (!cache.has_file(commit, name) && !cache.is_known_absent(commit, name)) missing.push_back(name);
    }
  }
  if (options.files == PullFiles::All) {
    for (std::string& name : missing_weights(cache, commit)) missing.push_back(std::move(name));
  }
  return missing;
}

}  // namespace kvfork::hub
