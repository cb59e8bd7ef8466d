// Model::open_context: a saved context, refused unless everything that its bits and ids depend on is this model's.

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/context_state.h"
#include "engine/model_state.h"
#include "prompt/context_origin.h"
#include "saved/context_chain.h"
#include "saved/context_file.h"
#include "saved/identity.h"

namespace kvfork {
namespace {

using saved::ContextFile;

std::string shown(const std::string& value) {
  return value.empty() ? "none" : value;
}

// Fingerprints of the text are compared only where the context was rendered from text.
void expect_same_identity(const ContextFile& file, const Model& model) {
  Identity expected = model.identity();
  const Identity& found = file.header().identity;
  if (const auto& origin = file.header().origin; origin != nullptr) {
    expected.tokenizer = model.text().tokenizer_fingerprint();
    // The template is compared by Prompter::from_origin's rules, which know a template that was stored with the
    // context.
    expected.chat_template = prompt::fingerprint_origin_template(model.text(), *origin);
  }
  for (const saved::IdentityField& field : saved::deciding_fields()) {
    if (found.*field.value != expected.*field.value)
      base::fail(ErrorCode::InvalidArgument,
                 "{}: {}: expected {} (this model's), found {}; save the context again with this model",
                 file.path(), field.name, shown(expected.*field.value), shown(found.*field.value));
  }
}

void expect_same_shape(const ContextFile& file, const engine::ModelState& model) {
  if (!file.has_shape_of(*model.kv_layout) || file.logits().size() != model.info.vocab_size)
    base::fail(ErrorCode::Corrupt, "{}: the shapes of its tensors are not those of the model that it names",
               file.path());
  for (const int32_t id : file.ids()) {
    if (static_cast<size_t>(id) >= model.info.vocab_size)
      base::fail(ErrorCode::Corrupt, "{}: ids: expected ids below {}, found {}", file.path(), model.info.vocab_size,
                 id);
  }
  if (file.ids().size() > model.info.max_position_embeddings)
    base::fail(ErrorCode::Corrupt, "{}: expected at most {} tokens, found {}", file.path(),
               model.info.max_position_embeddings, file.ids().size());
}

// Everything but the bytes of keys and values.
void expect_made_by(const ContextFile& file, const Model& model) {
  expect_same_identity(file, model);
  expect_same_shape(file, engine::state_of(model));
  if (file.header().id != saved::make_context_id(model.identity(), file.ids()))
    base::fail(ErrorCode::Corrupt, "{}: id: it is not that of the file's identity and ids", file.path());
}

std::shared_ptr<const Context> make_context(std::shared_ptr<const Model> model,
                                            const std::shared_ptr<ContextFile>& file,
                                            std::shared_ptr<const Context> parent) {
  auto opened = std::make_unique<engine::ContextState>();
  opened->model = std::move(model);
  opened->ids = file->take_ids();
  opened->logits = file->take_logits();
  opened->origin = file->header().origin;
  opened->storage = file;
  opened->set_parent(std::move(parent));
  model::KvPrefix::Parts parts;
  if (opened->parent != nullptr) {
    const auto [in_parent, in_child] = std::ranges::mismatch(opened->parent->ids(), opened->ids);
    parts.n_shared_tokens = static_cast<size_t>(in_child - opened->ids.begin());
    parts.parent = engine::state_of(*opened->parent).kv;
  }
  const auto blocks = file->blocks(*engine::state_of(*opened->model).kv_layout);
  const auto states = file->states();
  parts.n_shared_blocks = file->header().first_block;
  parts.blocks = blocks;
  parts.states = states;
  parts.owner = file;
  opened->kv =
      model::KvPrefix::from_parts(engine::state_of(*opened->model).kv_layout, opened->ids.size(), std::move(parts));
  return engine::StateAccess::make_context(std::move(opened));
}

}  // namespace

std::shared_ptr<const Context> Model::open_context(const std::string& path,
                                                   const OpenContextOptions& options) const {
  return base::only_errors([&]() -> std::shared_ptr<const Context> {
    const auto file = ContextFile::open(path);
    expect_made_by(*file, *this);
    const saved::ContextChain chain = saved::find_ancestors(file, options.parent, [&](const ContextFile& ancestor) {
      expect_made_by(ancestor, *this);
      if (options.check_parents) ancestor.check(engine::state_of(*this).pool);
    });
    if (chain.problem) throw *chain.problem;
    std::shared_ptr<const Context> context;
    for (size_t i = chain.files.size(); i-- > 0;)
      context = make_context(shared_from_this(), chain.files[i], std::move(context));
    return context;
  });
}

}  // namespace kvfork
