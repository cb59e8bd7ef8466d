// Post-processors of tokenizer.json: the special tokens put around an encoded text.
//
// Thread rule: immutable after construction.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json_tree.h"

namespace kvfork::tokenizer {

using base::Json;

class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  /// Wraps `ids`; `pieces` (one per id) likewise where it is not null.
  virtual void apply(std::vector<int32_t>& ids, std::vector<std::string>* pieces) const = 0;
};

/// Throws Error{Unsupported} for a type that kvfork does not run, Error{Corrupt} for a malformed one.
std::unique_ptr<const PostProcessor> make_post_processor(const Json& json);

/// Puts the given tokens before and after.
std::unique_ptr<const PostProcessor> make_affixes(std::vector<std::pair<std::string, int32_t>> before,
                                                  std::vector<std::pair<std::string, int32_t>> after);

}  // namespace kvfork::tokenizer
