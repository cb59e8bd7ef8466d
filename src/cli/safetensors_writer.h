// Writes the result file of `kvfork score`: float32 logits and int64 ids in safetensors format, row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cli/replaced_file.h"

namespace kvfork::cli {

class LogitsFile {
 public:
  /// For logits [ids.size(), vocab_size]. Throws Error{InvalidArgument} for an empty path, and as ReplacedFile.
  LogitsFile(const std::string& path, std::span<const int32_t> ids, size_t vocab_size);

  /// The next rows, in order. Throws as ReplacedFile.
  void add(std::span<const float> rows) { file_.write(rows.data(), rows.size_bytes()); }
  /// The file takes its name. Throws as ReplacedFile.
  void finish() { file_.finish(); }

 private:
  ReplacedFile file_;
};

}  // namespace kvfork::cli
