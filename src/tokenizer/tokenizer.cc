// The public Tokenizer: encode, decode and what goes with them.
#include "kvfork/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/model.h"
#include "tokenizer/unicode.h"

namespace kvfork {
namespace {

using tokenizer::AddedToken;
using tokenizer::AddedVocabulary;
using tokenizer::Model;
using tokenizer::NormalizedText;
using tokenizer::Pieces;
using tokenizer::Segment;
using tokenizer::Span;
using tokenizer::TokenSink;

/// One encode of one text.
class Encoder {
 public:
  Encoder(const Model& model, const EncodeOptions& options, TokenSink& sink)
      : model_(model),
        is_literal_(options.literal_special_tokens || !options.literal_ranges.empty()),
        literal_{options.literal_special_tokens || model.split_special_tokens, options.literal_ranges},
        sink_(sink) {}

  void run(std::string_view text) {
    for (const Segment& segment : model_.added.split_raw(text, literal_)) {
      const std::string_view part = text.substr(segment.span.begin, segment.span.size());
      if (segment.id >= 0) {
        add_token(segment.id, part, segment.span.begin);
      } else if (!part.empty()) {
        encode_raw(part, segment.span.begin);
      }
    }
  }

 private:
  void encode_raw(std::string_view part, size_t position) {
    bool at_start = position == 0;
    std::optional<NormalizedText> normalized;
    const std::vector<ByteRange> raw_ranges = ranges_within(position, part.size());
    AddedVocabulary::Literal literal{literal_.all, raw_ranges};
    std::vector<ByteRange> ranges;
    if (model_.normalizer != nullptr && !model_.normalizer->keeps(part)) {
      normalized.emplace(part, at_start);
      model_.normalizer->apply(*normalized);
      at_start = normalized->at_start;
      ranges = normalize_ranges(part, normalized->text, raw_ranges, position == 0);
      literal.ranges = ranges;
      part = normalized->text;
    }
    for (const Segment& segment : model_.added.split_normalized(part, literal)) {
      const std::string_view piece = part.substr(segment.span.begin, segment.span.size());
      if (segment.id >= 0) {
        add_token(segment.id, piece, position + segment.span.begin);
      } else if (!piece.empty()) {
        encode_plain(piece, at_start && segment.span.begin == 0);
      }
    }
  }

  // Where the literal ranges lie in the part of `size` bytes that begins at `position`.
  std::vector<ByteRange> ranges_within(size_t position, size_t size) const {
    std::vector<ByteRange> out;
    if (!model_.added.has_normalized_special()) return out;
    for (const ByteRange& range : literal_.ranges) {
      const size_t begin = std::max(range.begin, position), end = std::min(range.end, position + size);
      if (begin < end) out.push_back({begin - position, end - position});
    }
    return out;
  }

  std::string normalize(std::string_view text, bool at_start) const {
    NormalizedText in(text, at_start);
    if (!text.empty()) model_.normalizer->apply(in);
    return std::move(in.text);
  }

  // Where the ranges of a text lie in what the normalizer made of it. Where a range's edge is lost in what was
  // composed across it, the range grows.
  std::vector<ByteRange> normalize_ranges(std::string_view text, std::string_view normalized,
                                          std::span<const ByteRange> ranges, bool at_start) const {
    std::vector<ByteRange> out;
    for (const ByteRange& range : ranges) {
      const std::string before = normalize(text.substr(0, range.begin), at_start);
      const std::string after = normalize(text.substr(range.end), false);
      const auto begin =
          std::mismatch(before.begin(), before.end(), normalized.begin(), normalized.end()).first - before.begin();
      const auto n_after =
          std::mismatch(after.rbegin(), after.rend(), normalized.rbegin(), normalized.rend()).first -
          after.rbegin();
      const size_t end = normalized.size() - static_cast<size_t>(n_after);
      out.push_back({std::min(static_cast<size_t>(begin), end), end});
    }
    return out;
  }

  void encode_plain(std::string_view text, bool at_start) {
    const size_t n_before = sink_.ids.size();
    run_model(text, at_start);
    if (is_literal_) check_literal(text, n_before);
  }

