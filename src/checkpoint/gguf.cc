// Reads GGUF files: metadata, tensor infos and the parts of a split file, each held against the file's end.

#include "checkpoint/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "base/error.h"
#include "base/utf8.h"

namespace kvfork::checkpoint {
namespace {

using base::fail;

static_assert(std::endian::native == std::endian::little, "GGUF values are read in place");

constexpr uint64_t kDefaultAlignment = 32;
constexpr size_t kMaxDimensions = 4;  // GGML_MAX_DIMS
constexpr int kMaxArrayDepth = 4;

// Bytes of a scalar; 0 for strings and arrays.
size_t scalar_bytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::Uint8:
    case GgufValueType::Int8:
    case GgufValueType::Bool:
      return 1;
    case GgufValueType::Uint16:
    case GgufValueType::Int16:
      return 2;
    case GgufValueType::Uint32:
    case GgufValueType::Int32:
    case GgufValueType::Float32:
      return 4;
    case GgufValueType::Uint64:
    case GgufValueType::Int64:
    case GgufValueType::Float64:
      return 8;
    default:
      return 0;
  }
}

template <typename T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Takes values off the front of a file; every step is checked against its end.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, std::string_view subject) : bytes_(bytes), subject_(subject) {}

  size_t position() const { return position_; }
  size_t n_left() const { return bytes_.size() - position_; }

  std::span<const std::byte> take(uint64_t n, std::string_view what) {
    if (n > n_left())
      fail(ErrorCode::Corrupt,
           "{}: expected {} bytes for {} at byte {}, found {}; the file is truncated or corrupt", subject_, n, what,
           position_, n_left());
    const auto taken = bytes_.subspan(position_, static_cast<size_t>(n));
    position_ += static_cast<size_t>(n);
    return taken;
  }

  template <typename T>
  T take_scalar(std::string_view what) {
    return load<T>(take(sizeof(T), what).data());
  }

  std::string_view take_string(std::string_view what) {
    const auto n = take_scalar<uint64_t>(what);
    const auto bytes = take(n, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  GgufValueType take_type(std::string_view what) {
    const auto id = take_scalar<uint32_t>(what);
    if (id > static_cast<uint32_t>(GgufValueType::Float64))
      fail(ErrorCode::Corrupt, "{}: {}: unknown value type {} before byte {}", subject_, what, id, position_);
    return static_cast<GgufValueType>(id);
  }

  // Steps over one value of a type.
  void skip(GgufValueType type, std::string_view what, int depth) {
    if (type == GgufValueType::String) {
      take_string(what);
    } else if (type == GgufValueType::Array) {
      const auto element = take_type(what);
      const auto n = take_scalar<uint64_t>(what);
      skip_elements(element, n, what, depth + 1);
    } else {
      take(scalar_bytes(type), what);
    }
  }

  void skip_elements(GgufValueType element, uint64_t n, std::string_view what, int depth) {
    if (depth > kMaxArrayDepth)
      fail(ErrorCode::Limit, "{}: {}: arrays are nested more than {} deep", subject_, what, kMaxArrayDepth);
    if (const size_t width = scalar_bytes(element); width != 0) {
      uint64_t n_bytes = 0;
      if (__builtin_mul_overflow(n, uint64_t{width}, &n_bytes))
        fail(ErrorCode::Corrupt, "{}: {}: an array of {} elements overflows", subject_, what, n);
      take(n_bytes, what);
      return;
    }
    for (uint64_t i = 0; i < n; ++i) skip(element, what, depth);
  }

 private:
  std::span<const std::byte> bytes_;
  std::string_view subject_;
  size_t position_ = 0;
};

// Names are shown in messages, so they must be text without control characters.
bool is_name(std::string_view name) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  return !name.empty() && base::find_invalid_utf8(name) == name.size() &&
         std::none_of(name.begin(), name.end(), is_control);
}

GgufValue take_value(Cursor& cursor, std::string_view subject) {
  GgufValue value;
  value.key = cursor.take_string("a metadata key");
  if (!is_name(value.key))
    fail(ErrorCode::Corrupt, "{}: the metadata key before byte {} is empty, not UTF-8 or has control characters",
         subject, cursor.position());
  value.type = cursor.take_type(value.key);
  Cursor start = cursor;
  if (value.type == GgufValueType::Array) {
    value.element_type = cursor.take_type(value.key);
    value.n_elements = cursor.take_scalar<uint64_t>(value.key);
    start = cursor;
    cursor.skip_elements(value.element_type, value.n_elements, value.key, 1);
  } else if (value.type == GgufValueType::String) {
    const auto text = cursor.take_string(value.key);
    value.bytes = std::as_bytes(std::span(text));
    return value;
  } else {
    cursor.skip(value.type, value.key, 0);
  }
  value.bytes = start.take(cursor.position() - start.position(), value.key);
  return value;
}

