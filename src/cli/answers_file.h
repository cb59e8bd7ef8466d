// The output of `kvfork batch`: whole lines in the order of the requests, so that a killed run can be gone on with.
//
// Each line is appended by one write. A process that is killed leaves whole lines, and at worst a torn one that
// the next cuts off. Two processes cannot write one file at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvfork::cli {

class AnswersFile {
 public:
  /// Opens or creates the file and reads it; one that may not be written to is opened all the same. A pipe or
  /// device is only written to. Throws Error{Io}; Error{InvalidArgument} when another process writes to it.
  explicit AnswersFile(const std::string& path);
  ~AnswersFile();
  AnswersFile(const AnswersFile&) = delete;
  AnswersFile& operator=(const AnswersFile&) = delete;

  /// The lines that were there, without their newlines.
  const std::vector<std::string>& finished_lines() const noexcept { return finished_; }

  /// What follows the last whole line.
  const std::string& torn_line() const noexcept { return torn_; }

  /// Cuts off the torn line. Throws Error{Io}, also where the file may not be written to.
  void begin();

  /// Appends a line, which ends in a newline. Throws Error{Io}; the file then ends with the line before.
  void append(std::string_view line);
  /// Makes sure that everything has reached the disk. Throws Error{Io}.
  void sync();

 private:
  void lock();
  void read_finished();
  [[noreturn]] void fail(const char* action) const;

  std::string path_;
  int file_ = -1;
  bool is_regular_ = false;
  size_t size_ = 0;  // of its whole lines
  std::vector<std::string> finished_;
  std::string torn_;
  int write_error_ = 0;  // why the file may not be written to
};

}  // namespace kvfork::cli
