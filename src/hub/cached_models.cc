// The models that lie in the shared cache: listing and removing them.
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "hub/cache.h"
#include "hub/names.h"
#include "hub/settings.h"
#include "kvfork/hub.h"

namespace kvfork {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "models--";

std::string repo_id_of(std::string name) {
  name.erase(0, kPrefix.size());
  if (const size_t dashes = name.find("--"); dashes != std::string::npos) name.replace(dashes, 2, "/");
  return name;
}

// Every file once, however many links lead to it, and the newest of their times.
void measure(const fs::path& folder, CachedModel& model) {
  std::set<std::pair<dev_t, ino_t>> seen;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    struct stat status {};
    if (::lstat(it->path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    if (!seen.emplace(status.st_dev, status.st_ino).second) continue;
    model.bytes += static_cast<uint64_t>(status.st_size);
    model.modified = std::max<int64_t>(model.modified, status.st_mtime);
    model.is_complete = model.is_complete && it->path().extension() != ".incomplete";
  }
}

fs::path folder_of(const std::string& repo_id) {
  if (!hub::is_valid_repo_id(repo_id))
    base::fail(ErrorCode::InvalidArgument, "Hub id: expected ORG/NAME, found '{}'", repo_id);
  const hub::Settings settings = hub::Settings::from_environment();
  return hub::RepoCache(settings.cache, repo_id, settings.links).folder();
}

}  // namespace

std::vector<CachedModel> list_cached_models() {
  return base::only_errors([&]() -> std::vector<CachedModel> {
    std::vector<CachedModel> models;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(hub::Settings::from_environment().cache, error)) {
      const std::string name = entry.path().filename().string();
      std::error_code ignored;
      if (!name.starts_with(kPrefix) || !entry.is_directory(ignored)) continue;
      CachedModel model{.repo_id = repo_id_of(name), .folder = entry.path().string()};
      for (const auto& snapshot : fs::directory_iterator(entry.path() / "snapshots", ignored))
        model.commits.push_back(snapshot.path().filename().string());
      measure(entry.path(), model);
      models.push_back(std::move(model));
    }
    std::ranges::sort(models, {}, &CachedModel::repo_id);
    return models;
  });
}

uint64_t remove_cached_model(const std::string& repo_id) {
  return base::only_errors([&]() -> uint64_t {
    const fs::path folder = folder_of(repo_id);
    std::error_code error;
    if (!fs::is_directory(folder, error))
      base::fail(ErrorCode::NotFound, "{}: expected this model in the cache, found no folder {}", repo_id,
                 folder.string());
    CachedModel model;
    measure(folder, model);
    fs::remove_all(folder, error);
    if (error) base::fail(ErrorCode::Io, "{}: cannot remove: {}", folder.string(), error.message());
    fs::remove_all(folder.parent_path() / ".locks" / folder.filename(), error);
    return model.bytes;
  });
}

}  // namespace kvfork
