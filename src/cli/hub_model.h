// --model as every command takes it: a directory, a GGUF file, or a Hub id that is pulled first.
#pragma once

#include <optional>
#include <string>

#include "cli/progress.h"
#include "kvfork/hub.h"

namespace kvfork::cli {

struct LocatedModel {
  std::string path;                     ///< a directory or a GGUF file
  std::optional<std::string> revision;  ///< the resolved commit, of a Hub model
  std::string weights_problem;          ///< Snapshot::weights_problem
};

enum class Unsupported { Refuse, Take };

/// The path itself when it exists; otherwise a Hub id, pulled with a progress bar and notices on standard error.
/// With Unsupported::Refuse, what refuse_unsupported refuses ends it. Throws Error{NotFound} for text that is
/// neither.
LocatedModel locate_model(const std::string& model, Progress::Show show, PullOptions options = {},
                          Unsupported unsupported = Unsupported::Refuse);

/// Makes the pull of `ref` end before its weights when kvfork cannot run the model. A config.json that names no
/// architecture does not end it: opening the model will say so.
void refuse_unsupported(PullOptions& options, const HubRef& ref);

/// Notices and the progress line on standard error for a pull. Must outlive it.
class PullDisplay {
 public:
  explicit PullDisplay(Progress::Show show);
  void attach(PullOptions& options);

 private:
  Progress::Show show_;
  bool is_announced_ = false;         // the size of a large download
  std::optional<Progress> progress_;  // from the first byte on
};

}  // namespace kvfork::cli
