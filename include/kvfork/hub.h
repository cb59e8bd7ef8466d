// The Hugging Face Hub: fetch a model's files into the cache that Python's huggingface_hub uses.
//
// A pull shares everything with Python: the folder layout, the environment variables (HF_HOME, HF_HUB_CACHE,
// HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE, ... see docs/hub.md), the lock files. What lies whole in the cache is
// never fetched again; what is fetched is verified before it gets its name.
// Thread rule: `pull` may be called from any thread, also at the same time and from other processes. Callbacks
// run on threads of the pull, one at a time, and must not throw. Nothing is printed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvfork {

/// A repository and the version wanted of it.
struct HubRef {
  std::string repo_id;            ///< "ORG/NAME", or "NAME" for the Hub's oldest models
  std::string revision = "main";  ///< branch, tag or commit

  /// Reads "ORG/NAME" or "ORG/NAME@REVISION". Empty when the text breaks the Hub's rules for names, or when the
  /// revision could not be a git ref.
  static std::optional<HubRef> parse(std::string_view text);
};

/// Where a pull stands. Totals grow while the sizes become known.
struct PullProgress {
  std::string file;         ///< the file that just moved, relative to the repository
  uint64_t file_done = 0;   ///< bytes of it in place, those of an earlier, interrupted pull included
  uint64_t file_total = 0;  ///< its size; 0 while unknown
  uint64_t done = 0;        ///< the same over every file of the pull that is not cached
  uint64_t total = 0;
};

/// Which of the files that kvfork reads.
enum class PullFiles {
  All,
  Small,  ///< all but the weights: enough to say whether kvfork can run the model
};

struct PullOptions {
  PullFiles files = PullFiles::All;
  /// Fetch this GGUF file (and its other parts, if it is split) in place of the safetensors checkpoint.
  std::optional<std::string> gguf_file;
  /// Never ask the Hub; the same as HF_HUB_OFFLINE=1.
  bool local_files_only = false;
  /// Files in transfer at the same time, at least 1.
  unsigned max_connections = 4;
  /// Called with the text of config.json before any weight is asked for. Throw an Error to stop the pull there;
  /// it reaches the caller of `pull` unchanged.
  std::function<void(std::string_view config_json)> check_config;
  std::function<void(const PullProgress&)> on_progress;
  /// One sentence that the user should see, such as that a cached copy stands in for an unreachable Hub.
  std::function<void(const std::string&)> on_notice;
};

/// A model in the cache.
struct Snapshot {
  std::string directory;          ///< holds config.json and the rest under their own names
  std::string commit;             ///< the resolved commit
  std::string gguf_path;          ///< the file asked for by gguf_file, or empty
  bool from_cache = false;        ///< the Hub was not asked, or could not be reached
  uint64_t bytes_downloaded = 0;  ///< file contents received by this pull
  std::vector<std::string> files_downloaded;
  /// With PullFiles::Small, when the Hub was asked: why there are no weights that kvfork reads, or empty.
  std::string weights_problem;
};

/// Brings the files of `ref` into the cache, as far as they are not there, and says where they are.
///
/// Makes no request at all when the revision is a commit that is complete in the cache, or when offline. When the
/// Hub cannot be reached, the cached snapshot of the revision stands in, with a notice.
/// Throws Error{InvalidArgument} for a malformed reference or environment variable, {NotFound} for a missing
/// or closed repository, revision or file, {Unsupported} for a checkpoint without safetensors, {Network} for a
/// transfer that failed, {Corrupt} for content that does not match its checksum, {Io} for the disk.
/// After a failure, interruption or kill the cache holds whole files under their names and nothing else; the
/// next pull goes on from there. The access token appears in no message.
Snapshot pull(const HubRef& ref, const PullOptions& options = {});

/// A model's folder in the cache.
struct CachedModel {
  std::string repo_id;               ///< "ORG/NAME"
  std::string folder;                ///< holds all of it
  std::vector<std::string> commits;  ///< with a snapshot
  uint64_t bytes = 0;                ///< on the disk
  int64_t modified = 0;              ///< seconds since 1970 of the newest file
  bool is_complete = true;           ///< no file is half downloaded
};

/// The models in the cache, by name; none where there is no cache. Throws Error{InvalidArgument} for a malformed
/// environment variable.
std::vector<CachedModel> list_cached_models();

/// Deletes a model from the cache, all of its revisions, and returns the bytes that it took. Throws Error{NotFound}
/// for a model that is not there, {Io} where the system refuses, {InvalidArgument} for what is no Hub id.
uint64_t remove_cached_model(const std::string& repo_id);

}  // namespace kvfork
