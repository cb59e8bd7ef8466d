// Opens a saved context: checks its header and small tensors, maps its keys and values.

#include "saved/context_file.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/checksum.h"
#include "base/error.h"

namespace kvfork::saved {
namespace {

using base::fail;
using checkpoint::DType;
using checkpoint::TensorView;

constexpr const char* kIds = "ids";
constexpr const char* kLogits = "logits";
constexpr const char* kText = "text";
constexpr const char* kChecksums = "checksums";
constexpr size_t kSmallTensors = 4;
constexpr size_t kStateTensors = 2;
constexpr size_t kStateAlignment = 64;
constexpr std::string_view kLayerPrefix = "layers.";

// Bytes that one thread checks at a time: enough to make a read worth its call, few enough to stay in L2.
constexpr size_t kCheckBytes = size_t{256} << 10;

std::string shape_of(const TensorView& tensor) {
  return checkpoint::describe_shape(tensor.shape);
}

}  // namespace

std::shared_ptr<ContextFile> ContextFile::open(const std::filesystem::path& path) {
  std::shared_ptr<ContextFile> opened(new ContextFile);
  opened->mapped_ = base::MappedFile::open(path);
  opened->tensors_ = checkpoint::Safetensors::parse(opened->mapped_.bytes(), opened->path());
  opened->header_ = decode_header(opened->tensors_.metadata(), opened->path());
  opened->list_units();
  opened->read_table();
  opened->read_layout();
  opened->read_small_tensors();
  return opened;
}

uint64_t ContextFile::offset_of(const TensorView& tensor) const {
  return static_cast<uint64_t>(tensor.data - mapped_.bytes().data());
}

const TensorView& ContextFile::get_tensor(const std::string& name, DType dtype) const {
  const TensorView* tensor = tensors_.find_tensor(name);
  if (tensor == nullptr) fail(ErrorCode::Corrupt, "{}: expected the tensor {}, found none", path(), name);
  if (tensor->dtype != dtype)
    fail(ErrorCode::Corrupt, "{}: {}: expected {}, found {}", path(), name, checkpoint::dtype_name(dtype),
         checkpoint::dtype_name(tensor->dtype));
  return *tensor;
}

void ContextFile::list_units() {
  std::vector<const TensorView*> in_order;
  for (const TensorView& tensor : tensors_.tensors()) {
    if (tensor.name != kChecksums) in_order.push_back(&tensor);
  }
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const TensorView* a, const TensorView* b) { return a->data < b->data; });
  uint64_t header_bytes = mapped_.bytes().size();
  for (const TensorView& tensor : tensors_.tensors()) header_bytes = std::min(header_bytes, offset_of(tensor));
  units_.push_back({.offset = 0, .n_bytes = static_cast<size_t>(header_bytes), .tensor = nullptr, .row = 0});
  const size_t n_checksums = get_tensor(kChecksums, DType::U64).n_bytes / sizeof(uint64_t);
  for (const TensorView* tensor : in_order) {
    const bool has_rows =
        (tensor->name.starts_with(kLayerPrefix) || tensor->name == kStates) && !tensor->shape.empty();
    const size_t n_rows = has_rows ? tensor->shape[0] : 1;
    // Each row has a checksum and bytes, so what a file says costs no more than what it holds.
    if (has_rows && (n_rows > tensor->n_bytes || n_rows > n_checksums))
      fail(ErrorCode::Corrupt, "{}: {}: malformed shape", path(), tensor->name);
    const size_t row_bytes = n_rows == 0 ? 0 : tensor->n_bytes / n_rows;
    for (size_t row = 0; row < n_rows; ++row)
      units_.push_back(
          {.offset = offset_of(*tensor) + row * row_bytes, .n_bytes = row_bytes, .tensor = tensor, .row = row});
  }
}

void ContextFile::read_table() {
  const TensorView& tensor = get_tensor(kChecksums, DType::U64);
  if (tensor.shape.size() != 1 || tensor.shape[0] != units_.size() + 1)
    fail(ErrorCode::Corrupt, "{}: {}: expected [{}], found {}", path(), kChecksums, units_.size() + 1,
         shape_of(tensor));
  table_.resize(units_.size() + 1);
  mapped_.file().read_at(offset_of(tensor), std::as_writable_bytes(std::span(table_)));
  const auto checked = std::span<const uint64_t>(table_).first(units_.size());
  if (base::checksum_of(std::as_bytes(checked)) != table_.back())
    fail(ErrorCode::Corrupt, "{}: the checksums do not match their own checksum; the file is damaged", path());
  std::vector<std::byte> header(units_[0].n_bytes);
  mapped_.file().read_at(0, header);
  expect_checksum(0, base::checksum_of(header));
}

