#include "base/thread_pool.h"
#include "engine/context_file.h"
#include "kvfork/error.h"
#include "kvfork/inspect.h"

namespace kvfork {

// The first bytes decide: the header need not parse, so that a damaged context is still known for one.
bool is_saved_context(const std::string& path) {
  constexpr size_t kLooked = 4096;
  std::string start(kLooked, '\0');
  try {
    start.resize(base::File::open(path).read_some_at(0, std::as_writable_bytes(std::span(start))));
  } catch (const Error&) {
    return false;
  }
  constexpr size_t kLengthBytes = 8;
  return start.size() > kLengthBytes && start[kLengthBytes] == '{' &&
         start.find(engine::kContextFormat) != std::string::npos;
}

ContextFacts inspect_context(const std::string& path, ContextCheck check) {
  const auto file = engine::ContextFile::open(path);
  if (check == ContextCheck::All) file->check(base::ThreadPool(0));
  const engine::ContextHeader& header = file->header();
  const model::KvLayout& layout = file->layout();
  return {.file_bytes = file->size(),
          .kvfork_version = header.kvfork_version,
          .id = header.id,
          .identity = header.identity,
          .n_tokens = header.n_tokens,
          .n_parent_tokens = header.first_block * kernels::kBlockTokens,
          .parent_id = header.parent_id,
          .parent_file = header.parent_file,
          .n_layers = layout.n_layers,
          .n_kv_heads = layout.n_kv_heads,
          .head_dim = layout.head_dim,
          .vocab_size = file->logits().size(),
          .kv_bytes_per_token = layout.token_bytes(),
          .origin = header.origin};
}

}  // namespace kvfork