struct TensorPlace {
  GgufTensor tensor;
  uint64_t offset = 0;
};

void set_size(GgufTensor& tensor, std::string_view subject) {
  uint64_t n = 1;
  for (const uint64_t size : tensor.shape) {
    // ggml keeps sizes in signed 64 bits.
    if (__builtin_mul_overflow(n, size, &n) || n > uint64_t{std::numeric_limits<int64_t>::max()})
      fail(ErrorCode::Corrupt, "{}: {}: the tensor's size overflows", subject, tensor.name);
  }
  tensor.type = find_ggml_type(tensor.type_id);
  if (tensor.type == nullptr) return;
  const uint64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (row % tensor.type->block_elements != 0)
    fail(ErrorCode::Corrupt, "{}: {}: expected rows of a multiple of {} elements for {}, found {}", subject,
         tensor.name, tensor.type->block_elements, tensor.type->name, row);
  uint64_t n_bytes = 0;
  if (__builtin_mul_overflow(n / tensor.type->block_elements, uint64_t{tensor.type->block_bytes}, &n_bytes))
    fail(ErrorCode::Corrupt, "{}: {}: the tensor's size overflows", subject, tensor.name);
  tensor.n_bytes = static_cast<size_t>(n_bytes);
}

TensorPlace take_tensor(Cursor& cursor, std::string_view subject) {
  TensorPlace place;
  place.tensor.name = cursor.take_string("a tensor name");
  if (!is_name(place.tensor.name))
    fail(ErrorCode::Corrupt, "{}: the tensor name before byte {} is empty, not UTF-8 or has control characters",
         subject, cursor.position());
  const auto n_dimensions = cursor.take_scalar<uint32_t>(place.tensor.name);
  if (n_dimensions > kMaxDimensions)
    fail(ErrorCode::Corrupt, "{}: {}: expected at most {} dimensions, found {}", subject, place.tensor.name,
         kMaxDimensions, n_dimensions);
  for (uint32_t i = 0; i < n_dimensions; ++i)
    place.tensor.shape.push_back(cursor.take_scalar<uint64_t>(place.tensor.name));
  std::reverse(place.tensor.shape.begin(), place.tensor.shape.end());
  place.tensor.type_id = cursor.take_scalar<uint32_t>(place.tensor.name);
  place.offset = cursor.take_scalar<uint64_t>(place.tensor.name);
  set_size(place.tensor, subject);
  return place;
}

// Points each tensor at its bytes; they must lie inside `data`, aligned, and apart from each other.
void place_tensors(std::vector<TensorPlace>& places, std::span<const std::byte> data, uint64_t alignment,
                   std::string_view subject) {
  for (TensorPlace& place : places) {
    GgufTensor& tensor = place.tensor;
    if (place.offset % alignment != 0)
      fail(ErrorCode::Corrupt, "{}: {}: expected an offset that is a multiple of {}, found {}", subject,
           tensor.name, alignment, place.offset);
    if (place.offset > data.size() || tensor.n_bytes > data.size() - place.offset)
      fail(ErrorCode::Corrupt,
           "{}: {}: expected {} bytes at offset {} of the tensor data, found {} in all; the file is truncated or "
           "corrupt",
           subject, tensor.name, tensor.n_bytes, place.offset, data.size());
    tensor.data = data.data() + place.offset;
  }
  std::vector<const TensorPlace*> sorted;
  for (const TensorPlace& place : places) sorted.push_back(&place);
  std::sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
  uint64_t end = 0;
  for (const TensorPlace* place : sorted) {
    if (place->offset < end && place->tensor.n_bytes > 0)
      fail(ErrorCode::Corrupt, "{}: {}: its data overlaps another tensor's", subject, place->tensor.name);
    end = std::max(end, place->offset + place->tensor.n_bytes);
  }
}

struct FileParts {
  std::vector<GgufValue> values;
  std::vector<GgufTensor> tensors;
};

void read_head(Cursor& cursor, std::string_view subject, uint64_t& n_tensors, uint64_t& n_values) {
  const auto magic = cursor.take(4, "the magic");
  if (!has_gguf_magic(magic))
    fail(ErrorCode::Corrupt, "{}: expected a GGUF file, found other magic bytes", subject);
  const auto version = cursor.take_scalar<uint32_t>("the version");
  if ((version & 0xffff) == 0 && version != 0)
    fail(ErrorCode::Unsupported, "{}: big-endian GGUF files are not supported", subject);
  if (version != 2 && version != 3)
    fail(ErrorCode::Unsupported, "{}: expected GGUF version 2 or 3, found {}", subject, version);
  n_tensors = cursor.take_scalar<uint64_t>("the tensor count");
  n_values = cursor.take_scalar<uint64_t>("the metadata count");
  // The smallest entries there can be: counts that could not fit are refused before anything is reserved.
  if (n_tensors > cursor.n_left() / 24 || n_values > cursor.n_left() / 13)
    fail(ErrorCode::Corrupt, "{}: {} tensors and {} metadata values cannot fit in the file; truncated or corrupt",
         subject, n_tensors, n_values);
}