// Layers that keep no rows have no tensors, so the highest number says how many layers there are.
size_t ContextFile::count_layers() const {
  constexpr size_t kMostLayers = 4096;
  size_t n_layers = 0;
  for (const TensorView& tensor : tensors_.tensors()) {
    if (!tensor.name.starts_with(kLayerPrefix)) continue;
    const char* number = tensor.name.data() + kLayerPrefix.size();
    size_t layer = kMostLayers;
    std::from_chars(number, tensor.name.data() + tensor.name.size(), layer);
    if (layer >= kMostLayers || (tensor.name != key_tensor_name(layer) && tensor.name != value_tensor_name(layer)))
      fail(ErrorCode::Corrupt, "{}: expected keys and values of layers below {}, found the tensor {}", path(),
           kMostLayers, tensor.name);
    n_layers = std::max(n_layers, layer + 1);
  }
  return n_layers;
}

void ContextFile::read_layout() {
  const size_t n_all = (header_.n_tokens + kernels::kBlockTokens - 1) / kernels::kBlockTokens;
  std::vector<model::LayerState> layers(count_layers());
  const TensorView* first = nullptr;
  for (size_t i = 0; i < layers.size(); ++i) {
    const TensorView* keys = tensors_.find_tensor(key_tensor_name(i));
    if (keys == nullptr) continue;
    if (keys->shape.size() != 5 || (keys->dtype != DType::F32 && keys->dtype != DType::BF16))
      fail(ErrorCode::Corrupt, "{}: {}: expected five dimensions of F32 or BF16, found {}", path(), keys->name,
           shape_of(*keys));
    if (first == nullptr) first = keys;
    layers[i] = {.n_kv_heads = keys->shape[1], .head_dim = keys->shape[3]};
  }
  n_blocks_ = first != nullptr ? first->shape[0] : n_all - std::min(n_all, header_.first_block);
  const bool is_float32 = first == nullptr || first->dtype == DType::F32;
  layout_ = std::make_shared<const model::StateLayout>(std::move(layers),
                                                       is_float32 ? kernels::Element::F32 : kernels::Element::BF16);
  if (first != nullptr) expect_rows(*first);
  read_states();
  const size_t n_others = kSmallTensors + (states_.empty() ? 0 : kStateTensors);
  if (n_row_tensors_ == 0 && states_.empty())
    fail(ErrorCode::Corrupt, "{}: expected keys and values or states of layers, found none", path());
  if (tensors_.tensors().size() != n_row_tensors_ + n_others)
    fail(ErrorCode::Corrupt, "{}: expected {} tensors for {} layers, found {}", path(), n_row_tensors_ + n_others,
         layout_->n_layers(), tensors_.tensors().size());
  if (n_blocks_ == 0 || header_.first_block + n_blocks_ != n_all ||
      header_.parent_id.empty() != (header_.first_block == 0))
    fail(ErrorCode::Corrupt, "{}: {} tokens do not fit {} blocks from block {} on", path(), header_.n_tokens,
         n_blocks_, header_.first_block);
}

void ContextFile::expect_rows(const TensorView& first) {
  const std::byte* next = first.data;
  const auto expect = [&](const std::string& name, const std::vector<uint64_t>& shape) {
    const TensorView& tensor = get_tensor(name, first.dtype);
    if (tensor.shape != shape)
      fail(ErrorCode::Corrupt, "{}: {}: expected {}, found {}", path(), name, checkpoint::describe_shape(shape),
           shape_of(tensor));
    if (tensor.data != next)
      fail(ErrorCode::Corrupt, "{}: {}: expected it right after the tensor before it", path(), name);
    next += tensor.n_bytes;
    ++n_row_tensors_;
  };
  for (size_t i = 0; i < layout_->n_layers(); ++i) {
    const model::LayerState& layer = layout_->layer(i);
    if (!layer.has_rows()) continue;
    expect(key_tensor_name(i), {n_blocks_, layer.n_kv_heads, kernels::kBlockTokens / kernels::kGroupTokens,
                                layer.head_dim, kernels::kGroupTokens});
    expect(value_tensor_name(i),
           {n_blocks_, layer.n_kv_heads, kernels::kBlockTokens, kernels::value_stride(layer.head_dim)});
  }
  if (offset_of(first) % kContextAlignment != 0)
    fail(ErrorCode::Corrupt, "{}: expected its data at a multiple of {} bytes, found byte {}", path(),
         kContextAlignment, offset_of(first));
}

