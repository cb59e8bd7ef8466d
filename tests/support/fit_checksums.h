// Checksums for a changed context file: without them no change gets past the first look.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "checkpoint/safetensors.h"

namespace kvfork::test {

/// Writes the checksums that docs/cache-file.md asks for over those in the bytes, where there is room for exactly
/// these. Throws Error where the bytes are no safetensors file.
inline void fit_checksums(std::span<std::byte> bytes) {
  using checkpoint::TensorView;
  const auto file = checkpoint::Safetensors::parse(bytes, "input");
  const TensorView* table = file.find_tensor("checksums");
  if (table == nullptr) return;
  std::vector<const TensorView*> tensors;
  const std::byte* data = bytes.data() + bytes.size();
  for (const TensorView& tensor : file.tensors()) {
    data = std::min(data, tensor.data);
    if (&tensor != table) tensors.push_back(&tensor);
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) { return a->data < b->data; });
  std::vector<uint64_t> sums = {base::checksum_of({static_cast<const std::byte*>(bytes.data()), data})};
  for (const TensorView* tensor : tensors) {
    const size_t n_rows = tensor->name.starts_with("layers.") && !tensor->shape.empty() ? tensor->shape[0] : 1;
    if (n_rows > table->n_bytes) return;
    for (size_t row = 0; row < n_rows; ++row)
      sums.push_back(
          base::checksum_of({tensor->data + row * (tensor->n_bytes / n_rows), tensor->n_bytes / n_rows}));
  }
  sums.push_back(base::checksum_of(std::as_bytes(std::span(sums))));
  if (sums.size() * 8 == table->n_bytes)
    std::memcpy(const_cast<std::byte*>(table->data), sums.data(), table->n_bytes);
}

}  // namespace kvfork::test
