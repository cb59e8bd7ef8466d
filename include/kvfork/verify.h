// Proof that the cache changes nothing: the same request with and without it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kvfork/generate.h"

namespace kvfork {

class Context;

struct ParityReport {
  Generation cached;    ///< from a fork of the context
  Generation uncached;  ///< the whole request from position 0
  /// Index of the first new token whose id or logit bits differ; none: equal in every bit.
  std::optional<size_t> first_difference;
};

/// Generates from a fork after the context's first n_cached tokens (which must be those of the request) and from scratch,
/// and compares ids and the bits of the logits each was picked from. `request` is the whole request. Throws as generate().
ParityReport compare_uncached(const Context& context, size_t n_cached, std::span<const int32_t> request,
                              const GenerateOptions& options);

}  // namespace kvfork