  // A model whose own vocabulary holds a control token (Unigram does) may find it in plain text.
  void check_literal(std::string_view text, size_t n_before) const {
    for (size_t i = n_before; i < sink_.ids.size(); ++i) {
      const AddedToken* token = model_.added.find(sink_.ids[i]);
      if (token == nullptr || !token->special || text.find(token->content) == std::string_view::npos) continue;
      base::fail(ErrorCode::Unsupported,
                 "{}: expected plain text to give no control token, found that the model itself makes one of '{}'; "
                 "this tokenizer "
                 "cannot keep it literal",
                 model_.subject, token->content);
    }
  }

  void run_model(std::string_view text, bool at_start) {
    if (model_.pre_tokenizer == nullptr) return model_.model->encode(text, sink_);
    Pieces pieces;
    pieces.text = text;
    pieces.limit = tokenizer::TextLimit(text.size());
    pieces.spans.push_back({0, text.size()});
    pieces.at_start = at_start;
    model_.pre_tokenizer->apply(pieces);
    for (const Span& span : pieces.spans) model_.model->encode(pieces.text.substr(span.begin, span.size()), sink_);
  }

  void add_token(int32_t id, std::string_view text, size_t position) {
    if (text.empty()) return;
    sink_.ids.push_back(id);
    if (sink_.report == nullptr) return;
    sink_.report->pieces.emplace_back(text);
    if (model_.added.find(id)->special) sink_.report->control_tokens.push_back({id, position});
  }

  const Model& model_;
  bool is_literal_;  // as the caller asks, beyond what tokenizer_config.json says
  AddedVocabulary::Literal literal_;
  TokenSink& sink_;
};

// Finds the control tokens of a text without running the model.
std::vector<int32_t> find_control_tokens(const Model& model, std::string_view text) {
  std::vector<int32_t> found;
  const auto keep_special = [&](int32_t id) {
    if (model.added.find(id)->special) found.push_back(id);
  };
  for (const Segment& segment : model.added.split_raw(text, {})) {
    if (segment.id >= 0) {
      if (segment.span.size() > 0) keep_special(segment.id);
      continue;
    }
    if (!model.added.has_normalized_special()) continue;
    NormalizedText part(text.substr(segment.span.begin, segment.span.size()), false);
    if (model.normalizer != nullptr && !part.text.empty()) model.normalizer->apply(part);
    for (const Segment& inner : model.added.split_normalized(part.text, {})) {
      if (inner.id >= 0 && inner.span.size() > 0) keep_special(inner.id);
    }
  }
  return found;
}

void run_encode(const Model& model, std::string_view text, const EncodeOptions& options, TokenSink& sink) {
  if (base::find_invalid_utf8(text) != text.size()) {
    const size_t at = base::find_invalid_utf8(text);
    base::fail(ErrorCode::InvalidArgument, "text to encode: expected UTF-8, found the byte 0x{:02X} at position {}",
               static_cast<unsigned char>(text[at]), at);
  }
  Encoder(model, options, sink).run(text);
  if (options.add_special_tokens && model.post_processor != nullptr) {
    model.post_processor->apply(sink.ids, sink.report != nullptr ? &sink.report->pieces : nullptr);
  }
}

/// The string of an id: an added token's, or the model's.
std::optional<std::string_view> find_piece(const Model& model, int32_t id) {
  if (const AddedToken* token = model.added.find(id)) return token->content;
  if (model.model->vocabulary().has(id)) return model.model->vocabulary().token(id);
  return std::nullopt;
}

/// ByteLevel alone: no need for streams, since only the whole must be UTF-8.
std::string decode_bytes(const Model& model, std::span<const int32_t> ids, SpecialTokens special_tokens) {
  std::string out;
  out.reserve(ids.size() * 5);
  for (const int32_t id : ids) {
    const std::optional<std::string_view> piece = find_piece(model, id);
    if (!piece) continue;
    if (special_tokens == SpecialTokens::Skip && model.added.is_special(*piece)) continue;
    tokenizer::append_token_bytes(out, *piece);
  }
  return base::find_invalid_utf8(out) == out.size() ? out : base::to_valid_utf8(out);
}

}  // namespace

namespace tokenizer {

class StreamState {
 public:
  StreamState(const Model& model, SpecialTokens special_tokens, Cleanup cleanup)
      : model_(model),
        skips_special_(special_tokens == SpecialTokens::Skip),
        cleans_(cleanup == Cleanup::AsConfigured && model.clean_up_tokenization_spaces),
        chain_(model.decoder.make_chain()) {}

