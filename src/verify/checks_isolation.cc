// The check named isolation: a request leaves no trace in the context, in the next request, or in one that runs
// beside it.

#include <fmt/format.h>

#include <algorithm>

#include "verify/checks.h"

namespace kvfork::checks {

// Both orders, each on a context of its own.
std::string Checks::find_leak(const CheckedRequest& plain, const CheckedRequest& marked) {
  const auto answer = [&](const Context& context, const CheckedRequest& request) {
    return subject_.answer(context, request.n_cached, request.ids, greedy_);
  };
  const std::string hash = context_->hash();
  const Generation plain_first = answer(*context_, plain);
  const Generation marked_second = answer(*context_, marked);

  const auto fresh = subject_.prefill(context_ids_);
  const std::string fresh_hash = fresh->hash();
  const Generation marked_first = answer(*fresh, marked);
  const Generation plain_second = answer(*fresh, plain);

  std::string leak =
      find_difference(plain, plain_second, "after the marker", plain_first, "before it", Compare::Bits);
  if (leak.empty()) leak = find_difference(marked, marked_second, "second", marked_first, "first", Compare::Bits);
  if (leak.empty()) leak = find_interleaving(plain, marked, plain_first, marked_first);
  if (leak.empty() && (context_->hash() != hash || fresh->hash() != fresh_hash))
    leak = "the context's keys and values are no longer what they were before the requests";
  return leak;
}

// Two forks alive at once take turns, a few tokens each.
std::string Checks::find_interleaving(const CheckedRequest& plain, const CheckedRequest& marked,
                                      const Generation& plain_alone, const Generation& marked_alone) {
  constexpr size_t kTurn = 5;
  Fork a = subject_.fork(*context_, plain.n_cached);
  Fork b = subject_.fork(*context_, marked.n_cached);
  Ids left_a = Ids(plain.ids).subspan(plain.n_cached);
  Ids left_b = Ids(marked.ids).subspan(marked.n_cached);
  const auto take_turn = [&](Fork& fork, Ids& left) {
    const size_t n = std::min(kTurn, left.size());
    if (n > 0) subject_.append(fork, left.first(n));
    left = left.subspan(n);
  };
  while (!left_a.empty() || !left_b.empty()) {
    take_turn(a, left_a);
    take_turn(b, left_b);
  }
  const Generation of_a = subject_.generate(a, greedy_, {});
  const Generation of_b = subject_.generate(b, greedy_, {});
  const std::string leak = find_difference(plain, of_a, "beside another fork", plain_alone, "alone", Compare::Bits);
  if (!leak.empty()) return leak;
  return find_difference(marked, of_b, "beside another fork", marked_alone, "alone", Compare::Bits);
}

Outcome Checks::check_isolation() {
  const CheckedRequest marked = make_request(kMarkerPrompt);
  if (!marked.problem.empty() || !has_room(marked))
    return {.detail = "not run: the request with the marker is not served: " +
                      (marked.problem.empty() ? std::string("no room below the context limit") : marked.problem)};
  const CheckedRequest& plain = served_.front();
  const std::string leak = find_leak(plain, marked);
  if (!leak.empty()) return {.pass = false, .detail = leak};
  return {.pass = true,
          .detail = fmt::format(
              "a request with a unique marker and the prompt {}, in both orders and as forks that take turns: "
              "each has the bits it has alone; the context's keys and values hash the same afterwards",
              quote(plain.text))};
}

}  // namespace kvfork::checks
