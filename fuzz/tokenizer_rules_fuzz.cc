// Normalizers, pre-tokenizers and decoders in any order and nesting: the first bytes choose them, the rest is the
// text. Encoding ends, twice with the same ids, and streamed text equals the whole; or one clear Error.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "kvfork/error.h"
#include "kvfork/tokenizer.h"

namespace {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  size_t below(size_t bound) { return at_ < size_ ? data_[at_++] % bound : 0; }
  std::string rest() const { return {reinterpret_cast<const char*>(data_ + at_), size_ - at_}; }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

// JSON strings, patterns and types to choose from.
constexpr const char* kTexts[] = {R"("")",  R"("a")",    R"(" ")", R"("▁")", R"("aaaaaaaaaaaaaaaa")",
                                  R"("é")", R"("</w>")", R"("ab")"};
constexpr const char* kRegexes[] = {R"("")",  R"("a*")",          "\"(?=a)\"",   R"("\\s+")",
                                    R"(".")", R"("\\p{L}+|\\d")", "\"(a|ab)+$\""};
constexpr const char* kBehaviors[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
constexpr const char* kPlainNormalizers[] = {"NFC",       "NFD",          "NFKC", "NFKD",
                                             "Lowercase", "StripAccents", "Nmt",  "ByteLevel"};

template <size_t N>
std::string choose(Input& in, const char* const (&list)[N]) {
  return list[in.below(N)];
}

std::string pattern(Input& in) {
  return in.below(2) == 0 ? R"({"String":)" + choose(in, kTexts) + "}"
                          : R"({"Regex":)" + choose(in, kRegexes) + "}";
}

std::string replace(Input& in) {
  const std::string from = pattern(in);
  return R"({"type":"Replace","pattern":)" + from + R"(,"content":)" + choose(in, kTexts) + "}";
}

template <typename Make>
std::string sequence(Input& in, const char* name, int depth, const Make& make) {
  std::string list;
  for (size_t n = in.below(6); n > 0; --n) list += (list.empty() ? "" : ",") + make(in, depth + 1);
  return std::string(R"({"type":"Sequence",")") + name + "\":[" + list + "]}";
}

std::string normalizer(Input& in, int depth) {
  switch (in.below(depth < 3 ? 5 : 4)) {
    case 0:
      return std::string(R"({"type":")") + choose(in, kPlainNormalizers) + "\"}";
    case 1:
      return replace(in);
    case 2:
      return R"({"type":"Prepend","prepend":)" + choose(in, kTexts) + "}";
    case 3:
      return in.below(2) == 0 ? R"({"type":"Strip","strip_left":true,"strip_right":false})"
                              : R"({"type":"Strip","strip_left":false,"strip_right":true})";
    default:
      return sequence(in, "normalizers", depth, normalizer);
  }
}

std::string pre_tokenizer(Input& in, int depth) {
  switch (in.below(depth < 3 ? 6 : 5)) {
    case 0: {
      const std::string by = pattern(in);
      return R"({"type":"Split","invert":)" + std::string(in.below(2) == 0 ? "true" : "false") +
             R"(,"behavior":")" + choose(in, kBehaviors) + R"(","pattern":)" + by + "}";
    }
    case 1:
      return R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":true})";
    case 2:
      return R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true})";
    case 3:
      return R"({"type":"FixedLength","length":)" + std::to_string(1 + in.below(3)) + "}";
    case 4:
      return in.below(2) == 0 ? R"({"type":"Whitespace"})" : R"({"type":"Digits","individual_digits":true})";
    default:
      return sequence(in, "pretokenizers", depth, pre_tokenizer);
  }
}

std::string decoder(Input& in, int depth) {
  switch (in.below(depth < 3 ? 8 : 7)) {
    case 0:
      return R"({"type":"ByteLevel"})";
    case 1:
      return R"({"type":"ByteFallback"})";
    case 2:
      return R"({"type":"Fuse"})";
    case 3:
      return replace(in);
    case 4:
      return R"({"type":"Strip","content":"a","start":)" + std::to_string(in.below(3)) + R"(,"stop":)" +
             std::to_string(in.below(3)) + "}";
    case 5:
      return R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always"})";
    case 6:
      return R"({"type":"BPEDecoder","suffix":)" + choose(in, kTexts) + "}";
    default:
      return sequence(in, "decoders", depth, decoder);
  }
}

constexpr const char* kModel =
    R"("model":{"type":"BPE","byte_fallback":true,"unk_token":"?","merges":["a b"],"vocab":{"?":0,"a":1,"b":2,"ab":3,)"
    R"("▁":4," ":5,"é":6,"<0xE6>":7,"<0x97>":8,"<0xFF>":9,"</w>":10,"":11,"\u0120":12,"x":13}})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  kvfork::TokenizerFiles files;
  files.subject = "fuzz";
  const std::string normalizers = normalizer(in, 0), pre_tokenizers = pre_tokenizer(in, 0);
  files.tokenizer_json = R"({"normalizer":)" + normalizers + R"(,"pre_tokenizer":)" + pre_tokenizers +
                         R"(,"decoder":)" + decoder(in, 0) + "," + kModel + "}";
  try {
    const auto tokenizer = kvfork::Tokenizer::from_files(files);
    const std::vector<int32_t> ids = tokenizer.encode(in.rest());
    if (tokenizer.encode(in.rest()) != ids) std::abort();
    const std::string whole = tokenizer.decode(ids, kvfork::SpecialTokens::Keep);
    kvfork::DecodeStream stream(tokenizer, kvfork::SpecialTokens::Keep);
    std::string joined;
    for (const int32_t id : ids) joined += stream.push(id);
    if (joined + stream.finish() != whole) std::abort();
  } catch (const kvfork::Error&) {
  }
  return 0;
}
