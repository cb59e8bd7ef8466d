// A whole request whose token ids were compared with those of a context.
//
// Immutable; any thread may read it. A Request is the way from ids to a fork: it can only be made by the
// comparison, so that cached tokens never serve a request that does not begin with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvfork/boundary.h"

namespace kvfork {

class Request {
 public:
  /// Compares `ids`, the whole request, with `context_ids` as count_cached_tokens() does, and throws as it does.
  Request(std::vector<int32_t> ids, std::span<const int32_t> context_ids, BoundaryMode mode,
          const Tokenizer& tokenizer);
  /// The same without a tokenizer: the refusal names ids alone.
  Request(std::vector<int32_t> ids, std::span<const int32_t> context_ids, BoundaryMode mode);

  /// For a caller that knows by other means that the first n_cached ids are the context's. A fork or a batch that
  /// takes the request compares the ids once more. Throws Error{InvalidArgument} unless 1 <= n_cached <=
  /// ids.size().
  static Request unchecked(std::vector<int32_t> ids, size_t n_cached);

  const std::vector<int32_t>& ids() const noexcept { return ids_; }  ///< those of the context included
  size_t size() const noexcept { return ids_.size(); }               ///< tokens
  size_t n_cached() const noexcept { return n_cached_; }  ///< tokens that are read from the context; at least 1
  size_t n_new() const noexcept { return ids_.size() - n_cached_; }  ///< tokens that are run
  std::span<const int32_t> new_ids() const noexcept { return std::span(ids_).subspan(n_cached_); }

 private:
  Request(std::vector<int32_t> ids, size_t n_cached);

  std::vector<int32_t> ids_;
  size_t n_cached_;
};

}  // namespace kvfork
