// Options that several commands share, and reading the files that they name.
#include "cli/options.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "cli/help.h"
#include "kvfork/error.h"

namespace kvfork::cli {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

std::string read_stream(std::FILE* stream, const std::string& subject) {
  std::string content;
  char buffer[1 << 16];
  size_t n = 0;
  while ((n = std::fread(buffer, 1, sizeof(buffer), stream)) > 0) content.append(buffer, n);
  if (std::ferror(stream) != 0)
    throw Error(ErrorCode::Io, fmt::format("{}: cannot read: {}", subject, std::strerror(errno)));
  return content;
}

// Local time, frozen once per process so that every rendering of a command sees the same clock.
std::string frozen_clock() {
  static const std::string clock = [] {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    char text[32];
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &local);
    return std::string(text);
  }();
  return clock;
}

// Calls take(token) for each run of characters between commas and spaces.
template <typename Take>
void for_each_token(const std::string& text, const Take& take) {
  size_t position = 0;
  while (position < text.size()) {
    const size_t begin = text.find_first_not_of(", \t\r\n", position);
    if (begin == std::string::npos) return;
    const size_t end = std::min(text.find_first_of(", \t\r\n", begin), text.size());
    take(std::string_view(text).substr(begin, end - begin));
    position = end;
  }
}

template <typename Number>
Number parse_number(std::string_view token, const char* option) {
  Number value{};
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  if (error != std::errc() || end != token.data() + token.size())
    throw UsageError(fmt::format("{}: expected whole numbers, found '{}'", option, token));
  return value;
}

std::string why_no_variable(std::string& var) {
  const size_t equals = var.find('=');
  if (equals == std::string::npos || equals == 0) return fmt::format("expected NAME=JSON, found '{}'", var);
  const std::string value = var.substr(equals + 1);
  if (nlohmann::json::accept(value)) return "";
  return fmt::format("{}: expected JSON, found '{}'; quote strings: '\"text\"'", var.substr(0, equals), value);
}

}  // namespace

CLI::Validator whole_number(uint64_t least) {
  const auto check = [least](std::string& text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool holds = error == std::errc() && end == text.data() + text.size() && value >= least;
    if (error == std::errc::result_out_of_range)
      return fmt::format("expected a whole number of at most {}, found '{}'", UINT64_MAX, text);
    return holds ? std::string() : fmt::format("expected a whole number of at least {}, found '{}'", least, text);
  };
  return CLI::Validator(check, "UINT");
}

CLI::Validator number_between(double low, double high) {
  const auto check = [low, high](std::string& text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool holds = error == std::errc() && end == text.data() + text.size() && value >= low && value <= high;
    return holds ? std::string() : fmt::format("expected a number from {} to {}, found '{}'", low, high, text);
  };
  return CLI::Validator(check, "FLOAT");
}

CLI::Validator clock_time() {
  return CLI::Validator(
      [](std::string& text) {
        const auto holds_as = [&](const char* format) {
          std::tm parsed{};
          const char* end = ::strptime(text.c_str(), format, &parsed);
          return end != nullptr && *end == '\0';
        };
        const bool holds = holds_as("%Y-%m-%dT%H:%M:%S") || holds_as("%Y-%m-%d %H:%M:%S") || holds_as("%Y-%m-%d");
        return holds ? std::string() : fmt::format("expected a time as 2031-01-05T06:07:08, found '{}'", text);
      },
      "TIME");
}

CLI::Validator not_empty() {
  return CLI::Validator(
      [](std::string& text) {
        return text.empty() ? std::string("expected a path, found an empty one") : std::string();
      },
      "PATH");
}

void ModelFlags::add_to(CLI::App& app) {
  app.add_option("--model", model,
                 "A directory in Hugging Face layout, a GGUF file, or a Hub id ORG/NAME[@REVISION]")
      ->group(kModelGroup)
      ->type_name("MODEL")
      ->required()
      ->check(not_empty());
  app.add_option("--gguf", gguf_file, "With a Hub id: the GGUF file of the repository to use")
      ->group(kModelGroup)
      ->type_name("FILE")
      ->check(not_empty());
  app.add_option("--dtype", dtype, "Type of activations and of the cache; weights stay as they are stored")
      ->group(kModelGroup)
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->capture_default_str();
  app.add_option("--threads", threads, "Threads (default: the cores this process may use)")
      ->group(kModelGroup)
      ->type_name("N")
      ->check(CLI::Range(size_t{1}, size_t{1024}));
  app.add_flag("--quiet", quiet, "Print no progress and no report, only the result")->group(kOutputGroup);
  app.add_flag("--json", json, "Print one JSON document on standard output")->group(kOutputGroup);
}

