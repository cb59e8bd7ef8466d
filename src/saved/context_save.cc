// Context::save: one safetensors file, written straight from where keys and values lie.

#include <array>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/new_file.h"
#include "base/utf8.h"
#include "engine/context_state.h"
#include "engine/model_state.h"
#include "kvfork/version.h"
#include "saved/context_format.h"

namespace kvfork {
namespace {

using saved::ContextHeader;

// A tensor as it will lie in the file. Its parts are in memory already; rows have checksums of their own.
struct OutTensor {
  std::string name;
  const char* dtype;
  std::vector<size_t> shape;
  std::vector<iovec> parts;  // one per row, or one in all
  uint64_t n_bytes = 0;
};

iovec part_of(const void* data, size_t n_bytes) {
  return {const_cast<void*>(data), n_bytes};
}

class Saver {
 public:
  Saver(const Context& context, const SaveOptions& options)
      : context_(context), kv_(*engine::state_of(context).kv), options_(options) {}

  uint64_t save(const std::string& path) {
    const size_t first_block = options_.flatten ? 0 : kv_.n_shared_blocks();
    const std::string metadata = make_metadata(first_block);
    add_keys_and_values(first_block);
    add_states(first_block);
    add_small_tensors();
    const std::string header = make_header(metadata);
    fill_checksums(header);
    return write(path, header);
  }

 private:
  std::string make_metadata(size_t first_block) const {
    ContextHeader header{.identity = context_.identity(),
                         .id = context_.id(),
                         .kvfork_version = version(),
                         .n_tokens = context_.size(),
                         .first_block = first_block,
                         .origin = context_.origin()};
    if (first_block > 0) {
      header.parent_id = context_.parent()->id();
      if (const auto& file = engine::state_of(*context_.parent()).storage; file != nullptr)
        header.parent_file = std::filesystem::path(file->path()).filename().string();
    }
    // The format comes first, where whoever looks at a file finds it.
    base::JsonText metadata = {{"format", saved::kContextFormat}};
    for (const auto& [key, value] : saved::encode_header(header)) {
      if (const size_t invalid = base::find_invalid_utf8(value); invalid != value.size())
        base::fail(
            ErrorCode::InvalidArgument,
            "context: expected UTF-8 in messages, tools, documents and variables, found another byte at {} in "
            "{}",
            invalid, key);
      if (key != "format") metadata.add(key, value);
    }
    return metadata.text();
  }

  void add_keys_and_values(size_t first_block) {
    const model::StateLayout& layout = kv_.layout();
    const size_t n_blocks = kv_.n_blocks() - first_block;
    const char* dtype = layout.type() == kernels::Element::F32 ? "F32" : "BF16";
    for (size_t layer = 0; layer < layout.n_layers(); ++layer) {
      const auto& [n_kv_heads, head_dim, n_floats] = layout.layer(layer);
      if (!layout.layer(layer).has_rows()) continue;
      OutTensor keys{
          saved::key_tensor_name(layer),
          dtype,
          {n_blocks, n_kv_heads, kernels::kBlockTokens / kernels::kGroupTokens, head_dim, kernels::kGroupTokens},
          {}};
      OutTensor values{saved::value_tensor_name(layer),
                       dtype,
                       {n_blocks, n_kv_heads, kernels::kBlockTokens, kernels::value_stride(head_dim)},
                       {}};
      for (size_t i = first_block; i < kv_.n_blocks(); ++i) {
        keys.parts.push_back(part_of(kv_.block(i).key(layout, layer, 0), layout.keys_bytes(layer)));
        values.parts.push_back(part_of(kv_.block(i).value(layout, layer, 0), layout.values_bytes(layer)));
      }
      add(std::move(keys));
      add(std::move(values));
    }
  }

  void add_states(size_t first_block) {
    const size_t n_floats = kv_.layout().n_state_floats();
    if (n_floats == 0) return;
    const auto all = kv_.states();
    const auto own = first_block == 0 ? all : all.subspan(kv_.n_shared_states());
    OutTensor states{saved::kStates, "F32", {own.size(), n_floats}, {}};
    for (const model::States& at : own) {
      states.parts.push_back(part_of(at.floats.get(), n_floats * sizeof(float)));
      state_positions_.push_back(static_cast<int64_t>(at.position));
    }
    add(std::move(states));
    add({saved::kStatePositions,
         "I64",
         {own.size()},
         {part_of(state_positions_.data(), own.size() * sizeof(int64_t))}});
  }

