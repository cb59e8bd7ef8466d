// What the tool warns about on standard error.
#pragma once

#include <string>
#include <vector>

#include "kvfork/prompt.h"

namespace kvfork::cli {

/// Bytes that a vocabulary cannot express and that were dropped; control tokens in the user's words.
void warn_about(const Prompt& prompt);

/// Control tokens in the user's words that are read as such, each once in the life of the process and the first few
/// alone.
void warn_about_control_tokens(const std::vector<std::string>& tokens);

}  // namespace kvfork::cli
