// Which files of a repository kvfork reads, and whether a snapshot has them.
//
// Pure functions but for `missing_files`, which looks at the cache. Thread rule: none needed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/cache.h"
#include "kvfork/error.h"
#include "kvfork/hub.h"

namespace kvfork::hub {

inline constexpr std::string_view kConfigFile = "config.json";
inline constexpr std::string_view kWeightsFile = "model.safetensors";
inline constexpr std::string_view kWeightsIndexFile = "model.safetensors.index.json";

/// The small files by name, config.json first.
const std::vector<std::string>& small_file_names();

/// The small files among `listed`; with a GGUF file, the few that go with one.
std::vector<std::string> choose_small_files(const std::vector<std::string>& listed, const PullOptions& options);

/// The shards that a model.safetensors.index.json names, sorted. Throws Error{Corrupt} for malformed JSON and for a
/// name that leads outside the snapshot; `subject` is named in the message.
std::vector<std::string> parse_shard_names(std::string_view index_json, const std::string& subject);

/// All parts of a split GGUF ("x-00001-of-00003.gguf"), or the file alone.
std::vector<std::string> gguf_parts(const std::string& file);

/// What it means that `listed` has neither model.safetensors nor its index: Error{NotFound, Unsupported}. The hint
/// depends on what there is instead.
Error no_weights(const std::string& repo_id, const std::vector<std::string>& listed);

/// How sure a snapshot must be to hold everything.
enum class Need {
  Everything,  ///< all that the commit has of kvfork's files, as far as the cache can tell
  Essentials,  ///< what no model can do without
};

/// Files that the cached snapshot lacks; empty when it will do.
std::vector<std::string> missing_files(const RepoCache& cache, const std::string& commit,
                                       const PullOptions& options, Need need);

}  // namespace kvfork::hub
