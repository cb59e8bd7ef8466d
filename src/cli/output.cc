#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "kvfork/error.h"

namespace kvfork::cli {
namespace {

void print_line(std::string_view kind, std::string_view message) {
  std::string line = fmt::format("kvfork: {}: ", kind);
  // One line, and nothing that a terminal acts on, whatever the message quotes.
  for (const char c : message) line += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
  line += '\n';
  std::fflush(stdout);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

[[noreturn]] void fail_write() {
  throw Error(ErrorCode::Io, fmt::format("standard output: cannot write: {}", std::strerror(errno)));
}

}  // namespace

void print_error(std::string_view message) {
  print_line("error", message);
}

void print_warning(std::string_view message) {
  print_line("warning", message);
}

void write_output(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail_write();
}

void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) fail_write();
}

std::string to_json_text(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void write_json(const nlohmann::ordered_json& value) {
  write_output(to_json_text(value) + "\n");
}

Progress::Progress(std::string label, Show show)
    : label_(std::move(label)), shown_(show == Show::Auto && ::isatty(STDERR_FILENO) == 1) {
  if (shown_) fmt::print(stderr, "\r{} ...", label_);
}

Progress::~Progress() {
  if (shown_) fmt::print(stderr, "\r\033[K");
}

void Progress::update(size_t done, size_t total) {
  if (!shown_ || total == 0) return;
  constexpr size_t kWidth = 30;
  const size_t filled = kWidth * done / total;
  fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {}/{}\033[K", label_, "", filled, "", kWidth - filled, done, total);
}

}  // namespace kvfork::cli
