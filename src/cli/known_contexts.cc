// Reading and writing the list of saved contexts.
#include "cli/known_contexts.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/cache_folder.h"
#include "base/new_file.h"

namespace kvfork::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostRemembered = 1000;

std::optional<fs::path> list_path() {
  auto path = base::cache_folder();
  if (path) *path /= "contexts";
  return path;
}

}  // namespace

std::vector<std::string> known_contexts() {
  std::vector<std::string> paths;
  const auto list = list_path();
  std::ifstream file(list.value_or(""));
  for (std::string line; std::getline(file, line);) {
    std::error_code error;
    if (fs::is_regular_file(line, error)) paths.push_back(line);
  }
  return paths;
}

void remember_context(const std::string& path) noexcept {
  try {
    const auto list = list_path();
    const std::string whole = fs::absolute(path).lexically_normal().string();
    if (!list || whole.find('\n') != std::string::npos) return;
    std::vector<std::string> paths = known_contexts();
    std::erase(paths, whole);
    paths.push_back(whole);
    if (paths.size() > kMostRemembered) paths.erase(paths.begin());
    fs::create_directories(list->parent_path());
    base::NewFile file = base::NewFile::create(*list, 0);
    for (const std::string& line : paths) file.write(line + "\n");
    file.commit();
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace kvfork::cli
