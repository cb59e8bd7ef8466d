// Compares a context's ids with a request's and words the refusal where the two part.

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

size_t count_cached_tokens(std::span<const int32_t> context_ids, std::span<const int32_t> request_ids,
                           BoundaryMode mode, const Tokenizer& tokenizer) {
  if (context_ids.empty())
    base::fail(ErrorCode::Boundary,
               "boundary: expected a context of at least one token, found none; the rendered context is empty");
  const auto [in_context, in_request] =
      std::mismatch(context_ids.begin(), context_ids.end(), request_ids.begin(), request_ids.end());
  if (in_context == context_ids.end()) return context_ids.size();
  auto position = static_cast<size_t>(in_context - context_ids.begin());
  if (mode == BoundaryMode::Longest) {
    if (position == request_ids.size() && position > 0) --position;
    if (position > 0) return position;
  }
  base::fail(
      ErrorCode::Boundary,
      "boundary: the cached tokens are not a prefix of the request: at position {} the context has {}, the request "
      "has {}; the template renders the context differently once a request follows it, or tokens merge across the "
      "join: try --boundary probe or --boundary longest, or another template or context",
      position, describe(context_ids, position, tokenizer), describe(request_ids, position, tokenizer));
}

bool is_safe_for_any_request(std::span<const int32_t> context_ids, const Tokenizer& tokenizer) {
  return !context_ids.empty() && tokenizer.is_added(context_ids.back());
}

}  // namespace kvfork
