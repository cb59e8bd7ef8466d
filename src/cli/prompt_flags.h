// Options that give requests: --prompt and --prompt-file.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace kvfork::cli {

struct PromptFlags {
  std::vector<std::string> prompts;
  std::vector<std::string> files;

  void add_to(CLI::App& app, const char* prompt_help);
  /// All of --prompt, then each file's whole text less one final newline. Throws as read_text.
  std::vector<std::string> read() const;
};

/// The lines of a text that hold more than white space, without CR at the end.
std::vector<std::string> split_prompts(const std::string& text);

}  // namespace kvfork::cli
