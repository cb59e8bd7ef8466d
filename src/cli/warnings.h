// What the tool warns about on standard error.
#pragma once

#include "kvfork/tokenizer.h"

namespace kvfork::cli {

/// Bytes that a vocabulary cannot express and that were dropped.
void warn_about(const EncodeReport& report);

}  // namespace kvfork::cli
