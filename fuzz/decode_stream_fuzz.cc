// Ids in any order: the streamed pieces joined equal the whole decode, whatever the decoder. And for byte-level
// text: decode gives back what was encoded, and encoding that gives the same ids.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "kvfork/error.h"
#include "kvfork/tokenizer.h"

namespace {

using kvfork::SpecialTokens;

std::string escaped(char32_t c) {
  char out[8];
  std::snprintf(out, sizeof out, "\\u%04x", static_cast<unsigned>(c));
  return out;
}

/// All 256 bytes, a few merges, and two added tokens.
std::string byte_level_json() {
  std::string vocab;
  char32_t next = 0x100;
  int id = 0;
  for (unsigned b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    vocab += "\"" + escaped(printable ? b : next++) + "\":" + std::to_string(id++) + ",";
  }
  vocab += R"("ab":256,"\u0120a":257,"abab":258,"n't":259,"n'":260)";
  return R"({"added_tokens":[{"id":261,"content":"<s>","special":true,"normalized":false},{"id":262,"content":" .","special":false,"normalized":false}],)"
         R"("normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},"decoder":{"type":"ByteLevel"},)"
         R"("model":{"type":"BPE","merges":["a b","\u0120 a","ab ab","n '","n' t"],"vocab":{)" +
         vocab + "}}}";
}

std::string pieces_json(const std::string& decoder) {
  std::string vocab =
      R"("<unk>":0,"\u2581":1,"a":2,"\u2581a":3,"b":4,"b\u2581":5,"日":6,".":7,"'":8,"x</w>":9,"</w>":10,"ab":11)";
  int id = 12;
  for (const char* byte : {"E6", "97", "A5", "FF", "0A", "20", "F0", "9F", "98", "80"}) {
    vocab += ",\"<0x" + std::string(byte) + ">\":" + std::to_string(id++);
  }
  return R"({"added_tokens":[{"id":22,"content":"<s>","special":true,"normalized":false}],"decoder":)" + decoder +
         R"(,"model":{"type":"BPE","byte_fallback":true,"fuse_unk":true,"unk_token":"<unk>","merges":[],"vocab":{)" +
         vocab + "}}}";
}

kvfork::Tokenizer load(const std::string& json, const char* config) {
  kvfork::TokenizerFiles files;
  files.subject = "fuzz";
  files.tokenizer_json = json;
  files.tokenizer_config_json = config;
  return kvfork::Tokenizer::from_files(files);
}

const std::vector<kvfork::Tokenizer>& tokenizers() {
  static const std::vector<kvfork::Tokenizer> all = [] {
    const char* cleaning = R"({"clean_up_tokenization_spaces":true})";
    const std::string replace = R"({"type":"Replace","pattern":{"String":"▁"},"content":" "})";
    std::vector<kvfork::Tokenizer> out;
    out.push_back(load(byte_level_json(), "{}"));
    out.push_back(load(byte_level_json(), cleaning));
    for (
        const std::string& decoder :
        {std::string("null"),
         R"({"type":"Sequence","decoders":[)" + replace +
             R"(,{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})",
         std::string(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true})"),
         std::string(R"({"type":"BPEDecoder","suffix":"</w>"})"),
         std::string(
             R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Replace","pattern":{"String":"aab"},"content":"-"},{"type":"Strip","content":"a","start":2,"stop":2}]})"),
         std::string(
             R"({"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Replace","pattern":{"Regex":"a+"},"content":" "}]})")}) {
      out.push_back(load(pieces_json(decoder), "{}"));
      out.push_back(load(pieces_json(decoder), cleaning));
    }
    return out;
  }();
  return all;
}

void check_stream(const kvfork::Tokenizer& tokenizer, const std::vector<int32_t>& ids, SpecialTokens special) {
  const std::string whole = tokenizer.decode(ids, special);
  kvfork::DecodeStream stream(tokenizer, special);
  for (int round = 0; round < 2; ++round) {  // a finished stream starts anew
    std::string joined;
    for (const int32_t id : ids) joined += stream.push(id);
    if (joined + stream.finish() != whole) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const kvfork::Tokenizer& tokenizer = tokenizers()[data[0] % tokenizers().size()];
  const auto special = (data[0] & 0x80) != 0 ? SpecialTokens::Skip : SpecialTokens::Keep;
  std::vector<int32_t> ids;
  for (size_t i = 1; i < size; ++i) {
    const auto n = static_cast<int32_t>(tokenizer.vocab_size());
    ids.push_back(data[i] == 0xFE ? n - 1 - static_cast<int32_t>(i % 8) : data[i] % (n + 1));
  }
  check_stream(tokenizer, ids, special);

  const kvfork::Tokenizer& bytes = tokenizers()[0];
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const std::vector<int32_t> encoded = bytes.encode(text);
    if (bytes.decode(encoded, SpecialTokens::Keep) != text) std::abort();
    if (bytes.encode(bytes.decode(encoded, SpecialTokens::Keep)) != encoded) std::abort();
    check_stream(bytes, encoded, special);
  } catch (const kvfork::Error&) {  // not UTF-8
  }
  return 0;
}
