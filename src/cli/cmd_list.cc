// kvfork list and kvfork rm: the models in the Hub cache, and saved contexts.

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/json_parts.h"
#include "cli/known_contexts.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "kvfork/hub.h"
#include "kvfork/inspect.h"

namespace kvfork::cli {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

struct ListArgs {
  std::vector<std::string> paths;
  bool json = false;
};

struct RemoveArgs {
  std::vector<std::string> names;
  bool yes = false;
};

struct SavedContext {
  std::string file;
  uint64_t bytes = 0;
  int64_t modified = 0;
  size_t n_tokens = 0;
  std::string model;
  std::string problem;  // empty: it can be read
};

std::string show_age(int64_t modified) {
  const auto seconds = static_cast<double>(std::max<int64_t>(std::time(nullptr) - modified, 0));
  if (seconds < 90) return "now";
  if (seconds < 5400) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 129600) return fmt::format("{:.0f} h", seconds / 3600);
  return show_count(static_cast<size_t>(seconds / 86400 + 0.5), "day");
}

// Whether the file's own model is still where it was, without reading its weights.
std::string why_unusable(const ContextFacts& facts, const std::string& file) {
  std::error_code error;
  const auto parent = fs::path(file).parent_path() / facts.parent_file;
  if (!facts.parent_id.empty() && !fs::exists(parent, error)) return "its parent " + facts.parent_file + " is gone";
  return "";
}

SavedContext look_at(const std::string& file) {
  SavedContext saved{.file = file};
  struct stat status {};
  if (::stat(file.c_str(), &status) == 0) {
    saved.bytes = static_cast<uint64_t>(status.st_size);
    saved.modified = status.st_mtime;
  }
  try {
    const ContextFacts facts = inspect_context(file, ContextCheck::Quick);
    saved.n_tokens = facts.n_tokens;
    saved.model = facts.identity.architecture;
    saved.problem = why_unusable(facts, file);
  } catch (const Error& error) {
    saved.problem = error.what();
  }
  return saved;
}

// The saved contexts among the files that are named or lie in a folder that is named.
std::vector<SavedContext> find_contexts(const std::vector<std::string>& paths) {
  std::vector<SavedContext> found;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      if (!is_saved_context(path))
        base::fail(fs::exists(path, error) ? ErrorCode::InvalidArgument : ErrorCode::NotFound,
                   "{}: expected a folder or a saved context, found {}", path,
                   fs::exists(path, error) ? "another file" : "nothing");
      found.push_back(look_at(path));
      continue;
    }
    for (const auto& entry : fs::directory_iterator(path, error)) {
      std::error_code ignored;
      if (entry.is_regular_file(ignored) && is_saved_context(entry.path().string()))
        found.push_back(look_at(entry.path().lexically_normal().string()));
    }
  }
  std::ranges::sort(found, {}, &SavedContext::file);
  return found;
}

void print_list_json(const std::vector<CachedModel>& models, const std::vector<SavedContext>& contexts) {
  Json json = {{"models", Json::array()}, {"contexts", Json::array()}};
  for (const CachedModel& model : models)
    json["models"].push_back({{"model", model.repo_id},
                              {"directory", model.folder},
                              {"commits", model.commits},
                              {"bytes", model.bytes},
                              {"modified", model.modified},
                              {"complete", model.is_complete}});
  for (const SavedContext& saved : contexts)
    json["contexts"].push_back({{"file", saved.file},
                                {"bytes", saved.bytes},
                                {"modified", saved.modified},
                                {"tokens", saved.n_tokens},
                                {"model", or_null(saved.model)},
                                {"problem", or_null(saved.problem)}});
  write_json(json);
}

