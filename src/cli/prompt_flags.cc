// Reading requests from options, files and lines.
#include "cli/prompt_flags.h"

#include <algorithm>
#include <utility>

#include "cli/help.h"
#include "cli/options.h"

namespace kvfork::cli {

void PromptFlags::add_to(CLI::App& app, const char* prompt_help) {
  app.add_option("--prompt", prompts, prompt_help)
      ->group(kRequestGroup)
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_option("--prompt-file", files,
                 "A file whose whole text, less one final newline, is a request; repeatable")
      ->group(kRequestGroup)
      ->type_name("FILE")
      ->allow_extra_args(false);
}

std::vector<std::string> PromptFlags::read() const {
  std::vector<std::string> all = prompts;
  for (const std::string& file : files) {
    all.push_back(read_text(file));
    if (all.back().ends_with('\n')) all.back().pop_back();  // the one that editors add
  }
  return all;
}

std::vector<std::string> split_prompts(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t\r") != std::string::npos) lines.push_back(std::move(line));
    begin = end + 1;
  }
  return lines;
}

}  // namespace kvfork::cli
