// Finding a model on the disk or at the Hub.
#include "cli/hub_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "cli/json_object.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "kvfork/compatibility.h"
#include "kvfork/error.h"

namespace kvfork::cli {
namespace {

// As huggingface_hub reads it.
bool progress_bars_disabled() {
  const char* value = std::getenv("HF_HUB_DISABLE_PROGRESS_BARS");
  if (value == nullptr) return false;
  std::string text(value);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return text == "1" || text == "ON" || text == "YES" || text == "TRUE";
}

}  // namespace

PullDisplay::PullDisplay(Progress::Show show) : show_(progress_bars_disabled() ? Progress::Show::Never : show) {}

void PullDisplay::attach(PullOptions& options) {
  options.on_progress = [this](const PullProgress& pulled) {
    if (pulled.total == 0) return;
    constexpr uint64_t kLargeBytes = uint64_t{100} << 20;
    if (!is_announced_ && pulled.total - pulled.done >= kLargeBytes) {
      is_announced_ = true;
      if (progress_) progress_->erase();
      print_note("kvfork: downloading {} from the Hub", show_bytes(pulled.total - pulled.done));
    }
    if (!progress_) progress_.emplace("pull", show_, Progress::Unit::Bytes);
    progress_->set_detail(pulled.file);
    progress_->update(pulled.done, pulled.total);
  };
  options.on_notice = [this](const std::string& text) {
    if (progress_) progress_->erase();
    print_warning(text);
  };
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
  if (ref && model.find('/') == std::string::npos) {
    throw Error(
        ErrorCode::NotFound,
        fmt::format("{0}: expected a directory or a file, found none of that name here; a model of the Hub has "
                    "the form ORG/NAME",
                    model));
  }
  if (!ref || model.ends_with(".gguf") || model.starts_with('/') || model.starts_with('.')) {
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
