// Memory straight from the system.
#include "base/memory_region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace kvfork::base {

MemoryRegion MemoryRegion::allocate(size_t n_bytes, std::string_view subject) {
  MemoryRegion region;
  if (n_bytes == 0) return region;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t size = (n_bytes + page - 1) / page * page;
  void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    fail(ErrorCode::Limit, "{}: cannot allocate {} bytes of memory: {}", subject, n_bytes, std::strerror(errno));
  region.data_ = static_cast<std::byte*>(address);
  region.size_ = size;
  return region;
}

MemoryRegion::MemoryRegion(MemoryRegion&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MemoryRegion& MemoryRegion::operator=(MemoryRegion&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MemoryRegion::~MemoryRegion() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void MemoryRegion::make_read_only() {
  if (data_ != nullptr && ::mprotect(data_, size_, PROT_READ) != 0)
    fail_errno("context memory", "make read-only", errno);
}

}  // namespace kvfork::base
