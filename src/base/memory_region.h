// Anonymous page-aligned memory that can be made read-only.
//
// Owns its pages; move-only. Thread rule: the bytes are the owner's to guard; `make_read_only` needs that no
// other thread is writing.
#pragma once

#include <cstddef>
#include <string_view>

namespace kvfork::base {

class MemoryRegion {
 public:
  /// `n_bytes` of zeroed memory, committed page by page at first touch. Throws Error{Limit} naming
  /// `subject` when the system refuses.
  static MemoryRegion allocate(size_t n_bytes, std::string_view subject);

  MemoryRegion() = default;
  MemoryRegion(MemoryRegion&& other) noexcept;
  MemoryRegion& operator=(MemoryRegion&& other) noexcept;
  ~MemoryRegion();

  std::byte* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }

  /// From now on a write to any page of the region faults.
  void make_read_only();

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace kvfork::base
