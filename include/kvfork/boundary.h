// The boundary between a context and a request: cached tokens serve a request only where they are its exact prefix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvfork {

class Tokenizer;

/// Where a context ends.
enum class BoundaryMode {
  Message,  ///< after the fixed messages, rendered without a generation prompt
  Probe,    ///< where requests begin to differ, found from probe requests; ends at an added token if there is one
  Longest,  ///< as Message; a request reuses whatever prefix it shares with the context
};

/// "message", "probe" or "longest".
const char* boundary_mode_name(BoundaryMode mode) noexcept;

/// How many of the context's tokens serve the request, by comparing token ids. For Message and Probe: all of them.
/// Throws Error{Boundary} when the context is empty or is not an exact prefix of the request, with the first
/// differing position, both ids, the text around them, and what can be done. For Longest: the length of the common
/// prefix, at least 1 (none is refused), at most the request's length less one unless it is the whole context,
/// since something must be run to answer.
size_t count_cached_tokens(std::span<const int32_t> context_ids, std::span<const int32_t> request_ids,
                           BoundaryMode mode, const Tokenizer& tokenizer);

/// The same for ids without a tokenizer: the error names the position and both ids, and shows no text.
size_t count_cached_tokens(std::span<const int32_t> context_ids, std::span<const int32_t> request_ids,
                           BoundaryMode mode);

/// The comparison alone, for ids that were found to be equal before: that the first n_cached ids of both are the
/// same. Throws Error{Boundary} with the first differing position and both ids, or when one of them is shorter.
void expect_prefix(std::span<const int32_t> context_ids, std::span<const int32_t> request_ids, size_t n_cached);

/// Whether the context serves any request that starts with its text: its last token is an added one, which nothing
/// that follows can merge with. Otherwise each request has only its own comparison.
bool is_safe_for_any_request(std::span<const int32_t> context_ids, const Tokenizer& tokenizer);

}  // namespace kvfork