void ContextFile::read_states() {
  if (tensors_.find_tensor(kStates) == nullptr) return;
  const TensorView& states = get_tensor(kStates, DType::F32);
  const TensorView& positions = get_tensor(kStatePositions, DType::I64);
  if (states.shape.size() != 2 || states.shape[0] == 0 || states.shape[1] == 0 ||
      positions.shape != std::vector<uint64_t>{states.shape[0]} || offset_of(states) % kStateAlignment != 0)
    fail(ErrorCode::Corrupt,
         "{}: {}: expected rows of floats, one for each of {}, at a multiple of {} bytes, found {}", path(),
         kStates, kStatePositions, kStateAlignment, shape_of(states));
  n_state_floats_ = states.shape[1];
  std::vector<int64_t> wide(states.shape[0]);
  read_unit(unit_of(positions), std::as_writable_bytes(std::span(wide)));
  int64_t least = 1;
  for (size_t i = 0; i < wide.size(); ++i) {
    if (wide[i] < least || static_cast<uint64_t>(wide[i]) > header_.n_tokens)
      fail(ErrorCode::Corrupt, "{}: {}: expected ascending positions up to {}, found {}", path(), kStatePositions,
           header_.n_tokens, wide[i]);
    least = wide[i] + 1;
    states_.push_back(static_cast<size_t>(wide[i]));
  }
  if (states_.back() != header_.n_tokens)
    fail(ErrorCode::Corrupt, "{}: {}: expected the last to be {}, found {}", path(), kStatePositions,
         header_.n_tokens, states_.back());
}

const ContextFile::Unit& ContextFile::unit_of(const TensorView& tensor) const {
  return *std::find_if(units_.begin(), units_.end(), [&](const Unit& unit) { return unit.tensor == &tensor; });
}

void ContextFile::read_unit(const Unit& unit, std::span<std::byte> to) const {
  mapped_.file().read_at(unit.offset, to);
  expect_checksum(static_cast<size_t>(&unit - units_.data()), base::checksum_of(to));
}

void ContextFile::read_small_tensors() {
  const TensorView& ids = get_tensor(kIds, DType::I64);
  if (ids.shape != std::vector<uint64_t>{header_.n_tokens})
    fail(ErrorCode::Corrupt, "{}: {}: expected [{}], found {}", path(), kIds, header_.n_tokens, shape_of(ids));
  std::vector<int64_t> wide(header_.n_tokens);
  read_unit(unit_of(ids), std::as_writable_bytes(std::span(wide)));
  ids_.reserve(wide.size());
  for (const int64_t id : wide) {
    if (id < 0 || id > INT32_MAX) fail(ErrorCode::Corrupt, "{}: {}: {} is no token id", path(), kIds, id);
    ids_.push_back(static_cast<int32_t>(id));
  }
  const TensorView& logits = get_tensor(kLogits, DType::F32);
  if (logits.shape.size() != 1)
    fail(ErrorCode::Corrupt, "{}: {}: expected one dimension, found {}", path(), kLogits, shape_of(logits));
  logits_.resize(logits.shape[0]);
  read_unit(unit_of(logits), std::as_writable_bytes(std::span(logits_)));
  const TensorView& text = get_tensor(kText, DType::U8);
  std::string content(text.n_bytes, '\0');
  read_unit(unit_of(text), std::as_writable_bytes(std::span(content)));
  if (header_.origin == nullptr) return;
  auto origin = std::make_shared<ContextOrigin>(*header_.origin);
  origin->text = std::move(content);
  header_.origin = std::move(origin);
}

