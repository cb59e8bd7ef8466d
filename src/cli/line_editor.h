// Reading lines from a terminal, with a cursor and a history.
//
// The prompt and the line are drawn on standard error. A dumb terminal reads plain lines. Thread rule: one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace kvfork::cli {

class LineEditor {
 public:
  /// The next line without its newline; empty after Ctrl-C; nothing at the end of the input (Ctrl-D).
  std::optional<std::string> read(const std::string& prompt);

 private:
  enum class Step { Continue, Done, End };

  std::optional<std::string> read_plain();
  Step take_key(unsigned char key);
  void take_escape();
  void take_character(unsigned char first);
  void recall(size_t place);
  void erase_to(size_t begin);
  void draw() const;

  std::vector<std::string> history_;
  size_t recalled_ = 0;  // place in the history; its size: the new line
  std::string prompt_;
  std::vector<std::string> characters_;  // of the line, one UTF-8 character each
  size_t cursor_ = 0;
};

}  // namespace kvfork::cli
