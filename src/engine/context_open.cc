// Model::open_context: a saved context, refused unless everything that its bits and ids depend on is this model's.

#include <filesystem>

#include "base/error.h"
#include "engine/context_file.h"
#include "engine/context_impl.h"
#include "engine/identity.h"
#include "engine/model_impl.h"
#include "engine/origin.h"

namespace kvfork {
namespace {

namespace fs = std::filesystem;
using engine::ContextFile;

constexpr size_t kMaxNesting = 1000;

std::string shown(const std::string& value) { return value.empty() ? "none" : value; }

// Fingerprints of the text are compared only where the context was rendered from text.
void expect_same_identity(const ContextFile& file, const Model& model) {
  Identity expected = model.identity();
  const Identity& found = file.header().identity;
  if (const auto& origin = file.header().origin; origin != nullptr) {
    expected.tokenizer = model.text().tokenizer_fingerprint();
    // The template is compared by Prompter::from_origin's rules, which know a template that was stored with the context.
    expected.chat_template = engine::fingerprint_origin_template(model.text(), *origin);
  }
  for (const engine::IdentityField& field : engine::deciding_fields()) {
    if (found.*field.value != expected.*field.value)
      base::fail(ErrorCode::InvalidArgument, "{}: {}: expected {} (this model's), found {}; save the context again with this model",
                 file.path(), field.name, shown(expected.*field.value), shown(found.*field.value));
  }
}

void expect_same_shape(const ContextFile& file, const Model::Impl& model) {
  if (file.layout() != model.kv_layout || file.logits().size() != model.info.vocab_size)
    base::fail(ErrorCode::Corrupt, "{}: the shapes of its tensors are not those of the model that it names", file.path());
  for (const int32_t id : file.ids()) {
    if (static_cast<size_t>(id) >= model.info.vocab_size)
      base::fail(ErrorCode::Corrupt, "{}: ids: expected ids below {}, found {}", file.path(), model.info.vocab_size, id);
  }
  if (file.ids().size() > model.info.max_position_embeddings)
    base::fail(ErrorCode::Corrupt, "{}: expected at most {} tokens, found {}", file.path(), model.info.max_position_embeddings,
               file.ids().size());
}

// The file's id if it is a sound saved context, else "".
std::string id_of(const fs::path& path) {
  try {
    return ContextFile::open(path)->header().id;
  } catch (const Error&) {
    return "";
  }
}

// The file that holds the parent: the one given, the one named, or any beside the child with the right id.
fs::path find_parent(const ContextFile& child, const std::string& given) {
  if (!given.empty()) return given;
  const engine::ContextHeader& header = child.header();
  const fs::path directory = fs::absolute(child.path()).parent_path();
  // A name, not a path: a file must not send the reader elsewhere.
  const fs::path hint = fs::path(header.parent_file).filename();
  if (!hint.empty() && id_of(directory / hint) == header.parent_id) return directory / hint;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    if (entry.is_regular_file(error) && id_of(entry.path()) == header.parent_id) return entry.path();
  }
  base::fail(ErrorCode::InvalidArgument,
             "{}: parent: expected a context file with the id {} beside it{}, found none; give it with --parent", child.path(),
             header.parent_id, hint.empty() ? "" : fmt::format(", once called {}", hint.string()));
}

std::shared_ptr<const Context> open_file(const std::shared_ptr<const Model>& model, const std::string& path,
                                         const std::string& parent_path, size_t depth) {
  const auto file = ContextFile::open(path);
  expect_same_identity(*file, *model);
  expect_same_shape(*file, model->impl());
  const engine::ContextHeader& header = file->header();
  if (header.id != engine::make_context_id(model->identity(), file->ids()))
    base::fail(ErrorCode::Corrupt, "{}: id: it is not that of the file's identity and ids", path);
  auto opened = std::make_unique<Context::Impl>();
  opened->model = model;
  opened->ids = file->take_ids();
  opened->logits = file->take_logits();
  opened->origin = header.origin;
  opened->file = file;
  std::shared_ptr<const model::KvPrefix> parent_kv;
  if (!header.parent_id.empty()) {
    if (depth == kMaxNesting) base::fail(ErrorCode::Limit, "{}: expected at most {} parents", path, kMaxNesting);
    const fs::path found = find_parent(*file, parent_path);
    opened->parent = open_file(model, found.string(), "", depth + 1);
    if (opened->parent->id() != header.parent_id)
      base::fail(ErrorCode::InvalidArgument, "{}: parent: expected the id {}, found {} in {}", path, header.parent_id,
                 opened->parent->id(), found.string());
    const size_t n_shared = header.first_block * kernels::kBlockTokens;
    const auto parent_ids = opened->parent->ids();
    if (parent_ids.size() < n_shared || !std::equal(parent_ids.begin(), parent_ids.begin() + n_shared, opened->ids.begin()))
      base::fail(ErrorCode::Corrupt, "{}: its ids do not continue those of its parent {}", path, found.string());
    parent_kv = opened->parent->impl().kv;
  }
  const auto blocks = file->blocks();
  opened->kv = model::KvPrefix::from_blocks(file->layout(), opened->ids.size(), std::move(parent_kv), header.first_block, blocks, file);
  return std::make_shared<const Context>(std::move(opened));
}

}  // namespace

std::shared_ptr<const Context> Model::open_context(const std::string& path, const OpenContextOptions& options) const {
  return open_file(shared_from_this(), path, options.parent, 0);
}

}  // namespace kvfork
