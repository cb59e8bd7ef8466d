// The commands of the tool, one file each. Each adds its options to `app` and returns what runs once they are
// parsed.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace kvfork::cli {

/// Runs a parsed command; returns the exit code, or throws kvfork::Error.
using Command = std::function<int()>;

Command add_ask(CLI::App& app);
Command add_batch(CLI::App& app);
Command add_bench(CLI::App& app);
Command add_inspect(CLI::App& app);
Command add_list(CLI::App& app);
Command add_pull(CLI::App& app);
Command add_rm(CLI::App& app);
Command add_run(CLI::App& app);
Command add_save(CLI::App& app);
Command add_score(CLI::App& app);
Command add_tokenize(CLI::App& app);
Command add_verify(CLI::App& app);

}  // namespace kvfork::cli
