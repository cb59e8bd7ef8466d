// The help pages of the commands, and the nearest names.
#include "cli/help.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>

#include "cli/terminal.h"

namespace kvfork::cli {
namespace {

constexpr size_t kMostColumns = 100;

// Options that other tools' users know. Some have no counterpart, and a sentence says why.
const std::map<std::string, std::string, std::less<>> kHabits = {
    {"-m", "--model"},
    {"-p", "--prompt"},
    {"-n", "--max-new-tokens"},
    {"--n-predict", "--max-new-tokens"},
    {"--max-tokens", "--max-new-tokens"},
    {"--max_new_tokens", "--max-new-tokens"},
    {"-t", "--threads"},
    {"--temp", "--temperature"},
    {"-s", "--seed"},
    {"-f", "--prompt-file"},
    {"--file", "--prompt-file"},
    {"--system", "--context"},
    {"--system-prompt", "--context"},
    {"-sys", "--context"},
    {"--repeat-penalty", "--repetition-penalty"},
    {"--prompt-cache", "--load"},
    {"--prompt-cache-file", "--load"},
    {"-q", "--quiet"},
    {"-o", "--out"},
    {"--output", "--out"},
    {"-i", "--in"},
    {"--input", "--in"},
};
const std::map<std::string, std::string, std::less<>> kExplained = {
    {"-c", "the context length is the model's own and needs no option; --context gives the fixed text"},
    {"--ctx", "the context length is the model's own and needs no option; --context gives the fixed text"},
    {"--ctx-size", "the context length is the model's own and needs no option; --context gives the fixed text"},
    {"-ngl", "kvfork runs on the processor alone"},
    {"--n-gpu-layers", "kvfork runs on the processor alone"},
    {"--device", "kvfork runs on the processor alone"},
};

// "TEXT:{a,b}" is "a|b", "UINT..." is "N", "FLOAT..." is "X"; a name set by hand stays.
std::string value_name(const CLI::Option& option) {
  if (option.get_expected_min() == 0 && option.get_type_name().empty()) return "";
  std::string type = option.get_type_name();
  if (const size_t open = type.find('{'); open != std::string::npos) {
    std::string values = type.substr(open + 1, type.find('}') - open - 1);
    std::replace(values.begin(), values.end(), ',', '|');
    return values;
  }
  type = type.substr(0, type.find(':'));
  if (type == "UINT" || type == "INT") return "N";
  if (type == "FLOAT") return "X";
  return type;
}

std::string describe(const CLI::Option& option) {
  std::string text = option.get_description();
  if (option.get_required()) text += " (required)";
  const std::string& preset = option.get_default_str();
  if (!preset.empty() && preset.size() < 40 && option.get_expected_min() > 0) text += fmt::format(" [{}]", preset);
  return text;
}

void add_option(std::string& help, const CLI::Option& option, size_t width) {
  constexpr size_t kColumn = 28;
  const std::string value = value_name(option);
  std::string line = "  " + (option.nonpositional() ? option.get_name(false, true) : option.get_name(true));
  if (!value.empty() && option.nonpositional()) line += " " + value;
  if (line.size() + 2 > kColumn) {
    help += line + "\n";
    line.clear();
  }
  line.resize(kColumn, ' ');
  help += wrap_text(line, describe(option), width, kColumn) + "\n";
}

std::string usage(const CLI::App& app) {
  std::string line = "Usage: " + app.get_name();
  if (const CLI::App* parent = app.get_parent()) line = "Usage: " + parent->get_name() + " " + app.get_name();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) line += " " + option->get_name(true);
  }
  return line + (app.get_subcommands({}).empty() ? " [OPTIONS]" : " COMMAND [OPTIONS]") + "\n";
}

std::string make_help(const CLI::App* app, const std::string&, CLI::AppFormatMode) {
  const size_t width = std::min(terminal_width(STDOUT_FILENO), kMostColumns);
  std::string help = wrap_text("", app->get_description(), width, 0) + "\n";
  if (!app->get_footer().empty()) help += "\nExamples:\n" + app->get_footer();
  help += "\n" + usage(*app);
  for (const std::string group :
       {kModelGroup, kFixedPartGroup, kTemplateGroup, kRequestGroup, kSamplingGroup, kOutputGroup, "Options"}) {
    const auto options = app->get_options([&](const CLI::Option* option) { return option->get_group() == group; });
    if (options.empty()) continue;
    help += "\n" + group + ":\n";
    for (const CLI::Option* option : options) add_option(help, *option, width);
  }
  const auto commands = app->get_subcommands([](const CLI::App*) { return true; });
  if (!commands.empty()) help += "\nSubcommands:\n";
  for (const CLI::App* command : commands) {
    const std::string head = fmt::format("  {:<10} ", command->get_name());
    help += wrap_text(head, command->get_description(), width, head.size()) + "\n";
  }
  return help;
}

// Letters to insert, to remove, to replace or to swap with a neighbour.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  std::iota(d[0].begin(), d[0].end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    d[i][0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

void use_readable_help(CLI::App& app) {
  app.formatter(std::make_shared<CLI::FormatterLambda>(make_help));
}

void set_examples(CLI::App& command, std::vector<std::string> examples) {
  std::string text;
  for (const std::string& example : examples) text += "  " + example + "\n";
  command.footer(text);
}

std::string find_nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string nearest;
  size_t least = std::max<size_t>(1, std::min<size_t>(word.size() / 3, 3)) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  if (!nearest.empty() || word.size() < 4) return nearest;
  const auto longer = std::find_if(candidates.begin(), candidates.end(),
                                   [&](const std::string& candidate) { return candidate.starts_with(word); });
  return longer == candidates.end() ? "" : *longer;
}

std::string known_habit(std::string_view option) {
  const auto found = kHabits.find(option);
  return found == kHabits.end() ? "" : found->second;
}

std::string unknown_option_message(const CLI::App& command, const std::string& option) {
  std::string message = fmt::format("unknown option '{}'", option);
  if (const auto explained = kExplained.find(option); explained != kExplained.end()) {
    message += ": " + explained->second;
  } else {
    std::vector<std::string> names;
    for (const CLI::Option* known : command.get_options()) {
      for (const std::string& name : known->get_lnames()) names.push_back("--" + name);
    }
    std::string nearest = known_habit(option);
    if (std::find(names.begin(), names.end(), nearest) == names.end())
      nearest = option.size() > 2 ? find_nearest(option, names) : "";
    if (!nearest.empty()) message += fmt::format("; did you mean {}?", nearest);
  }
  const std::string page = command.get_parent() ? "kvfork " + command.get_name() : "kvfork";
  return fmt::format("{}: {} (see {} --help)", page, message, page);
}

}  // namespace kvfork::cli
