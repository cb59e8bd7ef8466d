// KVFORK_CHECK(condition): a broken invariant of kvfork itself. Always on; prints file and line and aborts.
// Never for bad input: that throws kvfork::Error.
#pragma once

namespace kvfork::base {
[[noreturn]] void check_failed(const char* condition, const char* file, int line) noexcept;
}

#define KVFORK_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::kvfork::base::check_failed(#condition, __FILE__, __LINE__))
