// The built-in context of `kvfork run`.
#pragma once

namespace kvfork::cli {

/// A support policy, used where no context is given.
extern const char* const kDefaultPolicy;

}  // namespace kvfork::cli
