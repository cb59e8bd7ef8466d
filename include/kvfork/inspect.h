// What a checkpoint or a saved context holds, found without loading a model.
//
// Plain values. Thread rule: safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvfork/error.h"
#include "kvfork/identity.h"
#include "kvfork/prompt.h"

namespace kvfork {

/// A saved context, as its file says. Its identity was compared with no model.
struct ContextFacts {
  uint64_t file_bytes = 0;
  std::string kvfork_version;  ///< that wrote it
  std::string id;              ///< as Context::id
  Identity identity;
  size_t n_tokens = 0;
  size_t n_parent_tokens = 0;  ///< of these, held by the parent's file
  std::string parent_id;       ///< empty: whole in itself
  std::string parent_file;
  size_t n_layers = 0;
  size_t n_kv_heads = 0;
  size_t head_dim = 0;
  size_t vocab_size = 0;
  size_t kv_bytes_per_token = 0;
  std::shared_ptr<const ContextOrigin> origin;  ///< null: from token ids alone
};

/// Whether the file starts as a saved context does, of whatever version and in whatever state.
bool is_saved_context(const std::string& path);

enum class ContextCheck {
  Quick,  ///< header, ids, logits and text against their checksums
  All,    ///< every byte of the file, and that its id is that of its identity and ids
};

/// The file alone, without its parent. Throws Error{NotFound, Io}, Error{Corrupt} for a damaged file,
/// Error{InvalidArgument} for another format version.
ContextFacts inspect_context(const std::string& path, ContextCheck check);

/// A context that a child's file continues.
struct AncestorFacts {
  std::string id;           ///< that the child names
  std::string file;         ///< that holds it, or would hold it and cannot be used; empty: there is none
  uint64_t file_bytes = 0;  ///< 0 with a problem
  size_t n_tokens = 0;      ///< 0 with a problem
  std::optional<Error>
      problem;  ///< nothing: every byte is sound, and the context is the one that its child continues
};

/// The parent of a saved context, the parent's parent, and so on, each found as Model::open_context finds it
/// (`parent` as in OpenContextOptions) and checked in full, its identity against that of the file itself in place
/// of a model's. Ends with the first that has a problem; empty for a context that is whole in itself. Throws as
/// inspect_context about the file itself, of which only the quick check is made.
std::vector<AncestorFacts> inspect_ancestors(const std::string& path, const std::string& parent = "");

/// What the chat template does with a fixed context.
struct TemplateFacts {
  std::vector<std::string> names;
  bool takes_system_message = false;
  std::string default_system_text;  ///< what it says itself where a conversation has no system message
  bool reads_clock = false;
  /// The first boundary mode that kept a system message a token prefix of every probe request; nothing: none did.
  std::optional<BoundaryMode> boundary;
  bool safe_for_any_request = false;  ///< such a context ends at an added token, which nothing merges with
  std::string problem;                ///< why nothing could be rendered; empty: it could
};

struct ModelFacts {
  std::string format;  ///< "safetensors" or "gguf"
  std::string architecture;
  std::string model_type;
  std::string revision;       ///< the Hub's commit, when the path shows it
  std::string problem;        ///< why kvfork cannot run it, as opening it would say; empty: it can
  bool has_weights = false;   ///< of a directory, whether its weight files are there
  uint64_t weight_bytes = 0;  ///< of the files there; else as the config implies, in its torch_dtype
  uint64_t n_parameters = 0;
  std::map<std::string, uint64_t> bytes_by_type;  ///< of the tensors there, by stored type
  size_t max_position_embeddings = 0;
  size_t n_layers = 0;
  size_t n_heads = 0;
  size_t n_kv_heads = 0;
  size_t head_dim = 0;
  size_t hidden_size = 0;
  size_t vocab_size = 0;
  size_t kv_bytes_per_token_float32 = 0;
  size_t kv_bytes_per_token_bfloat16 = 0;
  size_t state_bytes = 0;  ///< of layers whose memory is a state, at one position
  bool has_tokenizer = false;
  std::string tokenizer_problem;               ///< why it cannot be used; empty: it can
  std::optional<TemplateFacts> chat_template;  ///< nothing: the checkpoint has none
};

/// Reads config, tokenizer, template and the headers of weight files; a directory may lack the weights. Throws
/// Error{NotFound, Io}; Error{Corrupt} only where not even the configuration can be read.
ModelFacts inspect_model(const std::string& path);

}  // namespace kvfork
