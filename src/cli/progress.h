// The one progress line: how far a stage is, its rate, and how long the rest will take.
//
// Drawn on standard error, only where that is a terminal; never wider than the terminal, and erased when the object
// goes, so that nothing of it stays on the screen. A dumb terminal gets no escape sequences. Thread rule: one call
// at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvfork::cli {

class Progress {
 public:
  enum class Show { Auto, Never };
  /// What update() counts; Tokens and Bytes have a rate.
  enum class Unit { Steps, Tokens, Bytes };

  /// Shows the label at once. A label is a few words; of a path, name_of_path() is enough.
  Progress(std::string label, Show show, Unit unit = Unit::Steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` of `total`, now.
  void update(uint64_t done, uint64_t total);
  /// Tokens beside what update() counts, for a rate.
  void add_tokens(size_t n_tokens);
  /// Starts anew under another label.
  void restart(std::string label);
  /// More words at the end of the line, such as a file.
  void set_detail(std::string detail);
  /// Takes the line away until the next change, so that something else can be printed.
  void erase();

  bool is_shown() const noexcept { return shown_; }

 private:
  using Clock = std::chrono::steady_clock;
  void draw_soon();
  void draw();
  std::string text() const;

  std::string label_;
  std::string detail_;
  bool shown_;
  Unit unit_;
  uint64_t first_done_ = 0;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
  size_t n_tokens_ = 0;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_{};
};

/// From now on SIGINT and SIGTERM take the progress line away before they end the process.
void erase_progress_on_signals();

/// The last part of a path.
std::string name_of_path(const std::string& path);

}  // namespace kvfork::cli
