// The order of a pull: resolve the revision, fetch small files, check the config, fetch weights, write the ref.
#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/mapped_file.h"
#include "hub/cache.h"
#include "hub/client.h"
#include "hub/fetch.h"
#include "hub/model_files.h"
#include "hub/names.h"
#include "hub/reply_errors.h"
#include "hub/settings.h"
#include "kvfork/hub.h"

namespace kvfork {
namespace hub {
namespace {

constexpr Milliseconds kMaxStall{70000};
constexpr Milliseconds kStallBeyondTimeout{5000};
constexpr size_t kMaxConfigBytes = 16 << 20;
constexpr size_t kMaxIndexBytes = 64 << 20;
constexpr int kAttempts = 6;
constexpr int kAttemptsWithCache = 2;

// Sums up what the files in transfer report and hands it to the caller, one call at a time.
class ProgressBoard {
 public:
  explicit ProgressBoard(const PullOptions& options) : options_(options) {}

  void announce(const std::string& file, uint64_t total) {
    const std::lock_guard lock(mutex_);
    files_[file].total = total;
  }

  void update(const std::string& file, uint64_t done, uint64_t total) {
    const std::lock_guard lock(mutex_);
    files_[file] = {done, total};
    if (!options_.on_progress) return;
    PullProgress progress{.file = file, .file_done = done, .file_total = total};
    for (const auto& [name, state] : files_) {
      progress.done += state.done;
      progress.total += state.total;
    }
    options_.on_progress(progress);
  }

 private:
  struct State {
    uint64_t done = 0;
    uint64_t total = 0;
  };
  const PullOptions& options_;
  std::mutex mutex_;
  std::map<std::string, State> files_;
};

// Runs work(client, item) for every item on up to `n_threads` threads. The first failure stops the others and is
// rethrown.
template <typename Work>
void for_each_item(Session& session, unsigned n_threads, const std::vector<std::string>& items, const Work& work) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto run = [&] {
    const SigpipeGuard no_sigpipe;
    try {
      Client client(session);
      for (size_t i = next++; i < items.size() && !session.stall_timer.stopped(); i = next++)
        work(client, items[i]);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      session.stall_timer.stop();
    }
    ++session.idle_connections;
  };
  std::vector<std::thread> threads;
  const size_t n = std::min<size_t>(std::max(1U, n_threads), items.size());
  session.idle_connections = static_cast<int>(std::max(1U, n_threads) - n);
  for (size_t i = 0; i < n; ++i) threads.emplace_back(run);
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

class Pull {
 public:
  Pull(const HubRef& ref, const PullOptions& options, const Settings& settings)
      : ref_(ref),
        options_(options),
        settings_(settings),
        cache_(settings.cache, ref.repo_id, settings.links),
        stall_timer_(
            std::max(kMaxStall, std::max(settings.etag_timeout, settings.download_timeout) + kStallBeyondTimeout)),
        session_{settings, stall_timer_, ref.repo_id, ref.revision},
        board_(options) {}

  Snapshot run() {
    if (settings_.offline || options_.local_files_only) return take_cached("offline");
    const auto cached_commit = cache_.find_commit(ref_.revision);
    if (is_commit(ref_.revision) && missing_files(cache_, ref_.revision, options_, Need::Everything).empty()) {
      return finish(ref_.revision, true);
    }
    const bool can_stand_in =
        cached_commit && missing_files(cache_, *cached_commit, options_, Need::Essentials).empty();
    session_.max_attempts = can_stand_in ? kAttemptsWithCache : kAttempts;
    RepoListing listing;
    try {
      listing = resolve();
    } catch (const HubError& error) {
      if (!can_stand_in || !error.cached_may_stand_in()) throw;
      return take_cached(error.what());
    }
    session_.max_attempts = kAttempts;
    fetch(listing);
    return finish(listing.commit, false);
  }

 private:
  void notice(const std::string& text) const {
    if (options_.on_notice) options_.on_notice(text);
  }

  // The snapshot as it lies in the cache, because `reason`.
  Snapshot take_cached(const std::string& reason) const {
    const std::string subject = ref_.repo_id + "@" + ref_.revision;
    const auto commit = cache_.find_commit(ref_.revision);
    if (!commit || !std::filesystem::is_directory(cache_.snapshot_path(*commit))) {
      base::fail(
          ErrorCode::NotFound,
          "{}: expected a cached copy, because kvfork is offline, found none in {}; unset HF_HUB_OFFLINE and "
          "TRANSFORMERS_OFFLINE, or pull the model once while online",
          subject, cache_.cache().string());
    }
    const auto missing = missing_files(cache_, *commit, options_, Need::Essentials);
    if (!missing.empty()) {
      base::fail(ErrorCode::NotFound,
                 "{}: expected a complete cached copy, because kvfork is offline, found {} of commit {} missing; "
                 "pull the model "
                 "once while online",
                 subject, fmt::join(missing, ", "), *commit);
    }
    notice(fmt::format("{}: {}: using the cached copy of commit {}", subject, reason, *commit));
    return finish(*commit, true);
  }

