// Proof that the cache changes nothing: one request with and without it, and the whole checklist on a user's own
// model.
//
// Thread rule: safe from any thread; each call works on forks of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvfork/generate.h"
#include "kvfork/prompt.h"

namespace kvfork {

class Context;
class Model;
class Request;

struct ParityReport {
  Generation cached;    ///< from a fork of the context
  Generation uncached;  ///< the whole request from position 0
  /// Index of the first new token whose id or logit bits differ; none: equal in every bit.
  std::optional<size_t> first_difference;
};

/// Generates from a fork of the context and from scratch, and compares ids and the bits of the logits that each id
/// was picked from. Throws as Context::fork and generate().
ParityReport compare_uncached(const Context& context, const Request& request, const GenerateOptions& options);

/// A context with the same tokens and bits in memory of its own: the deep copy that a fork saves. The yardstick,
/// not a way to work. Throws Error{Limit} when memory is refused.
std::shared_ptr<const Context> copy_context(const Context& context);

/// One line of the checklist. Names, in order: boundary, parity, logit_bits, empty, whitespace, isolation, limit,
/// fork_cost, batch, sampling, save_open, refusal. docs/verify.md says what each does and what makes it fail.
struct VerifyCheck {
  std::string name;
  std::optional<bool> pass;        ///< nothing: not run, and detail says why
  std::string detail;              ///< never empty
  std::vector<std::string> lines;  ///< more of it: one per prompt, size or width
  double seconds = 0;
};

struct VerifyOptions {
  std::vector<std::string> prompts;  ///< none: a list of kvfork's own, of several lengths and scripts
  size_t max_new_tokens = 8;         ///< per generation
  double limit_seconds = 60;         ///< the context limit is filled for real where that takes no longer than this
  std::string directory;  ///< for the file of save_open; empty: the system's directory for temporary files
  std::function<void(const std::string& name)> on_start;   ///< before each check
  std::function<void(const VerifyCheck& check)> on_check;  ///< after each check
};

struct VerifyReport {
  bool pass = false;  ///< no check failed
  size_t n_context_tokens = 0;
  size_t kv_bytes = 0;
  std::vector<VerifyCheck> checks;
};

/// Runs the checklist. `prompter` makes the requests, `mode` says where the context ends; `context` is the one to
/// check, or null: it is prefilled from the prompter. What a check finds never throws. Throws what
/// Prompter::make_context and Model::prefill throw, a refused boundary aside, which is a finding;
/// Error{InvalidArgument} for options out of range and prompts that are not UTF-8.
VerifyReport verify(const std::shared_ptr<const Model>& model, const Prompter& prompter, BoundaryMode mode,
                    std::shared_ptr<const Context> context, const VerifyOptions& options);

}  // namespace kvfork
