// The format of saved contexts (docs/cache-file.md): what a file says beside its tensors, as safetensors metadata.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kvfork/identity.h"
#include "kvfork/prompt.h"
#include "model/kv_cache.h"

namespace kvfork::saved {

inline constexpr std::string_view kContextFormat = "kvfork.context";
inline constexpr std::string_view kContextFormatVersion = "1";

/// The tensors' data starts at a multiple of this, so that keys and values are page-aligned in a mapping.
inline constexpr size_t kContextAlignment = 4096;

struct ContextHeader {
  Identity identity;
  std::string id;              ///< Context::id()
  std::string kvfork_version;  ///< that wrote it
  size_t n_tokens = 0;
  size_t first_block = 0;                       ///< blocks before this one are the parent's
  std::string parent_id;                        ///< Context::id() of the parent; empty without one
  std::string parent_file;                      ///< its file's name when this one was written, a hint; may be empty
  std::shared_ptr<const ContextOrigin> origin;  ///< but for its text; null: from ids alone
};

using Metadata = std::map<std::string, std::string>;

Metadata encode_header(const ContextHeader& header);

/// Throws Error{InvalidArgument} for another format version, Error{Corrupt} for metadata of another kind, naming
/// the key.
ContextHeader decode_header(const Metadata& metadata, std::string_view subject);

/// Whether the metadata says that the file is a saved context of any version.
bool is_context(const Metadata& metadata);

/// Tensors of states, where layers have some.
inline constexpr const char* kStates = "states";
inline constexpr const char* kStatePositions = "state_positions";

/// "layers.3.k"
std::string key_tensor_name(size_t layer);
std::string value_tensor_name(size_t layer);

}  // namespace kvfork::saved
