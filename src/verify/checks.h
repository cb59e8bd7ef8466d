// The checks of verify(), one function each, and what they share.
//
// A check reports through its Outcome and throws Error only where a step that it relies on failed; run_checks then
// reports the message. Belongs to one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvfork/verify.h"
#include "verify/verify_subject.h"

namespace kvfork::checks {

struct Outcome {
  std::optional<bool> pass;
  std::string detail;
  std::vector<std::string> lines;
};

struct CheckedRequest {
  std::string text;
  std::vector<int32_t> ids;  // the whole request
  size_t n_cached = 0;       // of those, read from the context
  std::string problem;       // why the context does not serve it; empty: it does
};

struct Comparison {
  Generation cached;
  Generation uncached;
};

/// A marker that no prompt of a user holds; the isolation check looks for traces of it.
extern const char* const kMarkerPrompt;

/// Prompts of several lengths, scripts and beginnings, an empty one and whitespace among them.
const std::vector<std::string>& built_in_prompts();

class Checks {
 public:
  /// `context_ids` is what the prompter renders, or what `context` holds.
  Checks(VerifySubject& subject, std::vector<int32_t> context_ids, std::shared_ptr<const Context> context,
         const VerifyOptions& options);

  /// All of them, in order.
  std::vector<VerifyCheck> run();

  const std::shared_ptr<const Context>& context() const noexcept { return context_; }

 private:
  Outcome check_boundary();
  Outcome check_parity();
  Outcome check_logit_bits();
  Outcome check_empty();
  Outcome check_whitespace();
  Outcome check_isolation();
  Outcome check_limit();
  Outcome check_fork_cost();
  Outcome check_batch();
  Outcome check_sampling();
  Outcome check_save_open();
  Outcome check_refusal();

  Outcome run_one(Outcome (Checks::*check)(), const char* name);
  CheckedRequest make_request(const std::string& text);
  bool has_room(const CheckedRequest& request) const;
  const std::vector<Comparison>& comparisons();
  void compare_blank(const std::vector<std::string>& texts, Outcome& outcome);
  std::string show_join(const CheckedRequest& request) const;
  std::string find_leak(const CheckedRequest& plain, const CheckedRequest& marked);
  std::string find_interleaving(const CheckedRequest& plain, const CheckedRequest& marked,
                                const Generation& plain_alone, const Generation& marked_alone);
  void fill_limit(Outcome& outcome);
  double seconds_of_fill(size_t n_tokens);
  std::vector<int32_t> make_filler(size_t n_tokens) const;
  GenerateOptions sampling_options(const CheckedRequest& request);
  std::string find_unrefused();

  VerifySubject& subject_;
  const VerifyOptions& options_;
  std::vector<int32_t> context_ids_;
  std::shared_ptr<const Context> context_;
  std::vector<CheckedRequest> requests_;  // all prompts
  std::vector<CheckedRequest> served_;    // those that the context serves and that leave room for new tokens
  std::vector<Comparison> comparisons_;   // [served_], once asked for
  GenerateOptions greedy_;
  double tokens_per_second_ = 0;  // of a prefill, once measured
};

/// What counts as a difference between two generations.
enum class Compare {
  Tokens,  ///< ids
  Logits,  ///< bits of the logits that ids were picked from, as far as the ids before them are equal
  Bits,    ///< both
};

/// The first new token that differs, as text; empty: none.
std::string find_difference(const CheckedRequest& request, const Generation& a, const char* name_a,
                            const Generation& b, const char* name_b, Compare what);

/// Quoted, on one line, cut to some length.
std::string quote(std::string_view text);

}  // namespace kvfork::checks
