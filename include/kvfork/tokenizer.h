// Text to token ids and back, exactly as the model's own tokenizer does it.
//
// A Tokenizer is built from the files of a Hugging Face checkpoint (tokenizer.json and what tokenizer_config.json
// changes in it, or the older vocab.json + merges.txt) or from the vocabulary of a GGUF file. Ids, pieces and
// decoded text are those of the `tokenizers` package; what tokenizer_config.json adds is applied as Transformers'
// fast tokenizers apply it. Anything that would change the ids and is not supported is refused by name.
//
// Ownership: a Tokenizer owns everything it needs; views that it returns live as long as it does.
// Thread rule: const methods may be called from any thread. A DecodeStream belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvfork {

/// Bytes of a text, from `begin` up to `end`.
struct ByteRange {
  size_t begin = 0, end = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

struct EncodeOptions {
  /// Apply the post-processor (for example: put BOS in front). Text rendered by a chat template has its own.
  bool add_special_tokens = false;
  /// Control tokens (special added tokens) that occur in the text stay plain text. Added tokens that are not
  /// special are still cut out, as Transformers' split_special_tokens=True does.
  bool literal_special_tokens = false;
  /// Parts of the text (ascending, apart from one another) that no control token may overlap: what would be one is
  /// encoded as if the vocabulary did not have it. Parts that a user wrote, in a text that a template made.
  std::vector<ByteRange> literal_ranges;
};

/// The control tokens in a text that will become part of a longer one.
struct ControlTokenScan {
  /// Those that encode would find in the text by itself, in order.
  std::vector<int32_t> found;
  /// Characters to name in EncodeOptions::literal_ranges, wherever the text ends up, so that nothing of it is read
  /// as a control token: the first one of each that stands in the text, or that the text breaks off in.
  std::vector<ByteRange> first_characters;
};

/// What happened while encoding, beside the ids.
struct EncodeReport {
  /// A control token found in the text and encoded as such.
  struct ControlToken {
    int32_t id = 0;
    size_t position = 0;  ///< byte where it starts in the text
  };
  /// One string per id, as the package's `Encoding.tokens`.
  std::vector<std::string> pieces;
  std::vector<ControlToken> control_tokens;
  /// Characters (as bytes of the text) for which the vocabulary has no token and no unk: they are dropped.
  size_t n_dropped_bytes = 0;
  /// The distinct byte strings dropped, in order of first occurrence; at most 256 of them.
  std::vector<std::string> dropped;
};

enum class SpecialTokens { Keep, Skip };

/// Whether decode applies tokenizer_config.json's clean_up_tokenization_spaces (" ." to "." and so on).
/// AsConfigured is what Transformers' decode gives, Off what the `tokenizers` package gives.
enum class Cleanup { AsConfigured, Off };

/// The text of the files that are there.
struct TokenizerFiles {
  std::string subject;  ///< path for messages
  std::optional<std::string> tokenizer_json;
  std::optional<std::string> tokenizer_config_json;
  std::optional<std::string> vocab_json;  ///< the older layout, read when there is no tokenizer_json
  std::optional<std::string> merges_txt;
  std::optional<std::string> special_tokens_map_json;
  std::optional<std::string> added_tokens_json;
};

/// The tokenizer.ggml.* metadata of a GGUF file.
struct GgufVocabulary {
  std::string subject;  ///< path for messages
  std::string model;    ///< "gpt2" or "llama"
  std::string pre;      ///< tokenizer.ggml.pre; empty where the file has none
  std::vector<std::string> tokens;
  std::vector<float> scores;   ///< "llama" needs one per token
  std::vector<int32_t> types;  ///< 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; may be empty
  std::vector<std::string> merges;  ///< "gpt2" needs them
  std::optional<bool> add_bos_token, add_eos_token, add_space_prefix;
  std::optional<int32_t> bos_id, eos_id, unk_id, pad_id;
};

namespace tokenizer {
struct Model;
class StreamState;
}  // namespace tokenizer

class Tokenizer {
 public:
  /// Throws Error{Corrupt} for files that break their format, Error{Unsupported} for a component that kvfork
  /// does not run, Error{NotFound} when there is no tokenizer at all; each names the file and the component.
  static Tokenizer from_files(const TokenizerFiles& files);
  /// Reads the files of `directory` that Transformers would read. Throws as from_files, and Error{Io}.
  static Tokenizer from_directory(const std::string& directory);
  /// Throws Error{Unsupported} for a pre-tokenizer name or model without a rule that is certain.
  static Tokenizer from_gguf(const GgufVocabulary& vocabulary);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Ids of `text`, which must be UTF-8: throws Error{InvalidArgument} naming the first byte that is not.
  /// Throws Error{Unsupported} where the package raises too (a character outside a vocabulary whose unk token is
  /// missing), and where text that must stay literal is a control token for the model's own vocabulary.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  /// The same ids, and `report` filled (cleared first). Slower: pieces are strings.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options, EncodeReport& report) const;

