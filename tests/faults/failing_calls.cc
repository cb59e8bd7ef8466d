// The functions that fail: each counts its calls while a fault is armed, and else does what it always does.
#include "tests/faults/failing_calls.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

namespace kvfork::test {
namespace {

std::atomic<int> armed{-1};  // the kind that is to fail
std::atomic<size_t> n_before{0};
std::atomic<bool> struck{false};
std::atomic<bool> is_inside{false};

bool fails(Failing kind) noexcept {
  if (armed.load(std::memory_order_relaxed) != static_cast<int>(kind) || !is_inside) return false;
  if (n_before.fetch_sub(1) != 0) return false;
  armed = -1;
  struck = true;
  return true;
}

}  // namespace

const char* name_of(Failing kind) noexcept {
  switch (kind) {
    case Failing::Allocation:
      return "allocation";
    case Failing::Mmap:
      return "mmap";
    case Failing::Mprotect:
      return "mprotect";
    case Failing::Pread:
      return "pread";
    case Failing::Pwritev:
      return "pwritev";
  }
  return "";
}

InLibrary::InLibrary(bool value) noexcept : before_(is_inside.exchange(value)) {}
InLibrary::~InLibrary() {
  is_inside = before_;
}

Fault::Fault(Failing kind, size_t n) noexcept {
  struck = false;
  n_before = n;
  armed = static_cast<int>(kind);
}
Fault::~Fault() {
  armed = -1;
}
bool Fault::has_struck() const noexcept {
  return struck;
}

}  // namespace kvfork::test

using kvfork::test::Failing;
using kvfork::test::fails;

void* operator new(std::size_t n_bytes) {
  if (fails(Failing::Allocation)) throw std::bad_alloc();
  void* memory = std::malloc(n_bytes == 0 ? 1 : n_bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t n_bytes, std::align_val_t alignment) {
  if (fails(Failing::Allocation)) throw std::bad_alloc();
  void* memory = nullptr;
  if (::posix_memalign(&memory, static_cast<std::size_t>(alignment), n_bytes) != 0) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t n_bytes, const std::nothrow_t&) noexcept {
  return fails(Failing::Allocation) ? nullptr : std::malloc(n_bytes == 0 ? 1 : n_bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

extern "C" {

void* mmap(void* address, size_t n_bytes, int protection, int flags, int descriptor, off_t offset) noexcept {
  if (fails(Failing::Mmap)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(::syscall(SYS_mmap, address, n_bytes, protection, flags, descriptor, offset));
}

int mprotect(void* address, size_t n_bytes, int protection) noexcept {
  if (fails(Failing::Mprotect)) {
    errno = ENOMEM;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_mprotect, address, n_bytes, protection));
}

ssize_t pread(int descriptor, void* to, size_t n_bytes, off_t offset) {
  if (fails(Failing::Pread)) {
    errno = EIO;
    return -1;
  }
  return ::syscall(SYS_pread64, descriptor, to, n_bytes, offset);
}

ssize_t pwritev(int descriptor, const struct iovec* parts, int n_parts, off_t offset) {
  if (fails(Failing::Pwritev)) {
    errno = ENOSPC;
    return -1;
  }
  return ::syscall(SYS_pwritev, descriptor, parts, n_parts, offset, 0);
}

}  // extern "C"
