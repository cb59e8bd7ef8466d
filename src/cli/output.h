// Where the tool's words go: data to standard output, everything else to standard error.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kvfork::cli {

/// Options that contradict each other or miss something; exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// "kvfork: error: MESSAGE" on standard error.
void print_error(std::string_view message);

/// "kvfork: warning: MESSAGE" on standard error.
void print_warning(std::string_view message);

/// Writes to standard output. Throws Error{Io} when it cannot be written.
void write_output(std::string_view text);

/// Makes sure that everything written has left the process. Throws Error{Io}.
void flush_output();

/// One JSON document and a newline; ill-formed UTF-8 becomes U+FFFD.
std::string to_json_text(const nlohmann::ordered_json& value);
void write_json(const nlohmann::ordered_json& value);

/// A progress line on standard error, only on a terminal; erased when the object goes.
class Progress {
 public:
  enum class Show { Auto, Never };
  Progress(std::string label, Show show);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(size_t done, size_t total);

 private:
  std::string label_;
  bool shown_;
};

}  // namespace kvfork::cli
