// Saved contexts: any bytes either open and hold what they say, or give an Error. Checksums are made to fit first,
// since otherwise no mutation would get past them; the input as it is goes in too.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kvfork/error.h"
#include "saved/context_file.h"
#include "tests/support/fit_checksums.h"

namespace {

class MemoryFile {
 public:
  explicit MemoryFile(std::span<const uint8_t> bytes) : descriptor_(::memfd_create("input", MFD_CLOEXEC)) {
    if (descriptor_ < 0 || ::write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      std::abort();
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(descriptor_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

void open(std::span<const uint8_t> bytes) {
  const MemoryFile input(bytes);
  const kvfork::base::ThreadPool pool(1);
  const auto file = kvfork::saved::ContextFile::open(input.path());
  file->check(pool);
  file->expect_sound(pool);
  const auto& layout = *file->layout();
  size_t sum = 0;
  for (const auto& block : file->blocks(layout)) {
    for (size_t layer = 0; layer < layout.n_layers(); ++layer) {
      for (size_t i = 0; i < layout.keys_bytes(layer); i += 64)
        sum += static_cast<size_t>(block.key(layout, layer, 0)[i]);
      sum += static_cast<size_t>(block.value(layout, layer, layout.layer(layer).n_kv_heads)[-1]);
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
    kvfork::test::fit_checksums(std::as_writable_bytes(std::span(bytes)));
    open(bytes);
  } catch (const kvfork::Error&) {
  }
  return 0;
}
