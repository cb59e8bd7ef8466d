// Keys, the line and its drawing.
#include "cli/line_editor.h"

#include <fmt/format.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/utf8.h"
#include "base/visible_text.h"
#include "cli/terminal.h"

namespace kvfork::cli {
namespace {

constexpr unsigned char control(char letter) {
  return static_cast<unsigned char>(letter - '@');
}

constexpr unsigned char kEscape = 0x1B;
constexpr unsigned char kDelete = 0x7F;

// Key by key and without echo, for as long as it lives.
class RawMode {
 public:
  RawMode() {
    ::tcgetattr(STDIN_FILENO, &old_);
    termios raw = old_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_iflag &= ~static_cast<tcflag_t>(IXON);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  }
  ~RawMode() { ::tcsetattr(STDIN_FILENO, TCSADRAIN, &old_); }
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;

 private:
  termios old_{};
};

std::optional<unsigned char> read_byte() {
  unsigned char byte = 0;
  ssize_t n = 0;
  do {
    n = ::read(STDIN_FILENO, &byte, 1);
  } while (n < 0 && errno == EINTR);
  return n == 1 ? std::optional(byte) : std::nullopt;
}

std::vector<std::string> split_characters(const std::string& text) {
  std::vector<std::string> characters;
  for (size_t position = 0; position < text.size();) {
    const size_t n = base::decode_utf8(text, position).n_bytes;
    characters.push_back(text.substr(position, n));
    position += n;
  }
  return characters;
}

std::string join(const std::vector<std::string>& characters, size_t begin, size_t end) {
  std::string text;
  for (size_t i = begin; i < end; ++i) text += characters[i];
  return text;
}

}  // namespace

std::optional<std::string> LineEditor::read(const std::string& prompt) {
  prompt_ = prompt;
  if (is_dumb_terminal() || ::isatty(STDERR_FILENO) != 1) return read_plain();
  const RawMode raw;
  characters_.clear();
  cursor_ = 0;
  recalled_ = history_.size();
  draw();
  for (;;) {
    const auto key = read_byte();
    const Step step = key ? take_key(*key) : Step::End;
    if (step == Step::Continue) {
      draw();
      continue;
    }
    fmt::print(stderr, "\n");
    if (step == Step::End) return std::nullopt;
    std::string line = join(characters_, 0, characters_.size());
    if (!line.empty() && (history_.empty() || history_.back() != line)) history_.push_back(line);
    return line;
  }
}

std::optional<std::string> LineEditor::read_plain() {
  fmt::print(stderr, "{}", prompt_);
  std::fflush(stderr);
  std::string line;
  for (;;) {
    const auto byte = read_byte();
    if (!byte && line.empty()) return std::nullopt;
    if (!byte || *byte == '\n') return line;
    line += static_cast<char>(*byte);
  }
}

LineEditor::Step LineEditor::take_key(unsigned char key) {
  switch (key) {
    case '\r':
    case '\n':
      return Step::Done;
    case control('C'):
      characters_.clear();
      cursor_ = 0;
      return Step::Done;
    case control('D'):
      if (characters_.empty()) return Step::End;
      if (cursor_ < characters_.size()) characters_.erase(characters_.begin() + static_cast<ptrdiff_t>(cursor_));
      return Step::Continue;
    case control('H'):
    case kDelete:
      erase_to(cursor_ == 0 ? 0 : cursor_ - 1);
      return Step::Continue;
    case control('U'):
      erase_to(0);
      return Step::Continue;
    case control('W'): {
      size_t begin = cursor_;
      while (begin > 0 && characters_[begin - 1] == " ") --begin;
      while (begin > 0 && characters_[begin - 1] != " ") --begin;
      erase_to(begin);
      return Step::Continue;
    }
    case control('K'):
      characters_.resize(cursor_);
      return Step::Continue;
    case control('A'):
      cursor_ = 0;
      return Step::Continue;
    case control('E'):
      cursor_ = characters_.size();
      return Step::Continue;
    case control('P'):
      if (recalled_ > 0) recall(recalled_ - 1);
      return Step::Continue;
    case control('N'):
      if (recalled_ < history_.size()) recall(recalled_ + 1);
      return Step::Continue;
    case kEscape:
      take_escape();
      return Step::Continue;
    default:
      if (key >= 0x20) take_character(key);
      return Step::Continue;
  }
}

// "ESC [ letter" or "ESC [ number ~"; anything else is ignored.
void LineEditor::take_escape() {
  const auto bracket = read_byte();
  if (!bracket || (*bracket != '[' && *bracket != 'O')) return;
  std::string parameters;
  auto last = read_byte();
  while (last && *last < '@') {
    parameters += static_cast<char>(*last);
    last = read_byte();
  }
  if (!last) return;
  const size_t n = characters_.size();
  if (*last == 'A' && recalled_ > 0) recall(recalled_ - 1);
  if (*last == 'B' && recalled_ < history_.size()) recall(recalled_ + 1);
  if (*last == 'C' && cursor_ < n) ++cursor_;
  if (*last == 'D' && cursor_ > 0) --cursor_;
  if (*last == 'H' || (*last == '~' && (parameters == "1" || parameters == "7"))) cursor_ = 0;
  if (*last == 'F' || (*last == '~' && (parameters == "4" || parameters == "8"))) cursor_ = n;
  if (*last == '~' && parameters == "3" && cursor_ < n)
    characters_.erase(characters_.begin() + static_cast<ptrdiff_t>(cursor_));
}

void LineEditor::take_character(unsigned char first) {
  std::string character(1, static_cast<char>(first));
  const size_t n = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  while (character.size() < n) {
    const auto next = read_byte();
    if (!next) break;
    character += static_cast<char>(*next);
  }
  characters_.insert(characters_.begin() + static_cast<ptrdiff_t>(cursor_), std::move(character));
  ++cursor_;
}

void LineEditor::recall(size_t place) {
  recalled_ = place;
  characters_ = place < history_.size() ? split_characters(history_[place]) : std::vector<std::string>();
  cursor_ = characters_.size();
}

void LineEditor::erase_to(size_t begin) {
  characters_.erase(characters_.begin() + static_cast<ptrdiff_t>(begin),
                    characters_.begin() + static_cast<ptrdiff_t>(cursor_));
  cursor_ = begin;
}

// One line of the terminal; of a longer text, the part around the cursor.
void LineEditor::draw() const {
  const size_t width = terminal_width(STDERR_FILENO) - display_width(prompt_) - 1;
  size_t begin = 0;
  while (begin < cursor_ && display_width(join(characters_, begin, cursor_)) > width) ++begin;
  const std::string before = base::to_visible_text(join(characters_, begin, cursor_));
  const std::string shown =
      cut_to_width(base::to_visible_text(join(characters_, begin, characters_.size())), width);
  fmt::print(stderr, "\r{}{}\033[K\r\033[{}C", prompt_, shown, display_width(prompt_) + display_width(before));
  std::fflush(stderr);
}

}  // namespace kvfork::cli
