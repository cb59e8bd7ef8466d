// Calls that fail on purpose: the n-th allocation, or the n-th call of a function of the system.
//
// This binary defines operator new and these functions itself, so that everything in it comes through here. One
// fault at a time; any thread may run into it.
#pragma once

#include <cstddef>

namespace kvfork::test {

enum class Failing { Allocation, Mmap, Mprotect, Pread, Pwritev };
inline constexpr Failing kEveryFailing[] = {Failing::Allocation, Failing::Mmap, Failing::Mprotect, Failing::Pread,
                                            Failing::Pwritev};
const char* name_of(Failing kind) noexcept;

/// What fails are calls of the library: those while one of these lives with `value`. A callback that the library
/// calls says that it is the test's own.
class InLibrary {
 public:
  explicit InLibrary(bool value = true) noexcept;
  ~InLibrary();
  InLibrary(const InLibrary&) = delete;
  InLibrary& operator=(const InLibrary&) = delete;

 private:
  bool before_;
};

/// A call of the library.
template <class Call>
decltype(auto) lib(const Call& call) {
  const InLibrary inside;
  return call();
}

/// Lets the n-th call of its kind fail, counted from 0, while it lives; later ones do not.
class Fault {
 public:
  Fault(Failing kind, size_t n) noexcept;
  ~Fault();
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;

  /// Whether that call came.
  bool has_struck() const noexcept;
};

}  // namespace kvfork::test