bool ContextFile::has_shape_of(const model::StateLayout& layout) const noexcept {
  if (n_row_tensors_ > 0 && layout_->type() != layout.type()) return false;
  for (size_t i = 0; i < std::max(layout.n_layers(), layout_->n_layers()); ++i) {
    const auto found = i < layout_->n_layers() ? layout_->layer(i) : model::LayerState{};
    const auto expected = i < layout.n_layers() ? layout.layer(i) : model::LayerState{};
    if (found.n_kv_heads != expected.n_kv_heads || found.head_dim != expected.head_dim) return false;
  }
  return n_state_floats_ == layout.n_state_floats();
}

std::vector<model::KvBlock> ContextFile::blocks(const model::StateLayout& layout) {
  places_ = model::BlockPlaces::by_layer(layout, n_blocks_);
  const std::byte* base = mapped_.bytes().data();
  for (size_t i = 0; i < layout_->n_layers(); ++i) {
    if (!layout_->layer(i).has_rows()) continue;
    base = tensors_.find_tensor(key_tensor_name(i))->data;
    break;
  }
  std::vector<model::KvBlock> blocks(n_blocks_);
  for (size_t i = 0; i < n_blocks_; ++i) blocks[i] = {.base = base, .places = &places_, .index = i};
  return blocks;
}

std::vector<model::States> ContextFile::states() const {
  std::vector<model::States> all;
  if (states_.empty()) return all;
  const auto* floats = reinterpret_cast<const float*>(tensors_.find_tensor(kStates)->data);
  const auto owner = shared_from_this();
  for (size_t i = 0; i < states_.size(); ++i)
    all.push_back({.position = states_[i], .floats = {owner, floats + i * n_state_floats_}});
  return all;
}

std::string ContextFile::describe(const Unit& unit) const {
  if (unit.tensor == nullptr) return "header";
  if (unit.n_bytes == unit.tensor->n_bytes) return unit.tensor->name;
  return fmt::format("{}, block {}", unit.tensor->name, unit.row);
}

void ContextFile::expect_checksum(size_t unit, uint64_t found) const {
  if (found != table_[unit])
    fail(ErrorCode::Corrupt, "{}: {}: expected the checksum {:016x}, found {:016x}; the file is damaged", path(),
         describe(units_[unit]), table_[unit], found);
}

// Read, not looked at through the mapping: a file that is cut meanwhile gives an error in place of SIGBUS.
void ContextFile::compare_all(const base::ThreadPool& pool) const {
  std::vector<size_t> first_units;  // of the items of work
  size_t n_bytes = kCheckBytes;
  size_t largest = 0;
  for (size_t i = 0; i < units_.size(); ++i) {
    if (n_bytes >= kCheckBytes) {
      first_units.push_back(i);
      n_bytes = 0;
    }
    n_bytes += units_[i].n_bytes;
    largest = std::max(largest, units_[i].n_bytes);
  }
  std::vector<std::vector<std::byte>> buffers(pool.n_threads());
  for (auto& buffer : buffers) buffer.resize(largest);
  pool.run_throwing(first_units.size(), [&](size_t item, size_t thread) {
    const size_t end = item + 1 < first_units.size() ? first_units[item + 1] : units_.size();
    for (size_t i = first_units[item]; i < end; ++i)
      read_unit(units_[i], std::span(buffers[thread]).first(units_[i].n_bytes));
  });
  std::vector<uint64_t> table(table_.size());
  mapped_.file().read_at(offset_of(*tensors_.find_tensor(kChecksums)), std::as_writable_bytes(std::span(table)));
  if (table != table_)
    fail(ErrorCode::Corrupt, "{}: {}: the file was changed while it was open", path(), kChecksums);
}

base::FileStamp ContextFile::stamp_of_same_size() const {
  const base::FileStamp stamp = mapped_.file().stamp();
  if (stamp.size != size())
    fail(ErrorCode::Corrupt, "{}: expected {} bytes, found {}; the file was changed while it was open", path(),
         size(), stamp.size);
  return stamp;
}

void ContextFile::check(const base::ThreadPool& pool) const {
  const base::FileStamp stamp = stamp_of_same_size();
  const std::lock_guard lock(mutex_);
  checked_mtime_ns_.reset();
  compare_all(pool);
  checked_mtime_ns_ = stamp.mtime_ns;
}

void ContextFile::expect_sound(const base::ThreadPool& pool) const {
  const base::FileStamp stamp = stamp_of_same_size();
  {
    const std::lock_guard lock(mutex_);
    if (checked_mtime_ns_ == stamp.mtime_ns) return;
  }
  check(pool);
}

}  // namespace kvfork::saved
