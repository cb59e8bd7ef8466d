// Builds safetensors files byte by byte, so that a test can break any of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvfork::test {

/// The 8-byte length, `header` as given, and `n_data` bytes of 0, 1, 2, ...
inline std::string raw_safetensors(std::string_view header, size_t n_data) {
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, sizeof length);
  file += header;
  for (size_t i = 0; i < n_data; ++i) file += static_cast<char>(i);
  return file;
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// A well-formed file out of tensors.
class SafetensorsBuilder {
 public:
  void add(std::string_view name, std::string_view dtype, const std::vector<uint64_t>& shape,
           std::string_view data) {
    std::string sizes;
    for (const uint64_t size : shape) sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
    header_ += (header_.empty() ? "" : ",");
    header_ += "\"" + std::string(name) + "\":{\"dtype\":\"" + std::string(dtype) + "\",\"shape\":[" + sizes +
               "],\"data_offsets\":[" + std::to_string(data_.size()) + "," +
               std::to_string(data_.size() + data.size()) + "]}";
    data_ += data;
  }

  std::string build() const {
    std::string file = raw_safetensors("{" + header_ + "}", 0);
    file += data_;
    return file;
  }

 private:
  std::string header_;
  std::string data_;
};

}  // namespace kvfork::test
