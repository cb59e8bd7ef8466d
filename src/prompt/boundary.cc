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

std::string describe(std::span<const int32_t> ids, size_t position, const Tokenizer* tokenizer) {
  const bool is_end = position >= ids.size();
  if (tokenizer == nullptr) return is_end ? "nothing" : fmt::format("id {}", ids[position]);
  const std::string text = text_around(ids, position, *tokenizer);
  return is_end ? "nothing after " + text : fmt::format("id {} in {}", ids[position], text);
}

// The tokenizer, where there is one, words the refusal.
size_t count_cached(std::span<const int32_t> context_ids, std::span<const int32_t> request_ids, BoundaryMode mode,
                    const Tokenizer* tokenizer) {
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

}  // namespace

size_t count_cached_tokens(std::span<const int32_t> context_ids, std::span<const int32_t> request_ids,
                           BoundaryMode mode, const Tokenizer& tokenizer) {
  return base::only_errors([&] { return count_cached(context_ids, request_ids, mode, &tokenizer); });
}

size_t count_cached_tokens(std::span<const int32_t> context_ids, std::span<const int32_t> request_ids,
                           BoundaryMode mode) {
  return base::only_errors([&] { return count_cached(context_ids, request_ids, mode, nullptr); });
}

void expect_prefix(std::span<const int32_t> context_ids, std::span<const int32_t> request_ids, size_t n_cached) {
  if (n_cached > context_ids.size())
    base::fail(ErrorCode::Boundary, "boundary: expected at most the context's {} tokens to be cached, found {}",
               context_ids.size(), n_cached);
  if (n_cached > request_ids.size())
    base::fail(ErrorCode::Boundary, "boundary: expected a request of at least the {} cached tokens, found {}",
               n_cached, request_ids.size());
  const auto [of_context, of_request] = std::mismatch(
      context_ids.begin(), context_ids.begin() + static_cast<ptrdiff_t>(n_cached), request_ids.begin());
  const auto n_equal = static_cast<size_t>(of_request - request_ids.begin());
  if (n_equal < n_cached)
    base::fail(ErrorCode::Boundary,
               "boundary: the cached tokens are not a prefix of the request: at position {} the context has "
               "id {}, the request {}",
               n_equal, *of_context, *of_request);
}

bool is_safe_for_any_request(std::span<const int32_t> context_ids, const Tokenizer& tokenizer) {
  return !context_ids.empty() && tokenizer.is_added(context_ids.back());
}

}  // namespace kvfork
