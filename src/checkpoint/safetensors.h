// Reader of one safetensors file: the header checked in full, tensor data used where it lies.
//
// The format (huggingface.co/docs/safetensors): 8 bytes of little-endian header length, a JSON header, then one
// buffer. Everything a reader could be fooled by is refused: a header beyond 100 MB, a header that does not start
// with '{', duplicate keys, sizes that overflow, bytes that disagree with dtype and shape, holes, overlaps, and
// a last offset that is not the end of the file.
// Thread rule: immutable after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "checkpoint/dtype.h"

namespace kvfork::checkpoint {

/// A tensor inside a file. `data` may have any alignment: the format promises none.
struct TensorView {
  std::string name;
  DType dtype = DType::F32;
  std::vector<uint64_t> shape;
  const std::byte* data = nullptr;
  size_t n_bytes = 0;
};

class Safetensors {
 public:
  /// Maps the file; views live as long as the returned object. Throws Error{NotFound, Io, Corrupt, Unsupported}.
  static Safetensors open(const std::filesystem::path& path);

  /// Reads from memory that the caller keeps alive. `subject` names it in errors.
  static Safetensors parse(std::span<const std::byte> bytes, std::string_view subject);

  const TensorView* find_tensor(std::string_view name) const noexcept;

  /// All tensors, sorted by name.
  std::span<const TensorView> tensors() const noexcept { return tensors_; }

  /// The header's __metadata__.
  const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }

  size_t file_bytes() const noexcept { return file_bytes_; }

  /// The mapping; empty after parse.
  const base::MappedFile& file() const noexcept { return file_; }

 private:
  base::MappedFile file_;
  std::vector<TensorView> tensors_;
  std::map<std::string, std::string> metadata_;
  size_t file_bytes_ = 0;
};

}  // namespace kvfork::checkpoint