  Snapshot finish(const std::string& commit, bool from_cache) const {
    Snapshot snapshot{.directory = cache_.snapshot_path(commit).string(),
                      .commit = commit,
                      .gguf_path = {},
                      .from_cache = from_cache,
                      .bytes_downloaded = bytes_downloaded_,
                      .files_downloaded = files_downloaded_,
                      .weights_problem = weights_problem_};
    if (options_.gguf_file && options_.files == PullFiles::All) {
      snapshot.gguf_path = cache_.file_path(commit, gguf_parts(*options_.gguf_file).front()).string();
    }
    std::sort(snapshot.files_downloaded.begin(), snapshot.files_downloaded.end());
    return snapshot;
  }

  // What the revision is now and holds.
  RepoListing resolve() {
    RepoListing listing;
    for_each_item(session_, 1, {ref_.revision}, [&](Client& client, const std::string&) {
      auto answer = client.list_repo();
      listing = answer && !answer->files.empty() ? std::move(*answer) : probe(client);
    });
    if (!stays_inside(listing.commit) || listing.commit.find('/') != std::string::npos) {
      base::fail(ErrorCode::Corrupt, "{}: expected a commit, found '{}'", ref_.repo_id, printable(listing.commit));
    }
    // A name that no file system takes cannot be one of those that kvfork reads.
    std::erase_if(listing.files, is_too_long);
    for (const std::string& name : listing.files) {
      if (!stays_inside(name)) {
        base::fail(ErrorCode::Corrupt, "{}: expected file names inside the repository, found '{}'", ref_.repo_id,
                   printable(name));
      }
    }
    return listing;
  }

  // For mirrors that serve files but no listing: asks for each file that kvfork could use.
  RepoListing probe(Client& client) {
    RepoListing listing;
    std::vector<std::string> names = small_file_names();
    names.emplace_back(kWeightsFile);
    names.emplace_back(kWeightsIndexFile);
    if (options_.gguf_file) names = gguf_parts(*options_.gguf_file);
    for (const std::string& name : names) {
      if (name == kWeightsIndexFile && !listing.files.empty() && listing.files.back() == kWeightsFile) continue;
      const auto found = client.find_file(ref_.revision, name);
      if (!found) continue;
      listing.commit = found->commit;
      listing.files.push_back(name);
    }
    if (listing.files.empty()) {
      base::fail(ErrorCode::NotFound,
                 "{}@{}: expected a model repository, found none of its files at {}; check the spelling "
                 "and the revision",
                 ref_.repo_id, ref_.revision, settings_.endpoint);
    }
    return listing;
  }

  void fetch(const RepoListing& listing) {
    const std::string& commit = listing.commit;
    check_gguf(listing);
    std::vector<std::string> small = choose_small_files(listing.files, options_);
    if (!options_.gguf_file) fetch_config(listing);
    fetch_files(commit, small);
    if (!options_.gguf_file) {
      for (const std::string& name : small_file_names()) {
        if (std::find(listing.files.begin(), listing.files.end(), name) == listing.files.end())
          cache_.note_absent(commit, name);
      }
    }
    if (options_.files == PullFiles::All) fetch_files(commit, weights(listing));
    if (!files_downloaded_.empty()) cache_.sync_names(commit);
    // Last, so that the ref goes on naming a complete snapshot until there is a newer one.
    if (options_.files == PullFiles::All || !cache_.find_commit(ref_.revision)) write_ref(commit);
  }

  // A cache that may only be read is no reason to fail: what was asked for is there.
  void write_ref(const std::string& commit) const {
    try {
      cache_.write_ref(ref_.revision, commit);
    } catch (const Error& error) {
      notice(error.what());
    }
  }

  void check_gguf(const RepoListing& listing) const {
    if (!options_.gguf_file) return;
    for (const std::string& part : gguf_parts(*options_.gguf_file)) {
      if (std::find(listing.files.begin(), listing.files.end(), part) != listing.files.end()) continue;
      std::vector<std::string> others;
      std::copy_if(listing.files.begin(), listing.files.end(), std::back_inserter(others),
                   [](const std::string& name) { return name.ends_with(".gguf"); });
      base::fail(ErrorCode::NotFound, "{}: expected the file {}, found {}", ref_.repo_id, part,
                 others.empty() ? "no GGUF files" : fmt::format("{}", fmt::join(others, ", ")));
    }
  }

