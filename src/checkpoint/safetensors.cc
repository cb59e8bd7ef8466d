// Reads the header of a safetensors file and checks that the tensors fill the buffer exactly.

#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/json.h"

namespace kvfork::checkpoint {
namespace {

using base::describe_json;
using base::fail;
using simdjson::dom::element;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kLengthBytes = 8;

// A tensor's place in the buffer, before it is known to be sound.
struct Entry {
  TensorView view;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Reads the header. `buffer` is what follows it in the file.
class HeaderReader {
 public:
  HeaderReader(std::string_view subject, std::span<const std::byte> buffer) : subject_(subject), buffer_(buffer) {}

  void read(std::string_view header) {
    if (header.empty() || header.front() != '{')
      fail(ErrorCode::Corrupt, "{}: expected the header to start with '{{', found {}", subject_,
           header.empty() ? "an empty header" : "another byte");
    const auto document = base::JsonDocument::parse(header, fmt::format("{}: header", subject_));
    const simdjson::dom::object fields = document.root().get_object().value();
    for (const auto field : fields) {
      if (field.key == "__metadata__") {
        read_metadata(field.value);
      } else {
        entries_.push_back(read_entry(field.key, field.value));
      }
    }
    check_layout();
    check_names();
  }

  std::vector<TensorView> take_tensors() {
    std::vector<TensorView> tensors;
    tensors.reserve(entries_.size());
    for (Entry& entry : entries_) tensors.push_back(std::move(entry.view));
    return tensors;
  }

  std::map<std::string, std::string> take_metadata() { return std::move(metadata_); }

 private:
  void read_metadata(element value) {
    simdjson::dom::object object;
    if (seen_metadata_) fail(ErrorCode::Corrupt, "{}: __metadata__ occurs twice in the header", subject_);
    seen_metadata_ = true;
    if (value.get(object) != simdjson::SUCCESS)
      fail(ErrorCode::Corrupt, "{}: __metadata__: expected an object, found {}", subject_, describe_json(value));
    for (const auto field : object) {
      std::string_view text;
      if (field.value.get(text) != simdjson::SUCCESS)
        fail(ErrorCode::Corrupt, "{}: __metadata__: {}: expected a string, found {}", subject_, field.key,
             describe_json(field.value));
      if (!metadata_.emplace(field.key, text).second)
        fail(ErrorCode::Corrupt, "{}: __metadata__: the key {} occurs twice", subject_, field.key);
    }
  }

  Entry read_entry(std::string_view name, element value) const {
    check_name(name);
    simdjson::dom::object object;
    if (value.get(object) != simdjson::SUCCESS)
      fail(ErrorCode::Corrupt, "{}: {}: expected an object, found {}", subject_, name, describe_json(value));
    std::optional<element> dtype, shape, offsets;
    for (const auto field : object) {
      std::optional<element>* slot = field.key == "dtype"          ? &dtype
                                     : field.key == "shape"        ? &shape
                                     : field.key == "data_offsets" ? &offsets
                                                                   : nullptr;
      if (slot == nullptr)
        fail(ErrorCode::Corrupt, "{}: {}: expected dtype, shape and data_offsets, found the key {}", subject_, name,
             field.key);
      if (slot->has_value()) fail(ErrorCode::Corrupt, "{}: {}: {} occurs twice", subject_, name, field.key);
      *slot = field.value;
    }
    if (!dtype || !shape || !offsets)
      fail(ErrorCode::Corrupt, "{}: {}: expected dtype, shape and data_offsets, found no {}", subject_, name,
           !dtype ? "dtype" : (!shape ? "shape" : "data_offsets"));

    Entry entry;
    entry.view.name = name;
    entry.view.dtype = read_dtype(name, *dtype);
    entry.view.shape = read_numbers(name, "shape", *shape);
    const std::vector<uint64_t> range = read_numbers(name, "data_offsets", *offsets);
    if (range.size() != 2 || range[0] > range[1] || range[1] > buffer_.size())
      fail(ErrorCode::Corrupt, "{}: {}: expected data_offsets [begin, end] within {} bytes of data, found {}",
           subject_, name, buffer_.size(), describe_shape(range));
    entry.begin = range[0];
    entry.end = range[1];
    check_size(entry);
    entry.view.data = buffer_.data() + entry.begin;
    entry.view.n_bytes = static_cast<size_t>(entry.end - entry.begin);
    return entry;
  }

  void check_name(std::string_view name) const {
    if (name.empty()) fail(ErrorCode::Corrupt, "{}: a tensor has an empty name", subject_);
    const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
    if (std::any_of(name.begin(), name.end(), is_control))
      fail(ErrorCode::Corrupt, "{}: a tensor name holds a control character", subject_);
  }

