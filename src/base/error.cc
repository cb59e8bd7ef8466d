// From errno to Error.
#include "base/error.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <system_error>

#include "base/check.h"

namespace kvfork::base {

void check_failed(const char* condition, const char* file, int line) noexcept {
  std::fprintf(stderr, "kvfork: internal error: %s:%d: %s does not hold\n", file, line, condition);
  std::abort();
}

namespace {

// Made before memory can be short: a copy of it allocates nothing.
const Error kMemoryRefused(ErrorCode::Limit, "memory: the system refused an allocation");

}  // namespace

void rethrow_as_error() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::Io, error.what());
  }
  throw Error(kMemoryRefused);
}

void fail_errno(std::string_view subject, std::string_view action, int error_number) {
  const bool missing = error_number == ENOENT || error_number == ENOTDIR;
  fail(missing ? ErrorCode::NotFound : ErrorCode::Io, "{}: cannot {}: {}", subject, action,
       std::generic_category().message(error_number));
}

}  // namespace kvfork::base
