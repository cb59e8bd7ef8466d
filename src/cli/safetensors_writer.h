// Writes the result file of `kvfork score`: float32 logits and int64 ids in safetensors format, row by row.
//
// Rows go to a temporary file beside the target, which takes its place when finished; an unfinished one is removed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

namespace kvfork::cli {

class LogitsFile {
 public:
  /// For logits [ids.size(), vocab_size]. Throws Error{Io}.
  LogitsFile(const std::string& path, std::span<const int32_t> ids, size_t vocab_size);
  ~LogitsFile();
  LogitsFile(const LogitsFile&) = delete;
  LogitsFile& operator=(const LogitsFile&) = delete;

  /// The next rows, in order. Throws Error{Io}.
  void add(std::span<const float> rows);
  /// Syncs and renames. Throws Error{Io}.
  void finish();

 private:
  void write(const void* data, size_t n_bytes);
  [[noreturn]] void fail(const char* action);

  void discard();

  std::string path_;
  std::string target_;     // path_, or what a link there leads to
  std::string temporary_;  // target_ itself when that is no regular file
  bool in_place_ = false;
  std::FILE* file_ = nullptr;
};

}  // namespace kvfork::cli