ModelOptions ModelFlags::options() const {
  ModelOptions options;
  options.mode = dtype == "bfloat16" ? ComputeMode::BFloat16 : ComputeMode::Float32;
  options.n_threads = threads;
  return options;
}

LocatedModel ModelFlags::locate() const {
  PullOptions pull;
  if (!gguf_file.empty()) pull.gguf_file = gguf_file;
  return locate_model(model, progress(), std::move(pull));
}

std::shared_ptr<const Model> ModelFlags::open() const {
  const LocatedModel located = locate();
  const Progress shown("opening " + name_of_path(model), progress());
  return Model::open(located.path, options());
}

void TemplateFlags::add_to(CLI::App& app) {
  app.add_option("--tools", tools_file, "JSON file with the definitions of tools")
      ->group(kTemplateGroup)
      ->type_name("FILE");
  app.add_option("--documents", documents_file, "JSON file with the documents")
      ->group(kTemplateGroup)
      ->type_name("FILE");
  app.add_option("--var", vars, "A variable of the template, with a JSON value; repeatable")
      ->check(CLI::Validator(why_no_variable, ""))
      ->group(kTemplateGroup)
      ->type_name("NAME=JSON")
      ->allow_extra_args(false);
  app.add_option("--now", now, "The clock that the template reads, as 2031-01-05T06:07:08 (default: now)")
      ->check(clock_time())
      ->group(kTemplateGroup)
      ->type_name("TIME");
  app.add_option("--template", template_name, "A template of the checkpoint by its name, or a file")
      ->group(kTemplateGroup)
      ->type_name("NAME");
  app.add_flag("--literal-user-text", literal_user_text,
               "Read control tokens in messages, prompts and contexts as plain text; those of the template keep "
               "their meaning")
      ->group(kTemplateGroup);
}

ChatRequest TemplateFlags::request() const {
  ChatRequest request;
  if (!tools_file.empty()) request.tools_json = read_text(tools_file);
  if (!documents_file.empty()) request.documents_json = read_text(documents_file);
  for (const std::string& var : vars) {
    const size_t equals = var.find('=');
    request.vars.emplace_back(var.substr(0, equals), var.substr(equals + 1));
  }
  request.now = now.empty() ? frozen_clock() : now;
  return request;
}

void TemplateFlags::fill(FixedPart& fixed) const {
  const ChatRequest request = this->request();
  fixed.tools_json = request.tools_json;
  fixed.documents_json = request.documents_json;
  fixed.vars = request.vars;
  fixed.now = request.now;
  fixed.user_text = user_text();
}

ChatTemplate TemplateFlags::choose(const ChatTemplate& of_checkpoint) const {
  return of_checkpoint.with_override(template_name);
}

std::string read_standard_input() {
  static bool is_read = false;
  if (std::exchange(is_read, true)) throw UsageError("standard input: expected one option to read it, found two");
  return read_stream(stdin, "standard input");
}

std::string read_text(const std::string& path) {
  if (path == "-") return read_standard_input();
  if (path.empty()) throw UsageError("expected the path of a file, found an empty one");
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw Error(ErrorCode::Io, fmt::format("{}: expected a file, found a directory", path));
  const File file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (file == nullptr)
    throw Error(errno == ENOENT ? ErrorCode::NotFound : ErrorCode::Io,
                fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
  return read_stream(file.get(), path);
}

std::vector<int32_t> parse_ids(const std::string& text, const char* option) {
  std::vector<int32_t> ids;
  for_each_token(text, [&](std::string_view token) { ids.push_back(parse_number<int32_t>(token, option)); });
  return ids;
}

std::vector<size_t> parse_sizes(const std::string& text, const char* option) {
  std::vector<size_t> sizes;
  for_each_token(text, [&](std::string_view token) {
    sizes.push_back(parse_number<size_t>(token, option));
    if (sizes.back() == 0) throw UsageError(fmt::format("{}: expected sizes of at least 1", option));
  });
  return sizes;
}

}  // namespace kvfork::cli
