// kvfork: process a fixed context once, answer many independent requests from it.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/help.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "kvfork/error.h"
#include "kvfork/version.h"

namespace {

using kvfork::ErrorCode;
using kvfork::cli::UsageError;

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
  std::vector<std::string> examples;
};

const Entry kCommands[] = {
    {"ask",
     "Answer questions from a cached context, at once",
     kvfork::cli::add_ask,
     {"kvfork ask --model DIR --context-file policy.txt",
      "kvfork ask --load policy.kv --prompt \"May I return a tent?\""}},
    {"run",
     "Answer prompts after proving that the cache changes nothing",
     kvfork::cli::add_run,
     {"kvfork run --model DIR --context-file policy.txt --prompt \"May I return a tent?\"",
      "kvfork run --model DIR --load policy.kv --benchmark-repeats 5 < questions.txt"}},
    {"save",
     "Prefill a context once and keep it as a file",
     kvfork::cli::add_save,
     {"kvfork save --model DIR --context-file policy.txt --out policy.kv",
      "kvfork save --model DIR --load policy.kv --messages customer.json --out customer.kv"}},
    {"batch",
     "Answer a JSONL file of requests, decoded together; resumable",
     kvfork::cli::add_batch,
     {"kvfork batch --model DIR --load policy.kv --in requests.jsonl --out answers.jsonl",
      "kvfork batch --model DIR --context-file policy.txt --in - --out - < requests.jsonl"}},
    {"verify",
     "Check on this model, context and prompts that the cache is safe",
     kvfork::cli::add_verify,
     {"kvfork verify --model DIR --context-file policy.txt",
      "kvfork verify --model DIR --load policy.kv --junit report.xml"}},
    {"bench",
     "Measure requests with and without the cache, over prefix lengths",
     kvfork::cli::add_bench,
     {"kvfork bench --model DIR --context-file policy.txt --html report.html",
      "kvfork bench --model DIR --load policy.kv --prefix-lengths 128,512"}},
    {"list",
     "List models in the Hub cache and saved contexts",
     kvfork::cli::add_list,
     {"kvfork list", "kvfork list contexts/ policy.kv"}},
    {"rm",
     "Delete a model of the Hub cache or a saved context",
     kvfork::cli::add_rm,
     {"kvfork rm policy.kv", "kvfork rm Qwen/Qwen2-0.5B-Instruct --yes"}},
    {"inspect",
     "Show what a checkpoint or a saved context holds, and whether kvfork can run it",
     kvfork::cli::add_inspect,
     {"kvfork inspect DIR", "kvfork inspect --check policy.kv"}},
    {"pull",
     "Download a checkpoint from the Hugging Face Hub into the shared cache",
     kvfork::cli::add_pull,
     {"kvfork pull Qwen/Qwen2-0.5B-Instruct", "kvfork pull ORG/NAME@REVISION --gguf FILE.gguf"}},
    {"tokenize",
     "Show what the model sees: rendered text, token ids, pieces",
     kvfork::cli::add_tokenize,
     {"kvfork tokenize --model DIR --text \"What does the model see?\"",
      "kvfork tokenize --model DIR --boundary --prompt \"May I return a tent?\""}},
    {"score",
     "Log-probabilities and logits of every position, in any split of the work",
     kvfork::cli::add_score,
     {"kvfork score --model DIR --text \"How likely is this?\"",
      "kvfork score --model DIR --ids 1,2,3 --logits out.safetensors"}},
};

CLI::Option* find_option(CLI::App* command, const std::string& name) {
  return command == nullptr ? nullptr : command->get_option_no_throw(name);
}

// The name that kvfork has for an option, where another tool's name was given.
std::string translate(CLI::App* command, const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  if (command == nullptr || find_option(command, name) != nullptr) return argument;
  const std::string known = kvfork::cli::known_habit(name);
  return find_option(command, known) == nullptr ? argument : known + argument.substr(name.size());
}

// The arguments as CLI11 reads them as everyone else would: what follows an option that takes a value is that
// value, also where it begins with a dash ("--name=VALUE" then), and "--name=" has an empty one. Throws UsageError
// for an option that the command does not have.
std::vector<std::string> join_values(const std::vector<std::string>& arguments, CLI::App* command) {
  std::vector<std::string> joined;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--") {
      joined.insert(joined.end(), arguments.begin() + static_cast<ptrdiff_t>(i), arguments.end());
      break;
    }
    const std::string argument = arguments[i].starts_with('-') ? translate(command, arguments[i]) : arguments[i];
    joined.push_back(argument);
    if (argument.size() < 2 || argument[0] != '-') continue;
    const std::string name = argument.substr(0, argument.find('='));
    const CLI::Option* option = find_option(command, name);
    if (command != nullptr && option == nullptr)
      throw UsageError(kvfork::cli::unknown_option_message(*command, name));
    const bool takes_value = option != nullptr && option->get_expected_min() > 0;
    if (argument.size() > 3 && argument.find('=') == argument.size() - 1) {
      joined.back().pop_back();
      joined.emplace_back();
    } else if (i + 1 < arguments.size() && takes_value && name == argument) {
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

// "help COMMAND" is "COMMAND --help"; an unknown command names the nearest.
void read_command_name(std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0].starts_with('-')) return;
  if (arguments[0] == "help") {
    arguments.erase(arguments.begin());
    arguments.resize(std::min<size_t>(arguments.size(), 1));
    arguments.emplace_back("--help");
    if (arguments.size() == 1) return;
  }
  std::vector<std::string> names;
  for (const Entry& entry : kCommands) names.emplace_back(entry.name);
  if (std::find(names.begin(), names.end(), arguments[0]) != names.end()) return;
  const std::string nearest = kvfork::cli::find_nearest(arguments[0], names);
  throw UsageError(fmt::format("unknown command '{}'{}; see kvfork --help", arguments[0],
                               nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
}

int run_tool(int argc, char** argv) {
  CLI::App app{
      "Process a fixed context once; answer many independent requests from it, bit for bit as without a cache."};
  app.name("kvfork");
  app.set_version_flag("--version", fmt::format("kvfork {}", kvfork::version()), "Print the version");
  app.require_subcommand(1);
  app.fallthrough(false);
  kvfork::cli::use_readable_help(app);
  kvfork::cli::set_examples(app, {"kvfork ask --model DIR --context-file policy.txt", "kvfork ask --help"});
  std::vector<std::pair<CLI::App*, kvfork::cli::Command>> commands;
  for (const Entry& entry : kCommands) {
    CLI::App* command = app.add_subcommand(entry.name, entry.description);
    command->get_help_ptr()->group(kvfork::cli::kOutputGroup);
    kvfork::cli::set_examples(*command, entry.examples);
    commands.emplace_back(command, entry.add(*command));
  }
  std::vector<std::string> arguments(argv + 1, argv + argc);
  read_command_name(arguments);
  const bool has_command = !arguments.empty() && !arguments[0].starts_with('-');
  const std::string page = has_command ? "kvfork " + arguments[0] : "kvfork";
  try {
    arguments = join_values(arguments, has_command ? app.get_subcommand(arguments[0]) : nullptr);
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    app.parse(std::move(arguments));
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}; see {} --help", error.what(), page));
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
  kvfork::cli::erase_progress_on_signals();
  try {
    const int code = run_tool(argc, argv);
    kvfork::cli::flush_output();
    return code;
  } catch (const UsageError& error) {
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
