// Help for people: options in groups, wrapped to the terminal, and hints for names that do not exist.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace kvfork::cli {

/// The groups of options in help, in the order in which they are shown.
inline constexpr const char* kModelGroup = "Model";
inline constexpr const char* kFixedPartGroup = "Fixed part";
inline constexpr const char* kTemplateGroup = "Template";
inline constexpr const char* kRequestGroup = "Requests";
inline constexpr const char* kSamplingGroup = "Generation";
inline constexpr const char* kOutputGroup = "Output";

/// Sets how `app` and its subcommands show help. `examples` are whole command lines, shown first.
void use_readable_help(CLI::App& app);
void set_examples(CLI::App& command, std::vector<std::string> examples);

/// The candidate that differs from `word` in the fewest letters; empty where none is near.
std::string find_nearest(std::string_view word, const std::vector<std::string>& candidates);

/// What other tools call an option of kvfork: "-m" is "--model". Empty for a name that is not such a habit.
std::string known_habit(std::string_view option);

/// The message for an option that `command` does not have.
std::string unknown_option_message(const CLI::App& command, const std::string& option);

}  // namespace kvfork::cli