  // The checksums' place does not matter to them; their count is known here, their values later.
  void add_small_tensors() {
    wide_ids_.assign(context_.ids().begin(), context_.ids().end());
    add({"ids", "I64", {wide_ids_.size()}, {part_of(wide_ids_.data(), wide_ids_.size() * sizeof(int64_t))}});
    size_t n_units = 4;  // the header, ids, logits, text
    for (const OutTensor& tensor : tensors_) n_units += tensor.name == "ids" ? 0 : tensor.parts.size();
    checksums_.resize(n_units + 1);
    add({"checksums",
         "U64",
         {checksums_.size()},
         {part_of(checksums_.data(), checksums_.size() * sizeof(uint64_t))}});
    const std::span<const float> logits = context_.logits();
    add({"logits", "F32", {logits.size()}, {part_of(logits.data(), logits.size_bytes())}});
    if (context_.origin() != nullptr) text_ = context_.origin()->text;
    add({"text", "U8", {text_.size()}, {part_of(text_.data(), text_.size())}});
  }

  void add(OutTensor tensor) {
    for (const iovec& part : tensor.parts) tensor.n_bytes += part.iov_len;
    tensors_.push_back(std::move(tensor));
  }

  std::string make_header(const std::string& metadata) {
    std::string header = "{\"__metadata__\":" + metadata;
    uint64_t end = 0;
    for (const OutTensor& tensor : tensors_) {
      const base::JsonText entry = {{"dtype", tensor.dtype},
                                    {"shape", tensor.shape},
                                    {"data_offsets", std::array{end, end + tensor.n_bytes}}};
      header += fmt::format(",{}:{}", base::quote_json(tensor.name), entry.text());
      end += tensor.n_bytes;
    }
    header += "}";
    constexpr size_t kLengthBytes = 8;
    const size_t over = (header.size() + kLengthBytes) % saved::kContextAlignment;
    header.append(over == 0 ? 0 : saved::kContextAlignment - over, ' ');
    std::string bytes(kLengthBytes, '\0');
    for (size_t i = 0; i < kLengthBytes; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
    n_bytes_ = kLengthBytes + header.size() + end;
    return bytes + header;
  }

  void fill_checksums(const std::string& header) {
    std::vector<std::span<const std::byte>> units = {std::as_bytes(std::span(header))};
    for (const OutTensor& tensor : tensors_) {
      if (tensor.name == "checksums") continue;
      for (const iovec& part : tensor.parts)
        units.emplace_back(static_cast<const std::byte*>(part.iov_base), part.iov_len);
    }
    engine::state_of(*context_.model()).pool.run(units.size(), [&](size_t i, size_t) noexcept {
      checksums_[i] = base::checksum_of(units[i]);
    });
    checksums_.back() = base::checksum_of(std::as_bytes(std::span(checksums_).first(units.size())));
  }

  uint64_t write(const std::string& path, const std::string& header) {
    auto file = base::NewFile::create(path, n_bytes_);
    file.write(std::as_bytes(std::span(header)));
    uint64_t done = header.size();
    for (OutTensor& tensor : tensors_) {
      file.write(tensor.parts);
      done += tensor.n_bytes;
      if (options_.on_progress) options_.on_progress(done, n_bytes_);
    }
    file.commit();
    return n_bytes_;
  }

  const Context& context_;
  const model::KvPrefix& kv_;
  const SaveOptions& options_;
  std::vector<OutTensor> tensors_;
  std::vector<int64_t> wide_ids_;
  std::vector<int64_t> state_positions_;
  std::vector<uint64_t> checksums_;
  std::string text_;
  uint64_t n_bytes_ = 0;
};

}  // namespace

uint64_t Context::save(const std::string& path, const SaveOptions& options) const {
  return base::only_errors([&]() -> uint64_t {
    state_->expect_sound();
    engine::state_of(*state_->model).expect_unchanged_weights();
    return Saver(*this, options).save(path);
  });
}

}  // namespace kvfork
