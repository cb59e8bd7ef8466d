// Where the tool's words go: data to standard output, everything else to standard error. Text from a file, a model
// or a server is made visible on the way to a terminal (base/visible_text.h).
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace kvfork::cli {

/// Options that contradict each other or miss something; exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// "kvfork: error: MESSAGE" on standard error, as one visible line.
void print_error(std::string_view message);

/// "kvfork: warning: MESSAGE" on standard error, as one visible line.
void print_warning(std::string_view message);

/// A line of a report on standard error.
void print_note_text(std::string_view text);
template <typename... Args>
void print_note(fmt::format_string<Args...> format, Args&&... args) {
  print_note_text(fmt::format(format, std::forward<Args>(args)...));
}

/// Writes to standard output as it is. Throws Error{Io} when it cannot be written.
void write_output(std::string_view bytes);

/// The same for text that a file or a model gave: made visible where standard output is a terminal.
void write_text(std::string_view text);

/// A line of a report on standard output; whatever it quotes is made visible.
void print_line_text(std::string_view text);
template <typename... Args>
void print_line(fmt::format_string<Args...> format, Args&&... args) {
  print_line_text(fmt::format(format, std::forward<Args>(args)...));
}

/// Makes sure that everything written has left the process. Throws Error{Io}.
void flush_output();

/// One JSON document and a newline; ill-formed UTF-8 becomes U+FFFD.
std::string to_json_text(const nlohmann::ordered_json& value);
void write_json(const nlohmann::ordered_json& value);

}  // namespace kvfork::cli
