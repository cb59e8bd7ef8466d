// Any bytes as tokenizer.json, with what follows a 0xFF byte as tokenizer_config.json: load or one clear Error, and
// what loads encodes and decodes without harm.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "kvfork/error.h"
#include "kvfork/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t cut = std::min(input.find('\xFF'), input.size());
  kvfork::TokenizerFiles files;
  files.subject = "fuzz";
  files.tokenizer_json = input.substr(0, cut);
  if (cut < input.size()) files.tokenizer_config_json = input.substr(cut + 1);
  try {
    const kvfork::Tokenizer tokenizer = kvfork::Tokenizer::from_files(files);
    for (const char* text : {"Hello,  world 123\n", "é日本\u0301 ▁x", "aaaaaaaab <s>abab</s>"}) {
      kvfork::EncodeOptions options;
      options.add_special_tokens = true;
      kvfork::EncodeReport report;
      const auto ids = tokenizer.encode(text, options, report);
      if (report.pieces.size() != ids.size()) std::abort();
      if (tokenizer.encode(text, options) != ids) std::abort();
      const std::string whole = tokenizer.decode(ids, kvfork::SpecialTokens::Skip);
      kvfork::DecodeStream stream(tokenizer, kvfork::SpecialTokens::Skip);
      std::string joined;
      for (const int32_t id : ids) joined += stream.push(id);
      if (joined + stream.finish() != whole) std::abort();
    }
  } catch (const kvfork::Error&) {
  }
  return 0;
}
