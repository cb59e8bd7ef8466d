// Drives the tokenizer alone, for oracles and measurements before and beside the command line.
//   tokenizer_tool DIR|VOCABULARY.json [--add-special-tokens] [--literal] [--raw-decode] < lines.jsonl
// Each input line is a JSON string, {"text"} or {"ids"}; each output line {"ids", "pieces", "text", "stream"} or
// {"error"}. A VOCABULARY.json holds the tokenizer.ggml metadata of a GGUF file (tools/dump_gguf_vocabulary.py).
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kvfork/error.h"
#include "kvfork/tokenizer.h"

namespace {

using kvfork::Cleanup;
using kvfork::SpecialTokens;
using nlohmann::json;

template <typename T>
std::optional<T> optional_field(const json& source, const char* key) {
  return source.contains(key) && !source[key].is_null() ? std::optional<T>(source[key].get<T>()) : std::nullopt;
}

kvfork::Tokenizer load(const std::string& path) {
  if (std::filesystem::is_directory(path)) return kvfork::Tokenizer::from_directory(path);
  std::ifstream file(path);
  const json source = json::parse(file);
  kvfork::GgufVocabulary vocabulary;
  vocabulary.subject = path;
  vocabulary.model = source.value("model", "");
  vocabulary.pre = source.value("pre", "");
  vocabulary.tokens = source.value("tokens", std::vector<std::string>());
  vocabulary.scores = source.value("scores", std::vector<float>());
  vocabulary.types = source.value("types", std::vector<int32_t>());
  vocabulary.merges = source.value("merges", std::vector<std::string>());
  vocabulary.add_bos_token = optional_field<bool>(source, "add_bos_token");
  vocabulary.add_eos_token = optional_field<bool>(source, "add_eos_token");
  vocabulary.add_space_prefix = optional_field<bool>(source, "add_space_prefix");
  vocabulary.bos_id = optional_field<int32_t>(source, "bos_id");
  vocabulary.eos_id = optional_field<int32_t>(source, "eos_id");
  vocabulary.unk_id = optional_field<int32_t>(source, "unk_id");
  vocabulary.pad_id = optional_field<int32_t>(source, "pad_id");
  return kvfork::Tokenizer::from_gguf(vocabulary);
}

json answer(const kvfork::Tokenizer& tokenizer, const json& request, const kvfork::EncodeOptions& options,
            Cleanup cleanup) {
  std::vector<int32_t> ids;
  json out;
  if (request.is_object() && request.contains("ids")) {
    ids = request["ids"].get<std::vector<int32_t>>();
  } else {
    const std::string text =
        request.is_string() ? request.get<std::string>() : request.at("text").get<std::string>();
    kvfork::EncodeReport report;
    ids = tokenizer.encode(text, options, report);
    if (tokenizer.encode(text, options) != ids)
      throw kvfork::Error(kvfork::ErrorCode::Parity, "encode with and without a report differ");
    out["pieces"] = report.pieces;
  }
  out["ids"] = ids;
  out["text"] = tokenizer.decode(ids, SpecialTokens::Keep, cleanup);
  out["skipped"] = tokenizer.decode(ids, SpecialTokens::Skip, cleanup);
  kvfork::DecodeStream stream(tokenizer, SpecialTokens::Skip, cleanup);
  std::string streamed;
  for (const int32_t id : ids) streamed += stream.push(id);
  streamed += stream.finish();
  if (streamed != out["skipped"].get<std::string>()) {
    throw kvfork::Error(kvfork::ErrorCode::Parity, "streamed and whole decode differ");
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  kvfork::EncodeOptions options;
  Cleanup cleanup = Cleanup::AsConfigured;
  for (int i = 2; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--add-special-tokens") options.add_special_tokens = true;
    if (arg == "--literal") options.literal_special_tokens = true;
    if (arg == "--raw-decode") cleanup = Cleanup::Off;
  }
  try {
    const kvfork::Tokenizer tokenizer = load(argc > 1 ? argv[1] : ".");
    bool failed = false;
    for (std::string line; std::getline(std::cin, line);) {
      try {
        std::cout << answer(tokenizer, json::parse(line), options, cleanup).dump() << "\n";
      } catch (const std::exception& e) {
        failed = true;
        std::cout << json{{"error", e.what()}}.dump(-1, ' ', false, json::error_handler_t::replace) << "\n";
      }
    }
    return failed ? 1 : 0;
  } catch (const kvfork::Error& e) {
    std::cerr << "tokenizer_tool: error: " << e.what() << "\n";
    return 1;
  }
}
