// Times the tokenizer alone: load, one long text, many short ones, decode. Driven by bench/tokenizer.py, which runs
// the `tokenizers` package beside it.
//   tokenizer_bench DIR TEXT_FILE PROMPTS.jsonl REPEATS   -> one JSON line
#include <ctime>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kvfork/error.h"
#include "kvfork/tokenizer.h"

namespace {

/// CPU time of this process in milliseconds: everything here runs on one thread, and other work on the machine
/// should not count.
double cpu_ms() {
  return static_cast<double>(std::clock()) * 1000.0 / CLOCKS_PER_SEC;
}

template <typename Function>
double best_ms(int repeats, const Function& function) {
  double best = 1e300;
  for (int i = 0; i < repeats; ++i) {
    const double start = cpu_ms();
    function();
    best = std::min(best, cpu_ms() - start);
  }
  return best;
}

std::string read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream out;
  out << file.rdbuf();
  return out.str();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: tokenizer_bench DIR TEXT_FILE PROMPTS.jsonl REPEATS\n";
    return 2;
  }
  try {
    const int repeats = std::stoi(argv[4]);
    const std::string text = read(argv[2]);
    std::vector<std::string> prompts;
    std::ifstream lines(argv[3]);
    for (std::string line; std::getline(lines, line);)
      prompts.push_back(nlohmann::json::parse(line).get<std::string>());
    const double load_ms = best_ms(repeats, [&] { kvfork::Tokenizer::from_directory(argv[1]); });
    const kvfork::Tokenizer tokenizer = kvfork::Tokenizer::from_directory(argv[1]);
    std::vector<int32_t> ids;
    const double first_ms = best_ms(1, [&] { ids = tokenizer.encode(text); });
    const double encode_ms = best_ms(repeats, [&] { ids = tokenizer.encode(text); });
    size_t n_prompt_ids = 0;
    const double prompts_ms = best_ms(repeats, [&] {
      n_prompt_ids = 0;
      for (const std::string& prompt : prompts) n_prompt_ids += tokenizer.encode(prompt).size();
    });
    const double decode_ms =
        best_ms(repeats, [&] { tokenizer.decode(ids, kvfork::SpecialTokens::Keep, kvfork::Cleanup::Off); });
    std::cout << nlohmann::json{{"load_ms", load_ms},          {"first_encode_ms", first_ms},
                                {"encode_ms", encode_ms},      {"prompts_ms", prompts_ms},
                                {"decode_ms", decode_ms},      {"n_ids", ids.size()},
                                {"n_prompt_ids", n_prompt_ids}}
              << "\n";
  } catch (const kvfork::Error& e) {
    std::cerr << "tokenizer_bench: error: " << e.what() << "\n";
    return 1;
  }
}
