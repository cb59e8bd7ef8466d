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

// A child whose parent is being looked for, and what has been tried.
struct Level {
  std::shared_ptr<ContextFile> child;
  bool has_listed = false;              // candidates are those of the whole folder
  std::vector<std::string> candidates;  // files, the best first
  size_t next = 0;
  const char* renamed = "";
  std::optional<ContextChain> first;  // of the candidates that cannot be used: as far as it went
};

// Depth first, without recursion: a chain may be longer than a thread's stack is deep.
class Search {
 public:
  Search(const AcceptAncestor& accept, const std::string& given) : accept_(accept), given_(given) {}

  ContextChain run(std::shared_ptr<ContextFile> file) {
    enter(std::move(file));
    while (true) {
      const Level& level = levels_.back();
      if (level.child->header().parent_id.empty()) return whole_chain();
      if (level.next < level.candidates.size()) {
        try_next();
      } else if (!level.has_listed && !is_given()) {
        list_folder();
      } else if (ContextChain chain = leave(); levels_.empty()) {
        return chain;
      } else if (!levels_.back().first) {
        levels_.back().first = std::move(chain);
      }
    }
  }

 private:
  // Whether the parent of the last level's child was named by the caller.
  bool is_given() const { return levels_.size() == 1 && !given_.empty(); }

  void enter(std::shared_ptr<ContextFile> child) {
    Level& level = levels_.emplace_back(Level{.child = std::move(child)});
    const std::string name = parent_name(*level.child);
    if (is_given())
      level.candidates.push_back(given_);
    else if (!name.empty())
      level.candidates.push_back((directory_of(*level.child) / name).string());
  }

  ContextChain whole_chain() {
    ContextChain chain{.files = {}, .problem = {}, .problem_file = {}};
    for (Level& level : levels_) chain.files.push_back(std::move(level.child));
    return chain;
  }

  // Opens the last level's next candidate, which becomes a level if it can be the child's parent.
  void try_next() {
    Level& level = levels_.back();
    const std::string path = level.candidates[level.next++];
    const std::string& id = level.child->header().parent_id;
    std::shared_ptr<ContextFile> file;
    try {
      file = ContextFile::open(path);
      if (file->header().id != id) {
        if (is_given())
          base::fail(ErrorCode::InvalidArgument, "{}: parent: expected the id {}, found {} in {}",
                     level.child->path(), id, file->header().id, path);
        if (!level.has_listed) level.renamed = ", which is another context now";
        return;
      }
    } catch (const Error& error) {
      if (is_given() && error.code() == ErrorCode::NotFound) return keep_first(broken(error));
      if (is_given() || (!level.has_listed && error.code() != ErrorCode::NotFound)) keep_first(broken(error, path));
      return;
    }
    try {
      expect_usable(*level.child, *file);
    } catch (const Error& error) {
      return keep_first(broken(error, file->path()));
    }
    enter(std::move(file));
  }

  // A file that failed fails again, and one that is being looked at is no ancestor of itself.
  void expect_usable(const ContextFile& child, const ContextFile& file) {
    const std::string& path = file.path();
    if (levels_.size() > kMaxNesting)
      base::fail(ErrorCode::Limit, "{}: expected at most {} parents", path, kMaxNesting);
    if (!tried_.insert(path).second)
      base::fail(ErrorCode::Corrupt, "{}: it was tried already, and cannot be used", path);
    expect_continued(child, file);
    accept_(file);
  }

  void keep_first(ContextChain chain) {
    if (!levels_.back().first) levels_.back().first = std::move(chain);
  }

  void list_folder() {
    Level& level = levels_.back();
    level.has_listed = true;
    level.candidates.clear();
    level.next = 0;
    const std::string name = parent_name(*level.child);
    for (const fs::path& path : files_with_id(directory_of(*level.child), level.child->header().parent_id)) {
      if (path.filename() != name) level.candidates.push_back(path.string());
    }
  }

  // The last level's child has no parent that can be used: it and what was found of one.
  ContextChain leave() {
    const bool given = is_given();
    Level level = std::move(levels_.back());
    levels_.pop_back();
    ContextChain above = level.first && given ? std::move(*level.first) : report(level);
    above.files.insert(above.files.begin(), std::move(level.child));
    return above;
  }

  // A problem further up says itself which file it is about.
  ContextChain report(Level& level) const {
    const ContextFile& child = *level.child;
    const std::string& id = child.header().parent_id;
    const char* hint = levels_.empty() ? "; give it with --parent" : "";
    if (!level.first) {
      const std::string name = parent_name(child);
      return broken(
          Error(ErrorCode::InvalidArgument,
                fmt::format("{}: parent: expected a context file with the id {} beside it{}{}, found none{}",
                            child.path(), id, name.empty() ? "" : ", once called " + name, level.renamed, hint)));
    }
    ContextChain chain = std::move(*level.first);
    if (!chain.files.empty()) return chain;
    chain.problem =
        Error(chain.problem->code(),
              fmt::format("{}: parent: {}; expected another file with the id {} beside it, found none{}",
                          child.path(), chain.problem->what(), id, hint));
    return chain;
  }

  static fs::path directory_of(const ContextFile& child) { return fs::absolute(child.path()).parent_path(); }
  // A name, not a path: a file must not send the reader elsewhere.
  static std::string parent_name(const ContextFile& child) {
    return fs::path(child.header().parent_file).filename().string();
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

  const AcceptAncestor& accept_;
  const std::string& given_;
  std::vector<Level> levels_;  // from the child on, each the parent of the one before
  std::set<std::string> tried_;
  std::map<fs::path, FilesById> folders_;
};

}  // namespace

ContextChain find_ancestors(std::shared_ptr<ContextFile> file, const std::string& parent,
                            const AcceptAncestor& accept) {
  return Search(accept, parent).run(std::move(file));
}

}  // namespace kvfork::saved
