// Pre-tokenizers of tokenizer.json: cut a text into the pieces that the model sees one by one.
//
// Thread rule: immutable after construction; const methods may be called from any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_tree.h"
#include "tokenizer/regex.h"
#include "tokenizer/text_limit.h"

namespace kvfork::tokenizer {

using base::Json;

/// A text and its cut. Spans are in order, not empty and do not overlap; what no span covers was removed.
struct Pieces {
  std::string_view text;
  std::vector<Span> spans;
  std::string storage;  ///< `text` when a pre-tokenizer rewrote it
  /// Whether the first byte of `text` stands for the start of the user's text.
  bool at_start = false;
  TextLimit limit;

  /// Makes `rewritten` the text. Throws Error{Limit} where it passes the bound.
  void replace(std::string rewritten, std::vector<Span> cut) {
    limit.check(rewritten.size());
    storage = std::move(rewritten);
    text = storage;
    spans = std::move(cut);
  }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
  virtual bool ends_with_byte_level() const { return false; }
  /// Requires ends_with_byte_level(). From now on that last step leaves the bytes plain: the model takes them so.
  virtual void leave_bytes_plain() {}
  /// tokenizer_config.json's add_prefix_space; only a ByteLevel at the top listens, as in Transformers.
  virtual void set_add_prefix_space(bool) {}
  /// The same for every ByteLevel, inside sequences too: what CohereTokenizer and BloomTokenizer do where it is
  /// true.
  virtual void add_prefix_spaces() { set_add_prefix_space(true); }
};

/// Throws Error{Unsupported} for a type that kvfork does not run, Error{Corrupt} for a malformed one.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Json& json);

/// The UnicodeScripts pre-tokenizer.
std::unique_ptr<PreTokenizer> make_unicode_scripts();

/// How the delimiters that a pattern finds are kept: see the package's SplitDelimiterBehavior.
enum class SplitBehavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

/// Cuts `piece` at `matches` (relative to the start of `piece`), appending spans that start at `offset`.
void split_piece(size_t piece_size, const std::vector<Span>& matches, SplitBehavior behavior, bool invert,
                 size_t offset, std::vector<Span>& out);

}  // namespace kvfork::tokenizer
