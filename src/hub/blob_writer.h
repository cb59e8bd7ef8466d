// The unfinished file of one blob: appends bytes to it and hashes them on a second thread.
//
// The file on disk is always a prefix of the blob, as huggingface_hub expects of BLOB.incomplete, so either side
// can go on from it. Memory is bounded by a few blocks. Thread rule: one thread at a time; holding the blob's lock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace kvfork::hub {

class BlobWriter {
 public:
  /// Opens or creates `path` and takes over what it holds. Content beyond `max_bytes` makes it start empty.
  /// Throws Error{Io}. With `hash`, the old content is read once.
  enum class Hash { Sha256, None };
  BlobWriter(std::filesystem::path path, uint64_t max_bytes, Hash hash);
  ~BlobWriter();
  BlobWriter(const BlobWriter&) = delete;
  BlobWriter& operator=(const BlobWriter&) = delete;

  uint64_t size() const { return size_; }  ///< bytes taken, on disk or about to be

  /// Throws Error{Io}, also when the disk is full.
  void append(std::string_view bytes);
  /// Hands everything taken so far to the file.
  void flush();
  /// Forgets the content.
  void clear();
  /// Hex SHA-256 of the content. Needs Hash::Sha256; ends hashing until `clear`.
  std::string sha256();
  /// Makes the content durable and gives it its name. (The name itself may still be lost with the power: then the
  /// unfinished file is whole.)
  void publish(const std::filesystem::path& name);
  /// Deletes the unfinished file.
  void remove() noexcept;

  const std::filesystem::path& path() const { return path_; }

 private:
  class Hasher;
  void hash_existing();

  std::filesystem::path path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  uint64_t write_back_from_ = 0;
  std::string block_;
  std::unique_ptr<Hasher> hasher_;
};

}  // namespace kvfork::hub