  // config.json goes first: it says whether the rest is worth fetching.
  void fetch_config(const RepoListing& listing) {
    if (std::find(listing.files.begin(), listing.files.end(), kConfigFile) == listing.files.end()) {
      base::fail(ErrorCode::NotFound, "{}: expected config.json, found none; is this a Transformers model?{}",
                 ref_.repo_id,
                 std::any_of(listing.files.begin(), listing.files.end(),
                             [](const auto& n) { return n.ends_with(".gguf"); })
                     ? " It holds GGUF files: choose one with --gguf"
                     : "");
    }
    fetch_files(listing.commit, {std::string(kConfigFile)});
    if (options_.check_config) {
      options_.check_config(base::read_file(cache_.file_path(listing.commit, kConfigFile), kMaxConfigBytes));
    }
    const bool has_weights = std::any_of(listing.files.begin(), listing.files.end(), [](const std::string& name) {
      return name == kWeightsFile || name == kWeightsIndexFile;
    });
    if (has_weights) return;
    const Error problem = no_weights(ref_.repo_id, listing.files);
    if (options_.files == PullFiles::All) throw problem;
    weights_problem_ = problem.what();
  }

  std::vector<std::string> weights(const RepoListing& listing) const {
    if (options_.gguf_file) return gguf_parts(*options_.gguf_file);
    const auto& files = listing.files;
    if (std::find(files.begin(), files.end(), kWeightsFile) != files.end()) return {std::string(kWeightsFile)};
    const auto index = cache_.file_path(listing.commit, kWeightsIndexFile);
    return parse_shard_names(base::read_file(index, kMaxIndexBytes),
                             ref_.repo_id + ": " + std::string(kWeightsIndexFile));
  }

  // Asks for the sizes of all first, so that a full disk shows before the first byte.
  void fetch_files(const std::string& commit, std::vector<std::string> files) {
    std::erase_if(files, [&](const std::string& file) { return cache_.has_file(commit, file); });
    if (files.empty()) return;
    std::mutex mutex;
    std::map<std::string, FileMetadata> metadata;
    for_each_item(session_, options_.max_connections, files, [&](Client& client, const std::string& file) {
      auto found = client.find_file(commit, file);
      if (!found)
        base::fail(ErrorCode::NotFound, "{}: expected the file {}, found none at commit {}", ref_.repo_id, file,
                   commit);
      board_.announce(file, found->size.value_or(0));
      const std::lock_guard lock(mutex);
      metadata.emplace(file, std::move(*found));
    });
    cache_.make_folders(commit);
    uint64_t n_bytes = 0;
    for (const auto& [file, found] : metadata) n_bytes += bytes_missing(cache_, found);
    cache_.check_space(n_bytes);
    for_each_item(session_, options_.max_connections, files, [&](Client& client, const std::string& file) {
      const uint64_t received =
          fetch_file(client, cache_, {.commit = commit, .file = file, .metadata = metadata.at(file)},
                     [&](uint64_t done, uint64_t total) { board_.update(file, done, total); });
      const std::lock_guard lock(mutex);
      bytes_downloaded_ += received;
      if (received > 0) files_downloaded_.push_back(file);
    });
  }

  const HubRef& ref_;
  const PullOptions& options_;
  const Settings& settings_;
  RepoCache cache_;
  StallTimer stall_timer_;
  Session session_;
  ProgressBoard board_;
  uint64_t bytes_downloaded_ = 0;
  std::vector<std::string> files_downloaded_;
  std::string weights_problem_;
};

std::string without_token(std::string text, const std::optional<std::string>& token) {
  if (!token) return text;
  for (size_t at = 0; (at = text.find(*token, at)) != std::string::npos;)
    text.replace(at, token->size(), "<token>");
  return text;
}

}  // namespace
}  // namespace hub

Snapshot pull(const HubRef& ref, const PullOptions& options) {
  return base::only_errors([&]() -> Snapshot {
    if (!hub::is_valid_repo_id(ref.repo_id) || !hub::stays_inside(ref.revision)) {
      base::fail(ErrorCode::InvalidArgument, "Hub id: expected ORG/NAME or ORG/NAME@REVISION, found '{}@{}'",
                 ref.repo_id, ref.revision);
    }
    if (options.gguf_file && !hub::stays_inside(*options.gguf_file)) {
      base::fail(ErrorCode::InvalidArgument, "--gguf: expected a file inside the repository, found '{}'",
                 *options.gguf_file);
    }
    const hub::Settings settings = hub::Settings::from_environment();
    PullOptions clean = options;
    if (options.on_notice) {
      clean.on_notice = [&](const std::string& text) {
        options.on_notice(hub::without_token(text, settings.token));
      };
    }
    try {
      return hub::Pull(ref, clean, settings).run();
    } catch (const Error& error) {
      throw Error(error.code(), hub::without_token(error.what(), settings.token));
    }
  });
}

}  // namespace kvfork
