// Makes requests out of token ids that were compared with a context's.

#include "kvfork/request.h"

#include <utility>

#include "base/error.h"

namespace kvfork {

Request::Request(std::vector<int32_t> ids, std::span<const int32_t> context_ids, BoundaryMode mode,
                 const Tokenizer& tokenizer)
    : ids_(std::move(ids)), n_cached_(count_cached_tokens(context_ids, ids_, mode, tokenizer)) {}

Request::Request(std::vector<int32_t> ids, std::span<const int32_t> context_ids, BoundaryMode mode)
    : ids_(std::move(ids)), n_cached_(count_cached_tokens(context_ids, ids_, mode)) {}

Request::Request(std::vector<int32_t> ids, size_t n_cached) : ids_(std::move(ids)), n_cached_(n_cached) {}

Request Request::unchecked(std::vector<int32_t> ids, size_t n_cached) {
  if (n_cached == 0 || n_cached > ids.size())
    base::fail(ErrorCode::InvalidArgument, "cached tokens: expected 1 to {}, the request's length, found {}",
               ids.size(), n_cached);
  return {std::move(ids), n_cached};
}

}  // namespace kvfork
