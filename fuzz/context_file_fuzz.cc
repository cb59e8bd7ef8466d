// Saved contexts: any bytes either open and hold what they say, or give an Error. Checksums are made to fit first, since
// otherwise no mutation would get past them; the input as it is goes in too.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/thread_pool.h"
#include "checkpoint/safetensors.h"
#include "engine/context_file.h"
#include "kvfork/error.h"

namespace {

using kvfork::checkpoint::Safetensors;
using kvfork::checkpoint::TensorView;

class MemoryFile {
 public:
  explicit MemoryFile(std::span<const uint8_t> bytes) : descriptor_(::memfd_create("input", MFD_CLOEXEC)) {
    if (descriptor_ < 0 || ::write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

// Writes the checksums that docs/cache-file.md asks for over those in the bytes, where there is room for exactly these.
void repair(std::vector<uint8_t>& bytes) {
  const auto all = std::as_bytes(std::span(bytes));
  const auto file = Safetensors::parse(all, "input");
  const TensorView* table = file.find_tensor("checksums");
  if (table == nullptr) return;
  std::vector<const TensorView*> tensors;
  const std::byte* data = all.data() + all.size();
  for (const TensorView& tensor : file.tensors()) {
    data = std::min(data, tensor.data);
    if (&tensor != table) tensors.push_back(&tensor);
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) { return a->data < b->data; });
  std::vector<uint64_t> sums = {kvfork::base::checksum_of({all.data(), data})};
  for (const TensorView* tensor : tensors) {
    const size_t n_rows = tensor->name.starts_with("layers.") && !tensor->shape.empty() ? tensor->shape[0] : 1;
    if (n_rows > table->n_bytes) return;
    for (size_t row = 0; row < n_rows; ++row)
      sums.push_back(kvfork::base::checksum_of({tensor->data + row * (tensor->n_bytes / n_rows), tensor->n_bytes / n_rows}));
  }
  sums.push_back(kvfork::base::checksum_of(std::as_bytes(std::span(sums))));
  if (sums.size() * 8 == table->n_bytes) std::memcpy(const_cast<std::byte*>(table->data), sums.data(), table->n_bytes);
}

void open(std::span<const uint8_t> bytes) {
  const MemoryFile input(bytes);
  const kvfork::base::ThreadPool pool(1);
  const auto file = kvfork::engine::ContextFile::open(input.path());
  file->check(pool);
  file->expect_sound(pool);
  const auto& layout = file->layout();
  size_t sum = 0;
  for (const auto& block : file->blocks()) {
    for (size_t layer = 0; layer < layout.n_layers; ++layer) {
      for (size_t i = 0; i < layout.keys_bytes(); i += 64) sum += static_cast<size_t>(block.key(layout, layer, 0)[i]);
      sum += static_cast<size_t>(block.value(layout, layer, layout.n_kv_heads)[-1]);
    }
  }
  if (file->ids().size() != file->header().n_tokens || sum > bytes.size() * 255) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    open({data, size});
  } catch (const kvfork::Error&) {
  }
  std::vector<uint8_t> bytes(data, data + size);
  try {
    repair(bytes);
    open(bytes);
  } catch (const kvfork::Error&) {
  }
  return 0;
}
