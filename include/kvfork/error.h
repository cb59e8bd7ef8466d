// The one exception type that kvfork throws.
//
// The message reads "SUBJECT: what was expected, what was found; hint", with a path or byte position where one is
// known. Where memory is refused or a size cannot be, the library throws an Error too (Limit), and so it does where
// the operating system refuses a thread or a file (Io).
// What a caller's own function (a callback) throws passes through a call unchanged. Three types are exceptions,
// since they cannot be told from the library's own failures: std::bad_alloc and std::length_error arrive as
// Error{Limit}, std::system_error as Error{Io}.
// Thread rule: values, safe to copy and rethrow across threads.
#pragma once

#include <stdexcept>
#include <string>

namespace kvfork {

/// What kind of failure this is. Command-line exit codes follow from it: Boundary, Parity and Isolation
/// exit 3, everything else 1 (usage errors, exit 2, never leave the command line).
enum class ErrorCode {
  NotFound,         ///< a file, tensor, repository or name that is not there
  Corrupt,          ///< bytes that break their format
  Unsupported,      ///< well-formed, but something kvfork does not run
  InvalidArgument,  ///< a value the caller gave is out of range or malformed
  Io,               ///< the operating system refused
  Network,          ///< a transfer failed
  Template,         ///< a chat template failed to parse or render
  Limit,            ///< a bound was reached: context length, steps, memory
  Boundary,         ///< the cached tokens are not an exact prefix of the request
  Parity,           ///< cached and uncached results differ
  Isolation,        ///< a context changed after it was sealed
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace kvfork
