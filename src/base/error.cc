// From errno to Error.
#include "base/error.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "base/check.h"

namespace kvfork::base {

void check_failed(const char* condition, const char* file, int line) noexcept {
  std::fprintf(stderr, "kvfork: internal error: %s:%d: %s does not hold\n", file, line, condition);
  std::abort();
}

void fail_errno(std::string_view subject, std::string_view action, int error_number) {
  const bool missing = error_number == ENOENT || error_number == ENOTDIR;
  fail(missing ? ErrorCode::NotFound : ErrorCode::Io, "{}: cannot {}: {}", subject, action,
       std::generic_category().message(error_number));
}

}  // namespace kvfork::base
