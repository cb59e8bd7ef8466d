#include "cli/safetensors_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "kvfork/error.h"

namespace kvfork::cli {

LogitsFile::LogitsFile(const std::string& path, std::span<const int32_t> ids, size_t vocab_size)
    : path_(path), target_(path) {
  if (path.empty()) throw Error(ErrorCode::InvalidArgument, "--logits: expected the path of a file, found an empty one");
  // A device or a pipe is written to as it is; a link's target is replaced, not the link.
  std::error_code error;
  in_place_ = std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error);
  if (!in_place_ && std::filesystem::is_symlink(path, error)) target_ = std::filesystem::weakly_canonical(path, error).string();
  temporary_ = in_place_ ? target_ : fmt::format("{}.{}.tmp", target_, ::getpid());
  file_ = std::fopen(temporary_.c_str(), "wb");
  if (file_ == nullptr) fail("create");
  const size_t ids_bytes = ids.size() * sizeof(int64_t);
  const size_t logits_bytes = ids.size() * vocab_size * sizeof(float);
  std::string header = fmt::format(
      R"({{"ids":{{"dtype":"I64","shape":[{0}],"data_offsets":[0,{1}]}},)"
      R"("logits":{{"dtype":"F32","shape":[{0},{2}],"data_offsets":[{1},{3}]}}}})",
      ids.size(), ids_bytes, vocab_size, ids_bytes + logits_bytes);
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t header_bytes = header.size();
  write(&header_bytes, sizeof(header_bytes));
  write(header.data(), header.size());
  const std::vector<int64_t> wide(ids.begin(), ids.end());
  write(wide.data(), ids_bytes);
}

LogitsFile::~LogitsFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  discard();
}

void LogitsFile::add(std::span<const float> rows) { write(rows.data(), rows.size_bytes()); }

void LogitsFile::finish() {
  if (std::fflush(file_) != 0 || (!in_place_ && ::fsync(::fileno(file_)) != 0)) fail("write");
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (!closed || (!in_place_ && std::rename(temporary_.c_str(), target_.c_str()) != 0)) {
    const int error_number = errno;
    discard();
    errno = error_number;
    fail("write");
  }
}

void LogitsFile::discard() {
  if (!in_place_) std::remove(temporary_.c_str());
}

void LogitsFile::write(const void* data, size_t n_bytes) {
  if (std::fwrite(data, 1, n_bytes, file_) != n_bytes) fail("write");
}

void LogitsFile::fail(const char* action) {
  const Error error(ErrorCode::Io, fmt::format("{}: cannot {}: {}", path_, action, std::strerror(errno)));
  if (file_ != nullptr) {
    std::fclose(std::exchange(file_, nullptr));
    discard();
  }
  throw error;
}

}  // namespace kvfork::cli
