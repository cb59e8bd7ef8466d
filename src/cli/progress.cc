// Drawing the progress line within the width of the terminal.
#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/visible_text.h"
#include "cli/numbers.h"
#include "cli/terminal.h"

namespace kvfork::cli {
namespace {

constexpr size_t kBarWidth = 30;
constexpr auto kInterval = std::chrono::milliseconds(100);

std::string bar(uint64_t done, uint64_t total, size_t width) {
  const auto filled = static_cast<size_t>(static_cast<double>(width) * static_cast<double>(std::min(done, total)) /
                                          static_cast<double>(total));
  return fmt::format(" [{:#<{}}{:.<{}}]", "", filled, "", width - filled);
}

// Columns of the line that stands on the screen; 0: none. One for the process, since a signal handler reads it.
volatile std::sig_atomic_t drawn_width = 0;

void erase_and_end(int signal) {
  // Only what may be called in a signal handler.
  if (drawn_width > 0) {
    const bool is_plain = is_dumb_terminal();
    const char* start = is_plain ? "\r" : "\r\033[K";
    ssize_t ignored = ::write(STDERR_FILENO, start, std::strlen(start));
    for (int i = 0; is_plain && i < drawn_width; ++i) ignored = ::write(STDERR_FILENO, " ", 1);
    if (is_plain) ignored = ::write(STDERR_FILENO, "\r", 1);
    (void)ignored;
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

void erase_progress_on_signals() {
  for (const int signal : {SIGINT, SIGTERM}) {
    if (std::signal(signal, erase_and_end) == SIG_IGN) std::signal(signal, SIG_IGN);  // as nohup left it
  }
}

Progress::Progress(std::string label, Show show, Unit unit)
    : label_(std::move(label)), shown_(show == Show::Auto && ::isatty(STDERR_FILENO) == 1), unit_(unit) {
  if (shown_) draw();
}

Progress::~Progress() {
  erase();
}

void Progress::update(uint64_t done, uint64_t total) {
  if (!shown_ || total == 0) return;
  if (total_ == 0) {
    first_done_ = unit_ == Unit::Tokens ? 0 : done;
    start_ = unit_ == Unit::Tokens ? start_ : Clock::now();
  }
  done_ = done;
  total_ = total;
  draw_soon();
}

void Progress::add_tokens(size_t n_tokens) {
  n_tokens_ += n_tokens;
  draw_soon();
}

void Progress::restart(std::string label) {
  label_ = std::move(label);
  detail_.clear();
  first_done_ = done_ = total_ = 0;
  n_tokens_ = 0;
  start_ = Clock::now();
  if (shown_) draw();
}

void Progress::set_detail(std::string detail) {
  detail_ = std::move(detail);
}

void Progress::draw_soon() {
  if (shown_ && Clock::now() - drawn_ >= kInterval) draw();
}

// The line without its bar.
std::string Progress::text() const {
  const double seconds = std::max(std::chrono::duration<double>(Clock::now() - start_).count(), 1e-3);
  std::string text;
  if (total_ > 0)
    text = unit_ == Unit::Bytes ? fmt::format(" {} of {}", show_bytes(done_), show_bytes(total_))
                                : fmt::format(" {}/{}", done_, total_);
  const uint64_t moved = done_ > first_done_ ? done_ - first_done_ : 0;
  const double rate = static_cast<double>(moved) / seconds;
  if (unit_ == Unit::Bytes && moved > 0) {
    text += fmt::format(", {}/s", show_bytes(static_cast<uint64_t>(rate)));
  } else if (unit_ == Unit::Tokens || n_tokens_ > 0) {
    const double tokens = unit_ == Unit::Tokens ? rate : static_cast<double>(n_tokens_) / seconds;
    text += fmt::format("{} {:.1f} tokens/s", text.empty() ? "" : ",", tokens);
  }
  if (moved > 0 && total_ > done_) {
    const auto left = static_cast<long>(static_cast<double>(total_ - done_) / rate);
    text += fmt::format(", {}:{:02}:{:02} left", left / 3600, left / 60 % 60, left % 60);
  }
  if (!detail_.empty()) text += ", " + detail_;
  return text;
}

void Progress::draw() {
  drawn_ = Clock::now();
  const size_t width = terminal_width(STDERR_FILENO) - 1;  // the cursor stands in the last column
  const std::string label = base::to_visible_text(label_);
  std::string text = base::to_visible_text(this->text());
  const size_t n_words = display_width(label) + display_width(text);
  constexpr size_t kFrame = 3;
  if (total_ > 0 && n_words + kFrame + 5 <= width)
    text = bar(done_, total_, std::min(kBarWidth, width - n_words - kFrame)) + text;
  if (text.empty()) text = " ...";
  const std::string line = cut_to_width(label + text, width);
  const size_t n = display_width(line);
  if (is_dumb_terminal()) {
    fmt::print(stderr, "\r{}{:{}}", line, "",
               static_cast<size_t>(drawn_width) > n ? static_cast<size_t>(drawn_width) - n : 0);
  } else {
    fmt::print(stderr, "\r{}\033[K", line);
  }
  std::fflush(stderr);
  drawn_width = static_cast<int>(std::max<size_t>(n, 1));
}

void Progress::erase() {
  if (!shown_ || drawn_width == 0) return;
  if (is_dumb_terminal()) {
    fmt::print(stderr, "\r{:{}}\r", "", static_cast<size_t>(drawn_width));
  } else {
    fmt::print(stderr, "\r\033[K");
  }
  drawn_width = 0;
}

std::string name_of_path(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return path;
  const size_t slash = path.find_last_of('/', end);
  const size_t begin = slash == std::string::npos ? 0 : slash + 1;
  return path.substr(begin, end + 1 - begin);
}

}  // namespace kvfork::cli
