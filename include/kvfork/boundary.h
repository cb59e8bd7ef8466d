// The boundary between a context and a request: cached tokens serve a request only where they are its exact prefix.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvfork {

class Context;
class Tokenizer;

/// Compares token ids and returns the request's tail after the context. Throws Error{Boundary} when the context is empty
/// or is not an exact prefix of the request, with the first differing position, both ids, the text around them, and
/// what can be done.
std::span<const int32_t> split_request(std::span<const int32_t> context_ids, std::span<const int32_t> request_ids,
                                       const Tokenizer& tokenizer);

}  // namespace kvfork
