// Reader of GGUF files (versions 2 and 3, little-endian): metadata and tensor places, checked in full.
//
// Opening reads the header and touches no weights, so a file of any architecture and any tensor type serves for its
// tokenizer and chat template. A split file (NAME-00001-of-0000N.gguf) is opened whole, its parts found beside it.
// Format: github.com/ggml-org/ggml/blob/master/docs/gguf.md.
// Thread rule: immutable after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "checkpoint/ggml_type.h"

namespace kvfork::checkpoint {

enum class GgufValueType : uint32_t {
  Uint8,
  Int8,
  Uint16,
  Int16,
  Uint32,
  Int32,
  Float32,
  Bool,
  String,
  Array,
  Uint64,
  Int64,
  Float64,
};

/// A metadata value where it lies in the file: `bytes` holds the elements of an array without its head, and a
/// string without its length.
struct GgufValue {
  std::string_view key;
  GgufValueType type = GgufValueType::Uint8;
  GgufValueType element_type = GgufValueType::Uint8;  ///< of an Array
  uint64_t n_elements = 1;
  std::span<const std::byte> bytes;
};

/// A tensor where it lies in the file. `shape` is outermost first, as Hugging Face writes it: the reverse of the
/// file's order, so rows of shape.back() elements are contiguous.
struct GgufTensor {
  std::string name;
  uint32_t type_id = 0;            ///< as in the file
  const GgmlType* type = nullptr;  ///< nullptr for a type that kvfork does not know
  std::vector<uint64_t> shape;
  const std::byte* data = nullptr;
  size_t n_bytes = 0;  ///< 0 when the type is unknown
};

class GgufFile {
 public:
  /// Maps the file, and the other parts when it is one of a split. Views live as long as the returned object.
  /// Throws Error{NotFound, Io, Corrupt, Unsupported}.
  static GgufFile open(const std::filesystem::path& path);

  /// Reads one file from memory that the caller keeps alive. `subject` names it in errors.
  static GgufFile parse(std::span<const std::byte> bytes, std::string_view subject);

  /// The path as given (or the subject of parse), for errors.
  const std::string& subject() const noexcept { return subject_; }

  /// general.architecture: "llama", "qwen2", "gemma3", ... Throws Error{Corrupt} when it is missing.
  std::string_view architecture() const;

  /// All metadata, sorted by key; of a split file, that of its first part.
  std::span<const GgufValue> values() const noexcept { return values_; }
  const GgufValue* find_value(std::string_view key) const noexcept;

  // The value of a key, or nothing when the file does not have it; Error{Corrupt} when it has another type.
  // Integers of any width are read when they fit; find_number reads integers too.
  std::optional<std::string_view> find_string(std::string_view key) const;
  std::optional<int64_t> find_integer(std::string_view key) const;
  std::optional<double> find_number(std::string_view key) const;
  std::optional<bool> find_bool(std::string_view key) const;
  std::optional<std::vector<std::string_view>> find_strings(std::string_view key) const;
  std::optional<std::vector<int32_t>> find_integers(std::string_view key) const;
  std::optional<std::vector<float>> find_numbers(std::string_view key) const;

  /// All tensors of all parts, in file order.
  std::span<const GgufTensor> tensors() const noexcept { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const noexcept;

  size_t file_bytes() const noexcept { return file_bytes_; }

  /// The mappings, in the order of the parts; empty after parse.
  std::span<const base::MappedFile> files() const noexcept { return files_; }

 private:
  void read(std::span<const std::byte> bytes, std::string_view subject, bool is_first);
  void open_other_parts(const std::filesystem::path& path, size_t n_parts);
  void check_tensor_names() const;
  [[noreturn]] void fail_type(const GgufValue& value, std::string_view expected) const;

  std::string subject_;
  std::vector<base::MappedFile> files_;
  std::vector<GgufValue> values_;
  std::vector<GgufTensor> tensors_;
  size_t file_bytes_ = 0;
};

/// Whether the bytes start as a GGUF file does.
bool has_gguf_magic(std::span<const std::byte> bytes) noexcept;

}  // namespace kvfork::checkpoint
