// kvfork: process a fixed context once, answer many independent requests from it.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/output.h"
#include "kvfork/error.h"
#include "kvfork/version.h"

namespace {

using kvfork::ErrorCode;

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitCheckFailed = 3;

int exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::Boundary:
    case ErrorCode::Parity:
    case ErrorCode::Isolation:
      return kExitCheckFailed;
    default:
      return kExitFailure;
  }
}

struct Entry {
  const char* name;
  const char* description;
  kvfork::cli::Command (*add)(CLI::App& app);
};

constexpr Entry kCommands[] = {
    {"run", "Answer prompts from one prefilled context, after proving that the cache changes nothing",
     kvfork::cli::add_run},
    {"batch", "Answer a JSONL file of requests, decoded together; resumable", kvfork::cli::add_batch},
    {"verify", "Check on this model, context and prompts that the cache is safe", kvfork::cli::add_verify},
    {"bench", "Measure requests with and without the cache, over prefix lengths", kvfork::cli::add_bench},
    {"save", "Prefill a context once and keep it as a file", kvfork::cli::add_save},
    {"inspect", "What a checkpoint or a saved context holds, and whether kvfork can run it",
     kvfork::cli::add_inspect},
    {"pull", "Download a checkpoint from the Hugging Face Hub into the shared cache", kvfork::cli::add_pull},
    {"tokenize", "What the model sees: rendered text, token ids, pieces", kvfork::cli::add_tokenize},
    {"score", "Log-probabilities and logits of every position, in any split of the work", kvfork::cli::add_score},
};

bool takes_value(const CLI::App* command, const std::string& name) {
  const CLI::Option* option = command == nullptr ? nullptr : command->get_option_no_throw(name);
  return option != nullptr && option->get_expected_min() > 0;
}

// The arguments as CLI11 reads them as everyone else would: what follows an option that takes a value is that
// value, also where it begins with a dash ("--name=VALUE" then), and "--name=" has an empty one.
std::vector<std::string> join_values(const std::vector<std::string>& arguments, const CLI::App* command) {
  std::vector<std::string> joined;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      joined.insert(joined.end(), arguments.begin() + static_cast<ptrdiff_t>(i), arguments.end());
      break;
    }
    joined.push_back(argument);
    if (!argument.starts_with("--")) continue;
    if (argument.size() > 3 && argument.find('=') == argument.size() - 1) {
      joined.back().pop_back();
      joined.emplace_back();
    } else if (i + 1 < arguments.size() && takes_value(command, argument)) {
      ++i;
      if (arguments[i].starts_with('-')) {
        joined.back() += "=" + arguments[i];
      } else {
        joined.push_back(arguments[i]);
      }
    }
  }
  return joined;
}

void expect_known_command(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0].starts_with('-')) return;
  for (const Entry& entry : kCommands) {
    if (arguments[0] == entry.name) return;
  }
  throw kvfork::cli::UsageError(fmt::format("unknown command '{}'; see kvfork --help", arguments[0]));
}

int run_tool(int argc, char** argv) {
  CLI::App app{
      "Process a fixed context once; answer many independent requests from it, bit for bit as without a cache."};
  app.name("kvfork");
  app.set_version_flag("--version", fmt::format("kvfork {}", kvfork::version()));
  app.require_subcommand(1);
  app.fallthrough(false);
  std::vector<std::pair<CLI::App*, kvfork::cli::Command>> commands;
  for (const Entry& entry : kCommands) {
    CLI::App* command = app.add_subcommand(entry.name, entry.description);
    commands.emplace_back(command, entry.add(*command));
  }
  try {
    const std::vector<std::string> given(argv + 1, argv + argc);
    expect_known_command(given);
    std::vector<std::string> arguments =
        join_values(given, given.empty() || given[0].starts_with('-') ? nullptr : app.get_subcommand(given[0]));
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    app.parse(std::move(arguments));
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    kvfork::cli::print_error(fmt::format("usage: {}; see kvfork --help", error.what()));
    return kExitUsage;
  }
  for (const auto& [app_of_command, command] : commands) {
    if (app_of_command->parsed()) return command();
  }
  return kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  // A closed pipe and a file beyond its limit are errors of the write, reported as such.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const int code = run_tool(argc, argv);
    kvfork::cli::flush_output();
    return code;
  } catch (const kvfork::cli::UsageError& error) {
    kvfork::cli::print_error(fmt::format("usage: {}", error.what()));
    return kExitUsage;
  } catch (const kvfork::Error& error) {
    kvfork::cli::print_error(error.what());
    return exit_code_of(error.code());
  } catch (const std::bad_alloc&) {
    kvfork::cli::print_error("memory: the system refused an allocation");
    return kExitFailure;
  } catch (const std::exception& error) {
    kvfork::cli::print_error(fmt::format("internal: {}", error.what()));
    return kExitFailure;
  }
}
