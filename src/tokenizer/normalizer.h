// Normalizers of tokenizer.json: text to text, before the text is cut into pieces.
//
// Thread rule: immutable after construction; const methods may be called from any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json_tree.h"
#include "tokenizer/text_limit.h"

namespace kvfork::tokenizer {

using base::Json;

/// A text on its way through normalizers.
struct NormalizedText {
  NormalizedText(std::string_view original, bool at_start_in)
      : text(original), at_start(at_start_in), limit(original.size()) {}

  std::string text;  ///< well-formed UTF-8
  /// Whether the first character stands for the first one of the user's text; false from when that one is removed
  /// (Metaspace's "first" asks for it).
  bool at_start;
  TextLimit limit;
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Throws Error{Limit} where the text would pass its bound.
  virtual void apply(NormalizedText& in) const = 0;
  /// True when `text` is certain to stay as it is, so that it need not be copied.
  virtual bool keeps(std::string_view) const { return false; }
};

/// Throws Error{Unsupported} for a type that kvfork does not run, Error{Corrupt} for a malformed one.
std::unique_ptr<const Normalizer> make_normalizer(const Json& json);

/// The Precompiled normalizer from SentencePiece's charsmap (base64). Throws Error{Corrupt}.
std::unique_ptr<const Normalizer> make_precompiled(const Json& json);

}  // namespace kvfork::tokenizer
