// Builds GGUF files byte by byte, so that a test can break any of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace kvfork::test {

/// Little-endian bytes of a value.
template <typename T>
std::string raw(T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline std::string raw_gguf_string(std::string_view text) {
  return raw<uint64_t>(text.size()) + std::string(text);
}

class GgufBuilder {
 public:
  static constexpr uint32_t kUint32 = 4, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9, kUint64 = 10;

  uint32_t version = 3;
  size_t alignment = 32;  // of the data as written; general.alignment is added by hand

  /// A metadata value whose bytes the caller has made.
  void add_raw(std::string_view key, uint32_t type, std::string_view bytes) {
    values_ += raw_gguf_string(key) + raw(type) + std::string(bytes);
    ++n_values_;
  }
  void add(std::string_view key, uint32_t value) { add_raw(key, kUint32, raw(value)); }
  void add(std::string_view key, float value) { add_raw(key, kFloat32, raw(value)); }
  void add(std::string_view key, bool value) { add_raw(key, kBool, std::string(1, value ? '\1' : '\0')); }
  void add(std::string_view key, const char* value) { add_raw(key, kString, raw_gguf_string(value)); }
  void add(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes = raw(kString) + raw<uint64_t>(values.size());
    for (const std::string& value : values) bytes += raw_gguf_string(value);
    add_raw(key, kArray, bytes);
  }
  void add(std::string_view key, const std::vector<int32_t>& values) {
    std::string bytes = raw(uint32_t{5}) + raw<uint64_t>(values.size());
    for (const int32_t value : values) bytes += raw(value);
    add_raw(key, kArray, bytes);
  }

  /// A tensor; `shape` is innermost first, as in the file.
  void add_tensor(std::string_view name, const std::vector<uint64_t>& shape, uint32_t type, std::string_view data) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    add_tensor_info(name, shape, type, data_.size());
    data_ += data;
  }

  /// Only its description, with an offset that may be wrong.
  void add_tensor_info(std::string_view name, const std::vector<uint64_t>& shape, uint32_t type, uint64_t offset) {
    infos_ += raw_gguf_string(name) + raw(static_cast<uint32_t>(shape.size()));
    for (const uint64_t size : shape) infos_ += raw(size);
    infos_ += raw(type) + raw(offset);
    ++n_tensors_;
  }

  std::string build() const {
    std::string file = "GGUF" + raw(version) + raw(n_tensors_) + raw(n_values_) + values_ + infos_;
    file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + data_;
  }

 private:
  std::string values_;
  std::string infos_;
  std::string data_;
  uint64_t n_values_ = 0;
  uint64_t n_tensors_ = 0;
};

/// Adds an array-free llama: hidden 8, 4 query heads and 2 key heads of 4, 1 layer, vocabulary 6, all float32 and
/// tied. Element i of a tensor is i plus 1000 times its place, so every one is told apart.
inline void add_tiny_llama(GgufBuilder& gguf) {
  gguf.add("general.architecture", "llama");
  gguf.add("llama.block_count", uint32_t{1});
  gguf.add("llama.context_length", uint32_t{64});
  gguf.add("llama.embedding_length", uint32_t{8});
  gguf.add("llama.feed_forward_length", uint32_t{12});
  gguf.add("llama.attention.head_count", uint32_t{4});
  gguf.add("llama.attention.head_count_kv", uint32_t{2});
  gguf.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  gguf.add("llama.rope.dimension_count", uint32_t{4});
  gguf.add("tokenizer.ggml.eos_token_id", uint32_t{3});
  float base = 0;
  const auto add = [&](const char* name, const std::vector<uint64_t>& shape) {
    uint64_t n = 1;
    for (const uint64_t size : shape) n *= size;
    std::string data;
    for (uint64_t i = 0; i < n; ++i) data += raw(base + static_cast<float>(i));
    gguf.add_tensor(name, shape, 0, data);
    base += 1000;
  };
  add("token_embd.weight", {8, 6});
  add("output_norm.weight", {8});
  add("blk.0.attn_norm.weight", {8});
  add("blk.0.attn_q.weight", {8, 16});
  add("blk.0.attn_k.weight", {8, 8});
  add("blk.0.attn_v.weight", {8, 8});
  add("blk.0.attn_output.weight", {16, 8});
  add("blk.0.ffn_norm.weight", {8});
  add("blk.0.ffn_gate.weight", {8, 12});
  add("blk.0.ffn_up.weight", {8, 12});
  add("blk.0.ffn_down.weight", {12, 8});
}

}  // namespace kvfork::test
