// Ways to raise kvfork::Error: formatted, and from errno.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "kvfork/error.h"

namespace kvfork::base {

/// Throws Error{code} with a fmt-formatted message "SUBJECT: ...".
template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws the Error that stands for `error_number` (an errno value): NotFound for ENOENT and ENOTDIR, Io
/// otherwise. Message: "SUBJECT: cannot ACTION: strerror". The one place where errno becomes an Error.
[[noreturn]] void fail_errno(std::string_view subject, std::string_view action, int error_number);

/// Inside of a handler: throws what the exception at hand becomes, or the exception itself.
[[noreturn]] void rethrow_as_error();

/// Runs `call` and lets only Error out of it where the library itself fails: refused memory and sizes that no
/// memory has become Error{Limit}, what the standard library says of the system Error{Io}. The public functions are
/// made with it. What a caller's callback throws passes through, but for exceptions of these kinds.
template <class Call>
decltype(auto) only_errors(Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (...) {
    rethrow_as_error();
  }
}

}  // namespace kvfork::base
