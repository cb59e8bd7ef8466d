// model.safetensors.index.json: which shard holds which tensor.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace kvfork::checkpoint {

/// Tensor name to shard file name. File names are plain names ending in .safetensors: nothing can point outside
/// the checkpoint's directory. Throws Error{Corrupt, Unsupported}; `subject` names the text.
std::map<std::string, std::string> parse_shard_index(std::string_view json, std::string_view subject);

}  // namespace kvfork::checkpoint
