#include "cli/hub_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>

#include "cli/json_object.h"
#include "kvfork/compatibility.h"
#include "kvfork/error.h"

namespace kvfork::cli {
namespace {

using Clock = std::chrono::steady_clock;

// As huggingface_hub reads it.
bool progress_bars_disabled() {
  const char* value = std::getenv("HF_HUB_DISABLE_PROGRESS_BARS");
  if (value == nullptr) return false;
  std::string text(value);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return text == "1" || text == "ON" || text == "YES" || text == "TRUE";
}

std::string readable(double n_bytes) {
  const char* unit = "B";
  for (const char* next : {"KB", "MB", "GB", "TB"}) {
    if (n_bytes < 999.5) break;
    n_bytes /= 1000;
    unit = next;
  }
  return fmt::format("{:.{}f} {}", n_bytes, *unit == 'B' ? 0 : 1, unit);
}

std::string readable_time(double seconds) {
  const auto whole = static_cast<long>(std::min(seconds, 359999.0));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{:02}:{:02}", whole / 60, whole % 60);
}

}  // namespace

struct PullDisplay::State {
  struct Sample {
    Clock::time_point time;
    uint64_t done;
  };
  bool shown = false;
  bool drawn = false;
  std::deque<Sample> samples;  // of the last seconds, for the rate
};

PullDisplay::PullDisplay(Progress::Show show) : state_(std::make_unique<State>()) {
  state_->shown = show == Progress::Show::Auto && ::isatty(STDERR_FILENO) == 1 && !progress_bars_disabled();
}

PullDisplay::~PullDisplay() {
  erase();
}

void PullDisplay::attach(PullOptions& options) {
  options.on_progress = [this](const PullProgress& progress) { show(progress); };
  options.on_notice = [this](const std::string& text) {
    erase();
    print_warning(text);
  };
}

void PullDisplay::erase() {
  if (state_->drawn) fmt::print(stderr, "\r\033[K");
  state_->drawn = false;
}

void PullDisplay::show(const PullProgress& progress) {
  constexpr auto kInterval = std::chrono::milliseconds(100);
  constexpr auto kRateWindow = std::chrono::seconds(5);
  constexpr size_t kWidth = 24;
  if (!state_->shown || progress.total == 0) return;
  const auto now = Clock::now();
  auto& samples = state_->samples;
  if (!samples.empty() && now - samples.back().time < kInterval) return;
  samples.push_back({now, progress.done});
  while (samples.size() > 2 && now - samples.front().time > kRateWindow) samples.pop_front();
  const double seconds = std::chrono::duration<double>(now - samples.front().time).count();
  const double moved =
      progress.done > samples.front().done ? static_cast<double>(progress.done - samples.front().done) : 0;
  const double rate = seconds > 0 ? moved / seconds : 0;
  const uint64_t done = std::min(progress.done, progress.total);
  const auto filled = static_cast<size_t>(static_cast<double>(kWidth) * static_cast<double>(done) /
                                          static_cast<double>(progress.total));
  const std::string eta = rate > 0 ? readable_time(static_cast<double>(progress.total - done) / rate) : "--:--";
  fmt::print(stderr, "\r[{:#<{}}{:.<{}}] {} of {}, {}/s, {} left, {:.40}\033[K", "", filled, "", kWidth - filled,
             readable(static_cast<double>(done)), readable(static_cast<double>(progress.total)), readable(rate),
             eta, progress.file);
  state_->drawn = true;
}

void refuse_unsupported(PullOptions& options, const HubRef& ref) {
  options.check_config = [subject = ref.repo_id + ": config.json"](std::string_view text) {
    const auto config = parse_value(text);
    if (!config.is_object()) {
      throw Error(ErrorCode::Corrupt,
                  subject +
                      ": expected a JSON object, found something else; does a proxy or login page answer in "
                      "place of the Hub?");
    }
    if (!config.contains("architectures") && !config.contains("model_type")) return;
    try {
      check_config(text, subject);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::Unsupported) throw;
    }
  };
}

LocatedModel locate_model(const std::string& model, Progress::Show show, PullOptions options,
                          Unsupported unsupported) {
  std::error_code ignored;
  if (std::filesystem::exists(model, ignored)) return {model, std::nullopt, {}};
  const auto ref = HubRef::parse(model);
  if (!ref || model.ends_with(".gguf")) {
    throw Error(
        ErrorCode::NotFound,
        fmt::format("{}: expected a directory, a GGUF file or a Hub id ORG/NAME[@REVISION], found nothing there",
                    model));
  }
  PullDisplay display(show);
  display.attach(options);
  if (unsupported == Unsupported::Refuse) refuse_unsupported(options, *ref);
  const Snapshot snapshot = pull(*ref, options);
  return {snapshot.gguf_path.empty() ? snapshot.directory : snapshot.gguf_path, snapshot.commit,
          snapshot.weights_problem};
}

}  // namespace kvfork::cli