int list(const ListArgs& args) {
  const bool lists_all = args.paths.empty();
  const auto models = lists_all ? list_cached_models() : std::vector<CachedModel>();
  const auto contexts = find_contexts(lists_all ? known_contexts() : args.paths);
  if (args.json) {
    print_list_json(models, contexts);
    return 0;
  }
  for (const CachedModel& model : models)
    print_line("model    {:>9}  {:>7}  {}{}", show_bytes(model.bytes), show_age(model.modified), model.repo_id,
               model.is_complete ? "" : " (a download is not finished)");
  for (const SavedContext& saved : contexts) {
    print_line("context  {:>9}  {:>7}  {} ({}, {})", show_bytes(saved.bytes), show_age(saved.modified), saved.file,
               show_count(saved.n_tokens, "token"), saved.model.empty() ? "unknown model" : saved.model);
    if (!saved.problem.empty()) print_line("         cannot be used: {}", saved.problem);
  }
  if (models.empty() && contexts.empty())
    print_note("{}", lists_all ? "There are no models in the cache and no saved contexts that kvfork has written."
                               : "There is no saved context here.");
  return 0;
}

// Contexts in the same folder that continue this one and are of no use without it.
std::vector<std::string> children_of(const std::string& file, const std::string& id) {
  std::vector<std::string> children;
  std::error_code error;
  const fs::path folder = fs::path(file).has_parent_path() ? fs::path(file).parent_path() : fs::path(".");
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::error_code ignored;
    if (!entry.is_regular_file(ignored) || !is_saved_context(entry.path().string())) continue;
    try {
      if (inspect_context(entry.path().string(), ContextCheck::Quick).parent_id == id)
        children.push_back(entry.path().filename().string());
    } catch (const Error&) {  // a damaged context depends on nothing
    }
  }
  return children;
}

bool confirm(const RemoveArgs& args, const std::string& question) {
  if (args.yes) return true;
  if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDERR_FILENO) != 1)
    throw UsageError(fmt::format("rm: {} --yes says so", question));
  fmt::print(stderr, "{} [y/N] ", question);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

void remove_context(const RemoveArgs& args, const std::string& file) {
  if (!is_saved_context(file))
    base::fail(ErrorCode::InvalidArgument, "{}: expected a saved context or a Hub id, found another file", file);
  std::string id;
  try {
    id = inspect_context(file, ContextCheck::Quick).id;
  } catch (const Error&) {  // a damaged one may go
  }
  const auto children = id.empty() ? std::vector<std::string>() : children_of(file, id);
  if (!children.empty() &&
      !confirm(args, fmt::format("{} is the parent of {}, which cannot be used without it. Delete it?", file,
                                 fmt::join(children, ", "))))
    return;
  const uint64_t n_bytes = fs::file_size(file);
  std::error_code error;
  if (!fs::remove(file, error)) base::fail(ErrorCode::Io, "{}: cannot remove: {}", file, error.message());
  print_line("deleted {} ({})", file, show_bytes(n_bytes));
}

int remove(const RemoveArgs& args) {
  for (const std::string& name : args.names) {
    std::error_code error;
    if (fs::exists(name, error)) {
      remove_context(args, name);
      continue;
    }
    const auto ref = HubRef::parse(name);
    if (!ref || name.find('/') == std::string::npos)
      base::fail(ErrorCode::NotFound, "{}: expected a saved context or the Hub id ORG/NAME of a cached model",
                 name);
    if (!confirm(args, fmt::format("Delete {} with all of its revisions from the cache?", ref->repo_id))) continue;
    print_line("deleted {} ({})", ref->repo_id, show_bytes(remove_cached_model(ref->repo_id)));
  }
  return 0;
}

}  // namespace

Command add_list(CLI::App& app) {
  auto args = std::make_shared<ListArgs>();
  app.add_option(
         "path", args->paths,
         "Folders or files whose saved contexts to list (default: the models in the Hub cache and the contexts "
         "that kvfork save has written)")
      ->type_name("PATH")
      ->group(kRequestGroup);
  app.add_flag("--json", args->json, "One JSON document on standard output")->group(kOutputGroup);
  return [args] { return list(*args); };
}

Command add_rm(CLI::App& app) {
  auto args = std::make_shared<RemoveArgs>();
  app.add_option("name", args->names, "Saved contexts, or Hub ids ORG/NAME of models in the cache")
      ->type_name("NAME")
      ->required()
      ->group(kRequestGroup);
  app.add_flag("--yes", args->yes, "Delete without asking")->group(kRequestGroup);
  return [args] { return remove(*args); };
}

}  // namespace kvfork::cli
