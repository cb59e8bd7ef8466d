// Any bytes are a file of `kvfork batch`: each line is a request or says why it is none, and is answered by one line of JSON.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cli/batch_lines.h"

namespace {

void expect(bool holds) {
  if (!holds) std::abort();
}

void expect_one_line(const std::string& line) {
  expect(!line.empty() && line.find('\n') == line.size() - 1);
  expect(nlohmann::json::accept(line));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvfork;
  const GenerateOptions defaults;
  for (const std::string_view line : cli::split_lines({reinterpret_cast<const char*>(data), size})) {
    const cli::RequestLine request = cli::parse_request_line(line, defaults);
    if (!request.error.empty()) {
      expect_one_line(cli::format_error(request.id, request.error));
      continue;
    }
    expect(request.prompt.has_value() != !request.messages_json.empty());
    expect(cli::make_digest("model", {}, request.options).size() == 16);
    expect_one_line(cli::format_answer(request.id, {}, "text", 1, 1, "digest"));
  }
  return 0;
}
