// Normalizers of tokenizer.json: text to text, before the text is cut into pieces.
//
// Thread rule: immutable after construction; const methods may be called from any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json_tree.h"

namespace kvfork::tokenizer {

using base::Json;

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Rewrites `text` (well-formed UTF-8) in place. `at_start` says whether the first character stands for the first
  /// one of the user's text; it becomes false when that one is removed (Metaspace's "first" asks for it).
  virtual void apply(std::string& text, bool& at_start) const = 0;
  /// True when `text` is certain to stay as it is, so that it need not be copied.
  virtual bool keeps(std::string_view) const { return false; }
};

/// Throws Error{Unsupported} for a type that kvfork does not run, Error{Corrupt} for a malformed one.
std::unique_ptr<const Normalizer> make_normalizer(const Json& json);

/// The Precompiled normalizer from SentencePiece's charsmap (base64). Throws Error{Corrupt}.
std::unique_ptr<const Normalizer> make_precompiled(const Json& json);

}  // namespace kvfork::tokenizer
