// Runs the checklist, and compares the answers that a check got.

#include "kvfork/verify.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "kvfork/context.h"
#include "kvfork/error.h"
#include "kvfork/fork.h"
#include "kvfork/model.h"
#include "kvfork/request.h"
#include "verify/checks.h"
#include "verify/verify_subject.h"

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

ParityReport compare_uncached(const Context& context, const Request& request, const GenerateOptions& options) {
  return base::only_errors([&]() -> ParityReport {
    GenerateOptions fingerprinted = options;
    fingerprinted.fingerprint_logits = true;
    ParityReport report;
    Fork cached = context.fork(request);
    report.cached = generate(cached, fingerprinted);
    fingerprinted.speculation = Speculation::Off;  // the plain path proves the other, guesses and all
    Fork uncached = context.model()->start();
    uncached.append(request.ids());
    report.uncached = generate(uncached, fingerprinted);
    report.first_difference = find_difference(report.cached, report.uncached);
    return report;
  });
}

VerifyReport verify(const std::shared_ptr<const Model>& model, const Prompter& prompter, BoundaryMode mode,
                    std::shared_ptr<const Context> context, const VerifyOptions& options) {
  return base::only_errors([&]() -> VerifyReport {
    for (const std::string& text : options.prompts) {
      try {
        prompter.make_request(text);
      } catch (const Error& error) {
        if (error.code() == ErrorCode::InvalidArgument) throw;  // the caller's mistake; the rest are findings
      }
    }
    std::vector<int32_t> ids;
    if (context != nullptr) {
      ids.assign(context->ids().begin(), context->ids().end());
    } else {
      try {
        const Prompt prompt = prompter.make_context(mode);
        ids = prompt.ids;
        if (!ids.empty()) context = model->prefill(ids, {}, prompter.make_origin(mode, prompt));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::Boundary) throw;
      }
    }
    checks::VerifySubject subject(model, prompter, mode);
    VerifyReport report;
    if (context != nullptr) {
      report.n_context_tokens = context->size();
      report.kv_bytes = context->kv_bytes();
    }
    report.checks = checks::Checks(subject, std::move(ids), std::move(context), options).run();
    report.pass =
        std::ranges::all_of(report.checks, [](const VerifyCheck& check) { return check.pass.value_or(true); });
    return report;
  });
}

}  // namespace kvfork
