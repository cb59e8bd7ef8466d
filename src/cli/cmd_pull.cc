// kvfork pull: a checkpoint from the Hub into the shared cache.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands.h"
#include "cli/help.h"
#include "cli/hub_model.h"
#include "cli/output.h"
#include "kvfork/error.h"
#include "kvfork/hub.h"

namespace kvfork::cli {
namespace {

struct Args {
  std::string model;
  std::string gguf;
  bool quiet = false;
  bool json = false;
};

int run_pull(const Args& args) {
  const auto ref = HubRef::parse(args.model);
  if (!ref)
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("{}: expected a Hub id ORG/NAME or ORG/NAME@REVISION", args.model));
  PullOptions options;
  if (!args.gguf.empty()) options.gguf_file = args.gguf;
  PullDisplay display(args.quiet ? Progress::Show::Never : Progress::Show::Auto);
  display.attach(options);
  refuse_unsupported(options, *ref);
  const Snapshot snapshot = pull(*ref, options);
  if (!args.json) {
    write_output((snapshot.gguf_path.empty() ? snapshot.directory : snapshot.gguf_path) + "\n");
    return 0;
  }
  nlohmann::ordered_json answer{{"model", ref->repo_id},
                                {"revision", snapshot.commit},
                                {"directory", snapshot.directory},
                                {"from_cache", snapshot.from_cache},
                                {"bytes_downloaded", snapshot.bytes_downloaded},
                                {"files_downloaded", snapshot.files_downloaded}};
  if (!snapshot.gguf_path.empty()) answer["gguf"] = snapshot.gguf_path;
  write_json(answer);
  return 0;
}

}  // namespace

Command add_pull(CLI::App& app) {
  auto args = std::make_shared<Args>();
  app.add_option("model", args->model, "ORG/NAME or ORG/NAME@REVISION")
      ->group(kRequestGroup)
      ->type_name("MODEL")
      ->required();
  app.add_option("--gguf", args->gguf, "Fetch this GGUF file of the repository")
      ->group(kRequestGroup)
      ->type_name("FILE");
  app.add_flag("--quiet", args->quiet, "No progress")->group(kOutputGroup);
  app.add_flag("--json", args->json, "One JSON document on standard output")->group(kOutputGroup);
  return [args] { return run_pull(*args); };
}

}  // namespace kvfork::cli
