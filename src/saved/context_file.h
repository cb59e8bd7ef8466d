// A saved context, opened: its header and small tensors read and checked, its keys and values mapped.
//
// Immutable; keeps file and mapping open. Thread rule: any thread. Keys and values may be read through blocks()
// once expect_sound has returned; it compares every byte with its checksum at the first call and later sees to it
// that the file is still what it was. A file that is cut while a pass reads it raises SIGBUS: there is no way
// around that.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "checkpoint/safetensors.h"
#include "engine/context_state.h"
#include "model/kv_cache.h"
#include "saved/context_format.h"

namespace kvfork::saved {

class ContextFile final : public engine::ContextStorage, public std::enable_shared_from_this<ContextFile> {
 public:
  /// Throws Error{NotFound, Io, Corrupt}; Error{InvalidArgument} for another format version.
  static std::shared_ptr<ContextFile> open(const std::filesystem::path& path);

  const std::string& path() const noexcept override { return mapped_.path(); }
  uint64_t size() const noexcept { return mapped_.stamp().size; }
  const ContextHeader& header() const noexcept { return header_; }
  const std::shared_ptr<const model::StateLayout>& layout() const noexcept { return layout_; }  // rows alone
  size_t n_state_floats() const noexcept { return n_state_floats_; }
  /// Whether its tensors have the shapes that this layout gives them.
  bool has_shape_of(const model::StateLayout& layout) const noexcept;
  const std::vector<int32_t>& ids() const noexcept { return ids_; }      // [n_tokens]
  const std::vector<float>& logits() const noexcept { return logits_; }  // [vocab_size]

  /// The same, handed over: whoever opened the file keeps them.
  std::vector<int32_t> take_ids() { return std::move(ids_); }
  std::vector<float> take_logits() { return std::move(logits_); }

  /// The blocks of its own, from header().first_block on.
  /// `layout` is that of the model, which also counts last layers without rows. Not before has_shape_of(layout).
  std::vector<model::KvBlock> blocks(const model::StateLayout& layout);
  /// The states of its own. They keep the file open.
  std::vector<model::States> states() const;

  /// Compares every byte with its checksum. Throws Error{Corrupt} naming the part, Error{Io}.
  void check(const base::ThreadPool& pool) const override;

  /// The first call, and the first after the file's times have changed: check. Every call: throws Error{Corrupt}
  /// when the file is no longer as long as it was.
  void expect_sound(const base::ThreadPool& pool) const override;

 private:
  // Bytes with one checksum: the header, a tensor, or a row of one.
  struct Unit {
    uint64_t offset;
    size_t n_bytes;
    const checkpoint::TensorView* tensor;  // null: the header
    size_t row;
  };

  ContextFile() = default;
  void list_units();
  size_t count_layers() const;
  void read_layout();
  void expect_rows(const checkpoint::TensorView& first);
  void read_states();
  void read_table();
  void read_small_tensors();
  const checkpoint::TensorView& get_tensor(const std::string& name, checkpoint::DType dtype) const;
  uint64_t offset_of(const checkpoint::TensorView& tensor) const;
  void read_unit(const Unit& unit, std::span<std::byte> to) const;
  const Unit& unit_of(const checkpoint::TensorView& tensor) const;
  std::string describe(const Unit& unit) const;
  void compare_all(const base::ThreadPool& pool) const;
  base::FileStamp stamp_of_same_size() const;
  void expect_checksum(size_t unit, uint64_t found) const;

  base::MappedFile mapped_;
  checkpoint::Safetensors tensors_;
  ContextHeader header_;
  std::shared_ptr<const model::StateLayout> layout_;
  model::BlockPlaces places_;  // of its blocks
  size_t n_blocks_ = 0;        // of its own
  size_t n_row_tensors_ = 0;
  size_t n_state_floats_ = 0;
  std::vector<size_t> states_;  // their positions
  std::vector<Unit> units_;
  std::vector<uint64_t> table_;  // a checksum for each unit, and one of these
  std::vector<int32_t> ids_;
  std::vector<float> logits_;
  mutable std::mutex mutex_;
  mutable std::optional<int64_t> checked_mtime_ns_;  // the file's time when every byte was right
};

}  // namespace kvfork::saved