uint64_t find_alignment(const std::vector<GgufValue>& values, std::string_view subject) {
  for (const GgufValue& value : values) {
    if (value.key != "general.alignment") continue;
    const uint64_t alignment =
        value.type == GgufValueType::Uint32 ? load<uint32_t>(value.bytes.data()) : uint64_t{0};
    if (!std::has_single_bit(alignment))
      fail(ErrorCode::Corrupt, "{}: general.alignment: expected a power of two as uint32, found {}", subject,
           alignment);
    return alignment;
  }
  return kDefaultAlignment;
}

FileParts read_file(std::span<const std::byte> bytes, std::string_view subject) {
  Cursor cursor(bytes, subject);
  uint64_t n_tensors = 0;
  uint64_t n_values = 0;
  read_head(cursor, subject, n_tensors, n_values);
  FileParts parts;
  for (uint64_t i = 0; i < n_values; ++i) parts.values.push_back(take_value(cursor, subject));
  std::sort(parts.values.begin(), parts.values.end(),
            [](const GgufValue& a, const GgufValue& b) { return a.key < b.key; });
  const auto twice = std::adjacent_find(parts.values.begin(), parts.values.end(),
                                        [](const GgufValue& a, const GgufValue& b) { return a.key == b.key; });
  if (twice != parts.values.end())
    fail(ErrorCode::Corrupt, "{}: the metadata key {} occurs twice", subject, twice->key);

  std::vector<TensorPlace> places;
  for (uint64_t i = 0; i < n_tensors; ++i) places.push_back(take_tensor(cursor, subject));
  const uint64_t alignment = find_alignment(parts.values, subject);
  const uint64_t padding = (alignment - cursor.position() % alignment) % alignment;
  // A file without tensors may end before the padding.
  if (n_tensors > 0) cursor.take(padding, "the padding before the tensor data");
  place_tensors(places, bytes.subspan(cursor.position()), alignment, subject);
  for (TensorPlace& place : places) parts.tensors.push_back(std::move(place.tensor));
  return parts;
}