  DType read_dtype(std::string_view name, element value) const {
    std::string_view text;
    if (value.get(text) != simdjson::SUCCESS)
      fail(ErrorCode::Corrupt, "{}: {}: dtype: expected a string, found {}", subject_, name, describe_json(value));
    const std::optional<DType> dtype = find_dtype(text);
    if (!dtype) fail(ErrorCode::Unsupported, "{}: {}: unknown dtype \"{}\"", subject_, name, text);
    return *dtype;
  }

  std::vector<uint64_t> read_numbers(std::string_view name, std::string_view key, element value) const {
    simdjson::dom::array array;
    if (value.get(array) != simdjson::SUCCESS)
      fail(ErrorCode::Corrupt, "{}: {}: {}: expected a list, found {}", subject_, name, key, describe_json(value));
    std::vector<uint64_t> numbers;
    for (const element item : array) {
      uint64_t number = 0;
      if (item.get(number) != simdjson::SUCCESS)
        fail(ErrorCode::Corrupt, "{}: {}: {}: expected non-negative integers, found {}", subject_, name, key,
             describe_json(item));
      numbers.push_back(number);
    }
    return numbers;
  }

  void check_size(const Entry& entry) const {
    const TensorView& view = entry.view;
    const std::optional<uint64_t> n = count_elements(view.shape);
    uint64_t bits = 0;
    if (!n || __builtin_mul_overflow(*n, dtype_bits(view.dtype), &bits))
      fail(ErrorCode::Corrupt, "{}: {}: the size of shape {} overflows", subject_, view.name,
           describe_shape(view.shape));
    if (bits % 8 != 0 || bits / 8 != entry.end - entry.begin)
      fail(ErrorCode::Corrupt, "{}: {}: expected {} bytes for {} {}, found {}", subject_, view.name, (bits + 7) / 8,
           dtype_name(view.dtype), describe_shape(view.shape), entry.end - entry.begin);
  }

  void check_layout() {
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& a, const Entry& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
    uint64_t end = 0;
    for (const Entry& entry : entries_) {
      if (entry.begin != end)
        fail(ErrorCode::Corrupt, "{}: {}: expected its data at byte {} of the buffer, found {} ({})", subject_,
             entry.view.name, end, entry.begin, entry.begin > end ? "a hole before it" : "it overlaps another");
      end = entry.end;
    }
    if (end != buffer_.size())
      fail(ErrorCode::Corrupt, "{}: expected {} bytes of data after the header, found {}", subject_, end,
           buffer_.size());
  }

  void check_names() {
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& a, const Entry& b) { return a.view.name < b.view.name; });
    const auto twice = std::adjacent_find(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return a.view.name == b.view.name;
    });
    if (twice != entries_.end())
      fail(ErrorCode::Corrupt, "{}: the tensor {} occurs twice in the header", subject_, twice->view.name);
  }

  std::string subject_;
  std::span<const std::byte> buffer_;
  std::vector<Entry> entries_;
  std::map<std::string, std::string> metadata_;
  bool seen_metadata_ = false;
};

uint64_t read_header_length(std::span<const std::byte> bytes, std::string_view subject) {
  if (bytes.size() < kLengthBytes)
    fail(ErrorCode::Corrupt, "{}: expected at least {} bytes, found {}; the file is truncated", subject,
         kLengthBytes, bytes.size());
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  if (length > kMaxHeaderBytes)
    fail(ErrorCode::Corrupt,
         "{}: expected a header of at most {} bytes, found a length of {}; not a safetensors file?", subject,
         kMaxHeaderBytes, length);
  if (length > bytes.size() - kLengthBytes)
    fail(ErrorCode::Corrupt, "{}: expected a header of {} bytes, found {} bytes in the file; it is truncated",
         subject, length, bytes.size());
  return length;
}

}  // namespace

Safetensors Safetensors::open(const std::filesystem::path& path) {
  auto file = base::MappedFile::open(path);
  Safetensors safetensors = parse(file.bytes(), path.string());
  safetensors.file_ = std::move(file);
  return safetensors;
}

Safetensors Safetensors::parse(std::span<const std::byte> bytes, std::string_view subject) {
  const auto length = static_cast<size_t>(read_header_length(bytes, subject));
  const auto header = bytes.subspan(kLengthBytes, length);
  HeaderReader reader(subject, bytes.subspan(kLengthBytes + length));
  reader.read({reinterpret_cast<const char*>(header.data()), header.size()});
  Safetensors safetensors;
  safetensors.tensors_ = reader.take_tensors();
  safetensors.metadata_ = reader.take_metadata();
  safetensors.file_bytes_ = bytes.size();
  return safetensors;
}

const TensorView* Safetensors::find_tensor(std::string_view name) const noexcept {
  const auto found = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                      [](const TensorView& view, std::string_view key) { return view.name < key; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

}  // namespace kvfork::checkpoint
