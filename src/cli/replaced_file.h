// A file that a command writes: it takes its name when it is whole, and what had the name before stays until then.
//
// A device or a pipe is written to as it is; of a symbolic link the target is replaced. Whatever ends the process
// before finish(), nothing is left, except on file systems without unnamed files: there a process that is killed
// leaves .NAME.PID.tmp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvfork::cli {

class ReplacedFile {
 public:
  /// Throws Error{NotFound, Io}, as all of them do, naming the path.
  explicit ReplacedFile(const std::string& path);
  ~ReplacedFile();
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;

  void write(const void* data, size_t n_bytes);
  /// Once, at the end; on return the file has its name and has reached the disk.
  void finish();
  /// The same after all of the content.
  void finish(std::string_view content);

 private:
  void open();
  void discard() noexcept;
  [[noreturn]] void fail(const char* action);

  std::string path_;
  std::string target_;     // path_, or what a link there leads to
  std::string temporary_;  // beside target_
  bool in_place_ = false;
  bool has_name_ = false;  // temporary_ exists
  int file_ = -1;
};

}  // namespace kvfork::cli