std::optional<int64_t> read_integer(GgufValueType type, const std::byte* p) {
  switch (type) {
    case GgufValueType::Uint8:
      return load<uint8_t>(p);
    case GgufValueType::Int8:
      return load<int8_t>(p);
    case GgufValueType::Uint16:
      return load<uint16_t>(p);
    case GgufValueType::Int16:
      return load<int16_t>(p);
    case GgufValueType::Uint32:
      return load<uint32_t>(p);
    case GgufValueType::Int32:
      return load<int32_t>(p);
    case GgufValueType::Int64:
      return load<int64_t>(p);
    case GgufValueType::Uint64: {
      const auto value = load<uint64_t>(p);
      if (value > uint64_t{std::numeric_limits<int64_t>::max()}) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> read_number(GgufValueType type, const std::byte* p) {
  if (type == GgufValueType::Float32) return load<float>(p);
  if (type == GgufValueType::Float64) return load<double>(p);
  const auto integer = read_integer(type, p);
  if (!integer) return std::nullopt;
  return static_cast<double>(*integer);
}

}  // namespace

bool has_gguf_magic(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0;
}

GgufFile GgufFile::open(const std::filesystem::path& path) {
  GgufFile gguf;
  gguf.subject_ = path.string();
  gguf.files_.push_back(base::MappedFile::open(path));
  gguf.read(gguf.files_.back().bytes(), gguf.subject_, true);
  const auto n_parts = gguf.find_integer("split.count").value_or(0);
  if (n_parts > 1) gguf.open_other_parts(path, static_cast<size_t>(n_parts));
  gguf.check_tensor_names();
  return gguf;
}

GgufFile GgufFile::parse(std::span<const std::byte> bytes, std::string_view subject) {
  GgufFile gguf;
  gguf.subject_ = subject;
  gguf.read(bytes, subject, true);
  gguf.check_tensor_names();
  return gguf;
}

void GgufFile::read(std::span<const std::byte> bytes, std::string_view subject, bool is_first) {
  FileParts parts = read_file(bytes, subject);
  if (is_first) values_ = std::move(parts.values);
  std::move(parts.tensors.begin(), parts.tensors.end(), std::back_inserter(tensors_));
  file_bytes_ += bytes.size();
}

void GgufFile::open_other_parts(const std::filesystem::path& path, size_t n_parts) {
  constexpr size_t kMaxParts = 99999;  // five digits in the file names
  if (n_parts > kMaxParts) fail(ErrorCode::Corrupt, "{}: split.count: found {}", subject_, n_parts);
  const std::string name = path.filename().string();
  const std::string first_suffix = fmt::format("-00001-of-{:05}.gguf", n_parts);
  if (find_integer("split.no").value_or(0) != 0 || !name.ends_with(first_suffix))
    fail(ErrorCode::InvalidArgument, "{}: it is one part of a split file; open the part whose name ends in {}",
         subject_, first_suffix);
  const std::string stem = name.substr(0, name.size() - first_suffix.size());
  for (size_t i = 1; i < n_parts; ++i) {
    const auto part = path.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", stem, i + 1, n_parts);
    files_.push_back(base::MappedFile::open(part));
    read(files_.back().bytes(), part.string(), false);
  }
  const auto n_tensors = find_integer("split.tensors.count");
  if (n_tensors && static_cast<uint64_t>(*n_tensors) != tensors_.size())
    fail(ErrorCode::Corrupt, "{}: split.tensors.count: expected {} tensors in {} parts, found {}", subject_,
         *n_tensors, n_parts, tensors_.size());
}

void GgufFile::check_tensor_names() const {
  std::unordered_set<std::string_view> names;
  for (const GgufTensor& tensor : tensors_) {
    if (!names.insert(tensor.name).second)
      fail(ErrorCode::Corrupt, "{}: the tensor {} occurs twice", subject_, tensor.name);
  }
}

std::string_view GgufFile::architecture() const {
  const auto name = find_string("general.architecture");
  if (!name) fail(ErrorCode::Corrupt, "{}: general.architecture is missing", subject_);
  return *name;
}

const GgufValue* GgufFile::find_value(std::string_view key) const noexcept {
  const auto found = std::lower_bound(values_.begin(), values_.end(), key,
                                      [](const GgufValue& value, std::string_view k) { return value.key < k; });
  return found != values_.end() && found->key == key ? &*found : nullptr;
}

void GgufFile::fail_type(const GgufValue& value, std::string_view expected) const {
  fail(ErrorCode::Corrupt, "{}: {}: expected {}, found a value of type {}", subject_, value.key, expected,
       static_cast<uint32_t>(value.type));
}

std::optional<std::string_view> GgufFile::find_string(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufValueType::String) fail_type(*value, "a string");
  return std::string_view(reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size());
}

std::optional<int64_t> GgufFile::find_integer(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (value == nullptr) return std::nullopt;
  const auto integer = read_integer(value->type, value->bytes.data());
  if (!integer) fail_type(*value, "an integer");
  return integer;
}

std::optional<double> GgufFile::find_number(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (value == nullptr) return std::nullopt;
  const auto number = read_number(value->type, value->bytes.data());
  if (!number) fail_type(*value, "a number");
  return number;
}

std::optional<bool> GgufFile::find_bool(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufValueType::Bool) fail_type(*value, "a bool");
  return value->bytes[0] != std::byte{0};
}

std::optional<std::vector<std::string_view>> GgufFile::find_strings(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufValueType::Array || value->element_type != GgufValueType::String)
    fail_type(*value, "an array of strings");
  std::vector<std::string_view> strings;
  strings.reserve(static_cast<size_t>(value->n_elements));
  Cursor cursor(value->bytes, subject_);
  for (uint64_t i = 0; i < value->n_elements; ++i) strings.push_back(cursor.take_string(key));
  return strings;
}

std::optional<std::vector<int32_t>> GgufFile::find_integers(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufValueType::Array) fail_type(*value, "an array of integers");
  const size_t width = scalar_bytes(value->element_type);
  std::vector<int32_t> integers;
  integers.reserve(static_cast<size_t>(value->n_elements));
  for (uint64_t i = 0; i < value->n_elements; ++i) {
    const auto integer =
        width == 0 ? std::nullopt : read_integer(value->element_type, value->bytes.data() + i * width);
    if (!integer || *integer != static_cast<int32_t>(*integer)) fail_type(*value, "an array of 32-bit integers");
    integers.push_back(static_cast<int32_t>(*integer));
  }
  return integers;
}

std::optional<std::vector<float>> GgufFile::find_numbers(std::string_view key) const {
  const GgufValue* value = find_value(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufValueType::Array) fail_type(*value, "an array of numbers");
  const size_t width = scalar_bytes(value->element_type);
  std::vector<float> numbers;
  numbers.reserve(static_cast<size_t>(value->n_elements));
  for (uint64_t i = 0; i < value->n_elements; ++i) {
    const auto number =
        width == 0 ? std::nullopt : read_number(value->element_type, value->bytes.data() + i * width);
    if (!number) fail_type(*value, "an array of numbers");
    numbers.push_back(static_cast<float>(*number));
  }
  return numbers;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const noexcept {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [name](const GgufTensor& tensor) { return tensor.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

}  // namespace kvfork::checkpoint
