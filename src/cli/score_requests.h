// `kvfork score --in`: continuations of many contexts as JSONL, scored as a tree of what they share.
#pragma once

#include <memory>
#include <string>

#include "cli/progress.h"
#include "kvfork/model.h"

namespace kvfork::cli {

/// Reads the requests from the file, or standard input for "-", and writes one line per request to standard output,
/// in their order. Returns the exit code: 1 where lines have errors.
int score_requests(const std::shared_ptr<const Model>& model, const std::string& file, bool add_special_tokens,
                   Progress::Show show);

}  // namespace kvfork::cli
