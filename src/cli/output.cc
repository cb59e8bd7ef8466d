// Writing to standard output and standard error.
#include "cli/output.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

#include "base/error.h"
#include "base/visible_text.h"

namespace kvfork::cli {
namespace {

using base::LineBreaks;
using base::to_visible_text;

void print_to_stderr(const std::string& text) {
  std::fflush(stdout);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

// A reader that went away, such as `head`, wants no more: that is no error of ours.
[[noreturn]] void fail_write() {
  if (errno == EPIPE) {
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  base::fail_errno("standard output", "write", errno);
}

}  // namespace

void print_error(std::string_view message) {
  print_to_stderr(fmt::format("kvfork: error: {}\n", to_visible_text(message)));
}

void print_warning(std::string_view message) {
  print_to_stderr(fmt::format("kvfork: warning: {}\n", to_visible_text(message)));
}

void print_note_text(std::string_view text) {
  print_to_stderr(to_visible_text(text, LineBreaks::Keep) + "\n");
}

void write_output(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size()) fail_write();
}

void write_text(std::string_view text) {
  static const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  is_terminal ? write_output(to_visible_text(text, LineBreaks::Keep)) : write_output(text);
}

void print_line_text(std::string_view text) {
  write_output(to_visible_text(text, LineBreaks::Keep) + "\n");
}

void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) fail_write();
}

std::string to_json_text(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void write_json(const nlohmann::ordered_json& value) {
  // The escapes of to_visible_text are those of JSON, and the characters they stand for occur in strings alone.
  write_output(to_visible_text(to_json_text(value)) + "\n");
}

}  // namespace kvfork::cli
