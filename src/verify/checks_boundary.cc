// The checks named boundary and refusal: what the context serves, and what it must not.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "kvfork/boundary.h"
#include "kvfork/error.h"
#include "kvfork/text.h"
#include "verify/checks.h"

namespace kvfork::checks {
namespace {

// Renders how many messages there are before the first of them: a context is never a prefix of its requests.
constexpr const char* kBreakingTemplate =
    "{{ messages|length }}{% for message in messages %} {{ message.role }}: {{ message.content }}{% endfor %}";

std::string show_tokens(Ids ids, const Tokenizer& tokenizer) {
  std::string shown;
  for (const int32_t id : ids)
    shown += fmt::format(" {}:{}", id, quote(tokenizer.decode({&id, 1}, SpecialTokens::Keep)));
  return shown;
}

int32_t other_id(int32_t id) {
  return id == 0 ? 1 : 0;
}

}  // namespace

std::string Checks::show_join(const CheckedRequest& request) const {
  constexpr size_t kShown = 3;  // tokens on each side
  const Tokenizer& tokenizer = subject_.prompter().tokenizer();
  const Ids ids(request.ids);
  const size_t n_before = std::min(kShown, request.n_cached);
  const size_t n_after = std::min(kShown, ids.size() - request.n_cached);
  return fmt::format(
      "{} cached + {} tokens, join:{} |{}", request.n_cached, ids.size() - request.n_cached,
      show_tokens(ids.subspan(request.n_cached - n_before, n_before), tokenizer),
      n_after == 0 ? std::string(" (nothing)") : show_tokens(ids.subspan(request.n_cached, n_after), tokenizer));
}

Outcome Checks::check_boundary() {
  const auto& prompts = options_.prompts.empty() ? built_in_prompts() : options_.prompts;
  Outcome outcome;
  std::string first_problem;
  size_t n_refused = 0;
  for (const std::string& text : prompts) {
    CheckedRequest request = make_request(text);
    const bool is_served = request.problem.empty();
    outcome.lines.push_back(fmt::format("{}: {}", quote(text), is_served ? show_join(request) : request.problem));
    if (!is_served && n_refused++ == 0) first_problem = fmt::format("prompt {}: {}", quote(text), request.problem);
    if (is_served && has_room(request)) served_.push_back(request);
    requests_.push_back(std::move(request));
  }
  outcome.pass = n_refused == 0;
  if (n_refused > 0) {
    outcome.detail = fmt::format("{} of {} prompts are not served by the context; first, {}", n_refused,
                                 prompts.size(), first_problem);
    return outcome;
  }
  const bool is_safe = is_safe_for_any_request(context_ids_, subject_.prompter().tokenizer());
  outcome.detail = fmt::format("all {} prompts start with the context's token ids ({}: {}); the context {}",
                               prompts.size(), boundary_mode_name(subject_.mode()), show_join(requests_.front()),
                               is_safe ? "ends at an added token, with which nothing merges"
                                       : "does not end at an added token: each request is compared on its own");
  return outcome;
}

// "" where everything that must be refused is refused with the right words.
std::string Checks::find_unrefused() {
  const auto complain = [&](Ids context, Ids request, size_t position, const std::string& what) -> std::string {
    try {
      subject_.count_cached(context, request, BoundaryMode::Message);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::Boundary)
        return fmt::format("{}: refused for another reason: {}", what, error.what());
      if (std::string_view(error.what()).find(fmt::format("position {}", position)) == std::string_view::npos)
        return fmt::format("{}: the refusal does not name position {}: {}", what, position, error.what());
      return "";
    }
    return fmt::format("{}: it was not refused", what);
  };
  const std::vector<int32_t>& whole = served_.front().ids;
  // A request may share less than the context (boundary longest); the ids compared here are the shared ones.
  const Ids context = Ids(whole).first(served_.front().n_cached);
  for (const size_t position : {size_t{0}, context.size() / 2, context.size() - 1}) {
    std::vector<int32_t> changed = whole;
    changed[position] = other_id(changed[position]);
    const std::string problem =
        complain(context, changed, position, fmt::format("a request with another id at position {}", position));
    if (!problem.empty()) return problem;
  }
  if (context.size() > 1) {
    const size_t n = context.size() - 1;
    const std::string problem =
        complain(context, context.first(n), n, "a request that ends one token before the context");
    if (!problem.empty()) return problem;
  }
  std::vector<int32_t> changed = whole;
  changed[context.size() - 1] = other_id(changed[context.size() - 1]);
  const BatchRequest request{.request = Request::unchecked(changed, context.size()), .options = greedy_};
  const auto answers = subject_.answer_all(*context_, {&request, 1}, 1);
  if (!answers.front().error || answers.front().error->code() != ErrorCode::Boundary)
    return "a batch with a request that has another id at the context's last position: it was not refused";

  const auto text = subject_.model().shared_text();
  const Prompter breaking(text, text->chat_template().with_source(kBreakingTemplate),
                          FixedPart::from_system_message("A fixed context."));
  const Prompt broken_context = breaking.make_context(BoundaryMode::Message);
  const Prompt broken_request = breaking.make_request("A request.");
  return complain(broken_context.ids, broken_request.ids, 0,
                  "a template that renders the context differently in a request");
}

Outcome Checks::check_refusal() {
  const std::string problem = find_unrefused();
  if (!problem.empty()) return {.pass = false, .detail = problem};
  return {.pass = true,
          .detail =
              "refused with position and ids: another id first, in the middle and last in the context; a request "
              "that ends "
              "before the context; a batch line of another context; a template that does not keep the boundary"};
}

}  // namespace kvfork::checks
