// Finds and opens the files of a child's parents, up to the one that starts at position 0.

#include "saved/context_chain.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"

namespace kvfork::saved {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNesting = 1000;

ContextChain broken(Error problem, std::string file = "") {
  return {.files = {}, .problem = std::move(problem), .problem_file = std::move(file)};
}

void expect_continued(const ContextFile& child, const ContextFile& parent) {
  const size_t n_shared = child.header().first_block * kernels::kBlockTokens;
  const auto& ids = parent.ids();
  if (ids.size() < n_shared || !std::equal(ids.begin(), ids.begin() + n_shared, child.ids().begin()))
    base::fail(ErrorCode::Corrupt, "{}: its ids do not continue those of its parent {}", child.path(),
               parent.path());
}

// The regular files of a folder, sorted: the same folder gives the same answer. A folder that cannot be listed has
// none.
std::vector<fs::path> list_files(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    if (entry->is_regular_file(unknown)) files.push_back(entry->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class Search {
 public:
  explicit Search(const AcceptAncestor& accept) : accept_(accept) {}

  ContextChain follow(std::shared_ptr<ContextFile> file, const std::string& given, size_t depth) {
    ContextChain chain{.files = {std::move(file)}, .problem = {}, .problem_file = {}};
    const ContextFile& child = *chain.files[0];
    if (child.header().parent_id.empty()) return chain;
    ContextChain above = given.empty() ? look_beside(child, depth) : open_given(child, given, depth);
    chain.files.insert(chain.files.end(), above.files.begin(), above.files.end());
    chain.problem = std::move(above.problem);
    chain.problem_file = std::move(above.problem_file);
    return chain;
  }

 private:
  ContextChain open_given(const ContextFile& child, const std::string& given, size_t depth) {
    try {
      const auto file = ContextFile::open(given);
      if (file->header().id != child.header().parent_id)
        base::fail(ErrorCode::InvalidArgument, "{}: parent: expected the id {}, found {} in {}", child.path(),
                   child.header().parent_id, file->header().id, given);
      return take(child, file, depth);
    } catch (const Error& error) {
      return broken(error, error.code() == ErrorCode::NotFound ? "" : given);
    }
  }

  ContextChain look_beside(const ContextFile& child, size_t depth) {
    const std::string& id = child.header().parent_id;
    const fs::path directory = fs::absolute(child.path()).parent_path();
    // A name, not a path: a file must not send the reader elsewhere.
    const fs::path name = fs::path(child.header().parent_file).filename();
    std::optional<ContextChain> first;  // of those that cannot be used
    const char* renamed = "";
    if (!name.empty()) {
      try {
        const auto file = ContextFile::open(directory / name);
        if (file->header().id == id) {
          ContextChain chain = take(child, file, depth);
          if (!chain.problem) return chain;
          first = std::move(chain);
        } else {
          renamed = ", which is another context now";
        }
      } catch (const Error& error) {
        if (error.code() != ErrorCode::NotFound) first = broken(error, (directory / name).string());
      }
    }
    for (const fs::path& path : files_with_id(directory, id)) {
      if (path.filename() == name) continue;
      const auto file = open_with_id(path, id);
      if (file == nullptr) continue;
      ContextChain chain = take(child, file, depth);
      if (!chain.problem) return chain;
      if (!first) first = std::move(chain);
    }
    if (first) return report(child, std::move(*first), depth);
    const std::string called = name.empty() ? "" : fmt::format(", once called {}", name.string());
    return broken(
        Error(ErrorCode::InvalidArgument,
              fmt::format("{}: parent: expected a context file with the id {} beside it{}{}, found none{}",
                          child.path(), id, called, renamed, hint(depth))));
  }

  using FilesById = std::map<std::string, std::vector<fs::path>>;

  // Every file of a folder is opened once for all the parents that are looked for there.
  std::vector<fs::path> files_with_id(const fs::path& directory, const std::string& id) {
    const auto [place, is_new] = folders_.try_emplace(directory);
    FilesById& files = place->second;
    if (is_new) {
      for (const fs::path& path : list_files(directory)) {
        try {
          files[ContextFile::open(path)->header().id].push_back(path);
        } catch (const Error&) {  // no saved context
        }
      }
    }
    const auto found = files.find(id);
    return found == files.end() ? std::vector<fs::path>() : found->second;
  }

  // The file if it is a saved context with this id, as far as its header says.
  static std::shared_ptr<ContextFile> open_with_id(const fs::path& path, const std::string& id) {
    try {
      auto file = ContextFile::open(path);
      return file->header().id == id ? file : nullptr;
    } catch (const Error&) {
      return nullptr;
    }
  }

  // A file that failed fails again, and one that is being looked at is no ancestor of itself.
  ContextChain take(const ContextFile& child, const std::shared_ptr<ContextFile>& file, size_t depth) {
    const std::string& path = file->path();
    if (depth == kMaxNesting)
      return broken(Error(ErrorCode::Limit, fmt::format("{}: expected at most {} parents", path, kMaxNesting)),
                    path);
    if (!tried_.insert(path).second)
      return broken(Error(ErrorCode::Corrupt, fmt::format("{}: it was tried already, and cannot be used", path)),
                    path);
    try {
      expect_continued(child, *file);
      accept_(*file);
    } catch (const Error& error) {
      return broken(error, path);
    }
    ContextChain chain = follow(file, "", depth + 1);
    if (!chain.problem) tried_.erase(path);
    return chain;
  }

  // A problem further up says itself which file it is about.
  static ContextChain report(const ContextFile& child, ContextChain chain, size_t depth) {
    if (!chain.files.empty()) return chain;
    chain.problem =
        Error(chain.problem->code(),
              fmt::format("{}: parent: {}; expected another file with the id {} beside it, found none{}",
                          child.path(), chain.problem->what(), child.header().parent_id, hint(depth)));
    return chain;
  }

  static const char* hint(size_t depth) { return depth == 0 ? "; give it with --parent" : ""; }

  const AcceptAncestor& accept_;
  std::set<std::string> tried_;
  std::map<fs::path, FilesById> folders_;
};

}  // namespace

ContextChain find_ancestors(std::shared_ptr<ContextFile> file, const std::string& parent,
                            const AcceptAncestor& accept) {
  return Search(accept).follow(std::move(file), parent, 0);
}

}  // namespace kvfork::saved
