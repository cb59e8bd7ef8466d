// Many requests over one context, decoded together.
//
// Requests share every pass over the weights; new ones join as others end. Each answer has the ids and the logit
// bits that its request has alone, at any width and in any company. Any number of threads may run batches over one
// context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kvfork/error.h"
#include "kvfork/generate.h"
#include "kvfork/request.h"

namespace kvfork {

class Context;
class Model;

struct BatchRequest {
  Request request;
  GenerateOptions options;
};

struct BatchOptions {
  size_t max_width = 32;  ///< requests that run at once, at most
  size_t memory_bytes =
      0;  ///< for what requests need of their own; 0: most of what the system and its limits leave free
};

/// How a batch will run.
struct BatchPlan {
  size_t width = 0;                  ///< requests that may run at once, if all are as large as the largest
  size_t largest_request_bytes = 0;  ///< keys, values, logits and sampling of the largest request
  size_t memory_bytes = 0;           ///< what requests may use together
};

/// What a batch of these requests needs. `n_prefill_tokens` are still to be run for the context and count too.
/// Requests that are beyond the context limit or ill-formed count for nothing: they will be refused one by one.
/// Throws Error{Limit} when the largest request does not fit into the memory, Error{InvalidArgument} for a width of
/// 0.
BatchPlan plan_batch(const Model& model, std::span<const BatchRequest> requests, const BatchOptions& options,
                     size_t n_prefill_tokens = 0);

struct BatchAnswer {
  Generation generation;
  /// Why there is no answer: options out of range, beyond the context limit, cached tokens that are not the
  /// request's (Boundary), logits that are not numbers, memory refused. `generation` is then empty.
  std::optional<Error> error;
};

struct BatchCallbacks {
  /// Each request once, as soon as it has ended; `index` is its place in the span.
  std::function<void(size_t index, BatchAnswer answer)> on_answer;
  /// Each new id as soon as it is known; returning false ends that request with StopReason::Stop. May be empty.
  std::function<bool(size_t index, int32_t id)> on_token;
};

struct BatchReport {
  size_t n_passes = 0;  ///< over the weights
  size_t n_rows = 0;    ///< tokens run in them
  size_t n_widest = 0;  ///< requests in the pass that had most
};

/// Answers all requests from `context`. An error of one request does not touch the others. Throws as plan_batch,
/// before any work; an exception that a callback throws ends the batch and comes out here.
BatchReport answer_all(const Context& context, std::span<const BatchRequest> requests, const BatchOptions& options,
                       const BatchCallbacks& callbacks);

}  // namespace kvfork
