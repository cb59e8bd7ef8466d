// `kvfork tokenize --boundary`: the join between a context and its requests.
#pragma once

#include <string>
#include <vector>

#include "cli/output.h"
#include "kvfork/prompt.h"

namespace kvfork::cli {

enum class Format { Table, Json };

/// Shows where the context ends, what follows in each request, and whether the context serves it. Returns the exit
/// code: 3 when a request is refused.
int show_boundary(const Prompter& prompter, BoundaryMode mode, const std::vector<std::string>& prompts,
                  Format format);

}  // namespace kvfork::cli
