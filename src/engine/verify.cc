#include "kvfork/verify.h"

#include <algorithm>

#include "kvfork/context.h"
#include "kvfork/fork.h"
#include "kvfork/model.h"

namespace kvfork {
namespace {

std::optional<size_t> find_difference(const Generation& a, const Generation& b) {
  const size_t n = std::min(a.ids.size(), b.ids.size());
  for (size_t i = 0; i < n; ++i) {
    if (a.ids[i] != b.ids[i] || a.logit_fingerprints[i] != b.logit_fingerprints[i]) return i;
  }
  if (a.ids.size() != b.ids.size()) return n;
  return std::nullopt;
}

}  // namespace

ParityReport compare_uncached(const Context& context, size_t n_cached, std::span<const int32_t> request,
                              const GenerateOptions& options) {
  GenerateOptions fingerprinted = options;
  fingerprinted.fingerprint_logits = true;
  ParityReport report;
  Fork cached = context.fork_at(n_cached);
  cached.append(request.subspan(n_cached));
  report.cached = generate(cached, fingerprinted);
  Fork uncached = context.model()->start();
  uncached.append(request);
  report.uncached = generate(uncached, fingerprinted);
  report.first_difference = find_difference(report.cached, report.uncached);
  return report;
}

}  // namespace kvfork