  /// The control tokens in `text`; where tokenizer_config.json has split_special_tokens there are none. The text
  /// need not be UTF-8.
  ControlTokenScan scan_control_tokens(std::string_view text) const;

  /// Text of `ids`. Ids that no token has are skipped, as the package skips them.
  std::string decode(std::span<const int32_t> ids, SpecialTokens special_tokens,
                     Cleanup cleanup = Cleanup::AsConfigured) const;

  /// The token string of `id` (the package's id_to_token). Throws Error{InvalidArgument} for an unknown id.
  std::string_view piece(int32_t id) const;
  /// The id of a token string (token_to_id).
  std::optional<int32_t> find_id(std::string_view piece) const;
  bool has_id(int32_t id) const noexcept;
  /// A special added token: skipped by decode under SpecialTokens::Skip.
  bool is_special(int32_t id) const noexcept;
  /// An added token: cut out of the text before the model sees it.
  bool is_added(int32_t id) const noexcept;
  /// Number of distinct token strings, added ones included: Transformers' len(tokenizer).
  size_t vocab_size() const noexcept;

  /// bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token and whatever else
  /// tokenizer_config.json names one by one: what chat templates see. Names without a token are absent.
  const std::map<std::string, std::string>& special_tokens() const noexcept;
  const std::vector<std::string>& additional_special_tokens() const noexcept;
  /// special_tokens()[name], or "".
  std::string special_token(std::string_view name) const;
  std::string bos_token() const { return special_token("bos_token"); }
  std::string eos_token() const { return special_token("eos_token"); }
  std::string unk_token() const { return special_token("unk_token"); }
  std::string pad_token() const { return special_token("pad_token"); }

 private:
  friend class DecodeStream;
  explicit Tokenizer(std::unique_ptr<const tokenizer::Model> model);
  std::unique_ptr<const tokenizer::Model> model_;
};

/// Decodes ids as they arrive. The strings returned by push and finish, joined, equal the decode of all ids;
/// nothing is returned twice and never half a character. Text that a later id may still change is held back: an
/// unfinished character, a run of byte-fallback tokens (one bad byte turns the whole run into U+FFFD), and a space
/// that the cleanup rules may drop. The Tokenizer must outlive the stream.
class DecodeStream {
 public:
  explicit DecodeStream(const Tokenizer& tokenizer, SpecialTokens special_tokens,
                        Cleanup cleanup = Cleanup::AsConfigured);
  DecodeStream(DecodeStream&&) noexcept;
  DecodeStream& operator=(DecodeStream&&) noexcept;
  ~DecodeStream();

  /// Text that became certain with this id; often empty.
  std::string push(int32_t id);
  /// What was held back. The stream is then at its start again.
  std::string finish();

 private:
  std::unique_ptr<tokenizer::StreamState> state_;
};

}  // namespace kvfork
