#include "kvfork/boundary.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "kvfork/tokenizer.h"

namespace kvfork {
namespace {

constexpr size_t kShownTokens = 8;  // on each side of the first difference

// The decoded text around `position`, quoted, with control characters escaped.
std::string text_around(std::span<const int32_t> ids, size_t position, const Tokenizer& tokenizer) {
  const size_t begin = position > kShownTokens ? position - kShownTokens : 0;
  const size_t end = std::min(ids.size(), position + kShownTokens);
  const std::string text = tokenizer.decode(ids.subspan(begin, end - begin), SpecialTokens::Keep);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '\n') {
      quoted += "\\n";
    } else if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string describe(std::span<const int32_t> ids, size_t position, const Tokenizer& tokenizer) {
  if (position >= ids.size()) return fmt::format("nothing after {}", text_around(ids, position, tokenizer));
  return fmt::format("id {} in {}", ids[position], text_around(ids, position, tokenizer));
}

}  // namespace

std::span<const int32_t> split_request(std::span<const int32_t> context_ids, std::span<const int32_t> request_ids,
                                       const Tokenizer& tokenizer) {
  if (context_ids.empty())
    base::fail(ErrorCode::Boundary,
               "boundary: expected a context of at least one token, found none; the rendered context is empty");
  const auto [in_context, in_request] =
      std::mismatch(context_ids.begin(), context_ids.end(), request_ids.begin(), request_ids.end());
  if (in_context == context_ids.end()) return request_ids.subspan(context_ids.size());
  const auto position = static_cast<size_t>(in_context - context_ids.begin());
  base::fail(ErrorCode::Boundary,
             "boundary: the cached tokens are not a prefix of the request: at position {} the context has {}, the request "
             "has {}; the template renders the context differently once a request follows it: use another template or "
             "context, or run this request without a cache",
             position, describe(context_ids, position, tokenizer), describe(request_ids, position, tokenizer));
}

}  // namespace kvfork