  void push(int32_t id, std::string& out) {
    const std::optional<std::string_view> piece = find_piece(model_, id);
    if (!piece || (skips_special_ && model_.added.is_special(*piece))) return;
    if (!cleans_) return chain_.push(std::string(*piece), out);
    std::string text;
    chain_.push(std::string(*piece), text);
    cleanup_.push(text, out);
  }

  void finish(std::string& out) {
    if (!cleans_) return chain_.finish(out);
    std::string text;
    chain_.finish(text);
    cleanup_.push(text, out);
    cleanup_.finish(out);
  }

 private:
  const Model& model_;
  bool skips_special_, cleans_;
  DecodeChain chain_;
  CleanupStream cleanup_;
};

}  // namespace tokenizer

Tokenizer::Tokenizer(std::unique_ptr<const tokenizer::Model> model) : model_(std::move(model)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::from_files(const TokenizerFiles& files) {
  return base::only_errors([&]() -> Tokenizer {
    std::unique_ptr<Model> model;
    if (files.tokenizer_json) {
      model = tokenizer::load_tokenizer_json(files);
    } else if (files.vocab_json && files.merges_txt) {
      model = tokenizer::load_vocab_and_merges(files);
    } else {
      base::fail(ErrorCode::NotFound, "{}: expected tokenizer.json, or vocab.json and merges.txt; found neither",
                 files.subject);
    }
    tokenizer::apply_config(*model, files);
    tokenizer::finish_model(*model);
    return Tokenizer(std::move(model));
  });
}

Tokenizer Tokenizer::from_directory(const std::string& directory) {
  return base::only_errors([&]() -> Tokenizer {
    const std::filesystem::path dir(directory);
    TokenizerFiles files;
    files.subject = directory;
    files.tokenizer_json = base::read_file_if_present(dir / "tokenizer.json");
    files.tokenizer_config_json = base::read_file_if_present(dir / "tokenizer_config.json");
    files.special_tokens_map_json = base::read_file_if_present(dir / "special_tokens_map.json");
    files.added_tokens_json = base::read_file_if_present(dir / "added_tokens.json");
    if (!files.tokenizer_json) {
      files.vocab_json = base::read_file_if_present(dir / "vocab.json");
      files.merges_txt = base::read_file_if_present(dir / "merges.txt");
      const bool has_sentencepiece = std::filesystem::exists(dir / "tokenizer.model");
      if ((!files.vocab_json || !files.merges_txt) && has_sentencepiece) {
        base::fail(
            ErrorCode::Unsupported,
            "{}: expected tokenizer.json, found only tokenizer.model (a SentencePiece protobuf); load it once with "
            "Transformers' AutoTokenizer and call save_pretrained to get a tokenizer.json",
            directory);
      }
    }
    return from_files(files);
  });
}

Tokenizer Tokenizer::from_gguf(const GgufVocabulary& vocabulary) {
  return base::only_errors([&]() -> Tokenizer {
    std::unique_ptr<Model> model = tokenizer::load_gguf(vocabulary);
    tokenizer::finish_model(*model);
    return Tokenizer(std::move(model));
  });
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  return base::only_errors([&]() -> std::vector<int32_t> {
    TokenSink sink;
    run_encode(*model_, text, options, sink);
    return std::move(sink.ids);
  });
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options,
                                       EncodeReport& report) const {
  return base::only_errors([&]() -> std::vector<int32_t> {
    report = EncodeReport();
    TokenSink sink;
    sink.report = &report;
    run_encode(*model_, text, options, sink);
    return std::move(sink.ids);
  });
}

ControlTokenScan Tokenizer::scan_control_tokens(std::string_view text) const {
  return base::only_errors([&]() -> ControlTokenScan {
    ControlTokenScan scan;
    if (model_->split_special_tokens) return scan;
    std::string valid;
    if (base::find_invalid_utf8(text) != text.size()) {
      valid = text;
      for (size_t at = 0; (at += base::find_invalid_utf8(text.substr(at))) < text.size(); ++at) valid[at] = ' ';
      text = valid;
    }
    scan.found = find_control_tokens(*model_, text);
    const auto add_character = [&](size_t begin) {
      scan.first_characters.push_back({begin, begin + tokenizer::utf8_length(text[begin])});
    };
    if (model_->normalizer != nullptr && model_->added.has_normalized_special()) {
      // What the normalizer makes of the text, and of its neighbours, can begin anywhere.
      for (size_t at = 0; at < text.size(); at += tokenizer::utf8_length(text[at])) add_character(at);
    } else {
      for (const size_t begin : model_->added.find_special_beginnings(text)) add_character(begin);
    }
    return scan;
  });
}

std::string Tokenizer::decode(std::span<const int32_t> ids, SpecialTokens special_tokens, Cleanup cleanup) const {
  return base::only_errors([&]() -> std::string {
    if (model_->decoder.is_byte_level() && (cleanup == Cleanup::Off || !model_->clean_up_tokenization_spaces)) {
      return decode_bytes(*model_, ids, special_tokens);
    }
    tokenizer::StreamState state(*model_, special_tokens, cleanup);
    std::string out;
    for (const int32_t id : ids) state.push(id, out);
    state.finish(out);
    return out;
  });
}

std::string_view Tokenizer::piece(int32_t id) const {
  if (const auto piece = find_piece(*model_, id)) return *piece;
  base::fail(ErrorCode::InvalidArgument, "{}: expected the id of a token, found {}", model_->subject, id);
}

std::optional<int32_t> Tokenizer::find_id(std::string_view piece) const {
  int32_t id = model_->added.find_id(piece);
  if (id < 0) id = model_->model->vocabulary().find(piece);
  return id < 0 ? std::nullopt : std::optional(id);
}

bool Tokenizer::has_id(int32_t id) const noexcept {
  return find_piece(*model_, id).has_value();
}

bool Tokenizer::is_special(int32_t id) const noexcept {
  const auto piece = find_piece(*model_, id);
  return piece && model_->added.is_special(*piece);
}

bool Tokenizer::is_added(int32_t id) const noexcept {
  return model_->added.find(id) != nullptr;
}

size_t Tokenizer::vocab_size() const noexcept {
  return model_->model->size() + model_->added.count_new(*model_->model);
}

const std::map<std::string, std::string>& Tokenizer::special_tokens() const noexcept {
  return model_->special_tokens;
}

const std::vector<std::string>& Tokenizer::additional_special_tokens() const noexcept {
  return model_->additional_special_tokens;
}

std::string Tokenizer::special_token(std::string_view name) const {
  return base::only_errors([&]() -> std::string {
    const auto it = model_->special_tokens.find(std::string(name));
    return it == model_->special_tokens.end() ? std::string() : it->second;
  });
}

DecodeStream::DecodeStream(const Tokenizer& tokenizer, SpecialTokens special_tokens, Cleanup cleanup)
    : state_(base::only_errors(
          [&] { return std::make_unique<tokenizer::StreamState>(*tokenizer.model_, special_tokens, cleanup); })) {}
DecodeStream::DecodeStream(DecodeStream&&) noexcept = default;
DecodeStream& DecodeStream::operator=(DecodeStream&&) noexcept = default;
DecodeStream::~DecodeStream() = default;

std::string DecodeStream::push(int32_t id) {
  return base::only_errors([&]() -> std::string {
    std::string out;
    state_->push(id, out);
    return out;
  });
}

std::string DecodeStream::finish() {
  return base::only_errors([&]() -> std::string {
    std::string out;
    state_->finish(out);
    return out;
  });
}

}  // namespace kvfork
