// Describes a saved context and the chain of its parents without a model.

#include "base/error.h"
#include "base/thread_pool.h"
#include "kvfork/inspect.h"
#include "saved/context_chain.h"
#include "saved/context_file.h"
#include "saved/identity.h"

namespace kvfork {
namespace {

using saved::ContextFile;

void expect_own_id(const ContextFile& file) {
  if (file.header().id != saved::make_context_id(file.header().identity, file.ids()))
    base::fail(ErrorCode::Corrupt, "{}: id: it is not that of the file's identity and ids", file.path());
}

// Whether one model's text side gives both origins the same template: each chose it alike, or stored it.
bool same_template_choice(const ContextOrigin& a, const ContextOrigin& b) {
  return a.fixed.raw_text.has_value() == b.fixed.raw_text.has_value() && a.template_source == b.template_source &&
         a.fixed.tools_json == b.fixed.tools_json;
}

// A model that opens the child must open the parent too.
void expect_same_model(const ContextFile& child, const ContextFile& parent) {
  const auto& a = child.header().origin;
  const auto& b = parent.header().origin;
  for (const saved::IdentityField& field : saved::deciding_fields()) {
    if (field.value == &Identity::tokenizer && (a == nullptr || b == nullptr)) continue;
    if (field.value == &Identity::chat_template && (a == nullptr || b == nullptr || !same_template_choice(*a, *b)))
      continue;
    const std::string& expected = child.header().identity.*field.value;
    const std::string& found = parent.header().identity.*field.value;
    if (found != expected)
      base::fail(ErrorCode::InvalidArgument, "{}: {}: expected {} (that of {}), found {}", parent.path(),
                 field.name, expected, child.path(), found);
  }
  if (*parent.layout() != *child.layout() || parent.n_state_floats() != child.n_state_floats() ||
      parent.logits().size() != child.logits().size())
    base::fail(ErrorCode::Corrupt, "{}: the shapes of its tensors are not those of {}", parent.path(),
               child.path());
}

}  // namespace

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
         start.find(saved::kContextFormat) != std::string::npos;
}

ContextFacts inspect_context(const std::string& path, ContextCheck check) {
  return base::only_errors([&]() -> ContextFacts {
    const auto file = ContextFile::open(path);
    if (check == ContextCheck::All) {
      expect_own_id(*file);
      file->check(base::ThreadPool(0));
    }
    const saved::ContextHeader& header = file->header();
    const model::StateLayout& layout = *file->layout();
    model::LayerState widest;
    for (size_t i = 0; i < layout.n_layers(); ++i) {
      widest.n_kv_heads = std::max(widest.n_kv_heads, layout.layer(i).n_kv_heads);
      widest.head_dim = std::max(widest.head_dim, layout.layer(i).head_dim);
    }
    return {.file_bytes = file->size(),
            .kvfork_version = header.kvfork_version,
            .id = header.id,
            .identity = header.identity,
            .n_tokens = header.n_tokens,
            .n_parent_tokens = header.first_block * kernels::kBlockTokens,
            .parent_id = header.parent_id,
            .parent_file = header.parent_file,
            .n_layers = layout.n_layers(),
            .n_kv_heads = widest.n_kv_heads,
            .head_dim = widest.head_dim,
            .vocab_size = file->logits().size(),
            .kv_bytes_per_token = layout.token_bytes(),
            .origin = header.origin};
  });
}

std::vector<AncestorFacts> inspect_ancestors(const std::string& path, const std::string& parent) {
  return base::only_errors([&]() -> std::vector<AncestorFacts> {
    const auto file = ContextFile::open(path);
    const base::ThreadPool pool(0);
    const saved::ContextChain chain = saved::find_ancestors(file, parent, [&](const ContextFile& ancestor) {
      expect_own_id(ancestor);
      expect_same_model(*file, ancestor);
      ancestor.check(pool);
    });
    std::vector<AncestorFacts> ancestors;
    for (size_t i = 1; i < chain.files.size(); ++i) {
      const ContextFile& found = *chain.files[i];
      ancestors.push_back({.id = found.header().id,
                           .file = found.path(),
                           .file_bytes = found.size(),
                           .n_tokens = found.header().n_tokens,
                           .problem = {}});
    }
    if (chain.problem)
      ancestors.push_back(
          {.id = chain.files.back()->header().parent_id, .file = chain.problem_file, .problem = chain.problem});
    return ancestors;
  });
}

}  // namespace kvfork
