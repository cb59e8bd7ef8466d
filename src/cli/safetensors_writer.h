// Writes the result file of `kvfork score`: float32 logits and int64 ids in safetensors format, row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/new_file.h"

namespace kvfork::cli {

class LogitsFile {
 public:
  /// For logits [ids.size(), vocab_size]. Throws Error{InvalidArgument} for an empty path, and as base::NewFile.
  LogitsFile(const std::string& path, std::span<const int32_t> ids, size_t vocab_size);

  /// The next rows, in order. Throws as base::NewFile.
  void add(std::span<const float> rows) { file_.write(std::as_bytes(rows)); }
  /// The file takes its name. Throws as base::NewFile.
  void finish() { file_.commit(); }

 private:
  base::NewFile file_;
};

}  // namespace kvfork::cli
