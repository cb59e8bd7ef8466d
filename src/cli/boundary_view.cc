// How `kvfork tokenize --boundary` shows the join of a context and its requests.
#include "cli/boundary_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "cli/warnings.h"
#include "kvfork/boundary.h"
#include "kvfork/error.h"

namespace kvfork::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownTokens = 6;  // on each side of the join
constexpr int kExitRefused = 3;

Json pieces_of(std::span<const int32_t> ids, const Tokenizer& tokenizer) {
  Json pieces = Json::array();
  for (const int32_t id : ids) pieces.push_back({{"id", id}, {"piece", std::string(tokenizer.piece(id))}});
  return pieces;
}

// What a request makes of the context.
Json view_request(const Prompter& prompter, const Prompt& context, BoundaryMode mode, const std::string& prompt) {
  const Tokenizer& tokenizer = prompter.tokenizer();
  Json view = {{"prompt", prompt}};
  const Prompt request = prompter.make_request(prompt);
  warn_about(request);
  const std::span<const int32_t> ids(request.ids);
  try {
    const size_t n = count_cached_tokens(context.ids, ids, mode, tokenizer);
    const size_t n_before = std::min(n, kShownTokens);
    const size_t n_after = std::min(ids.size() - n, kShownTokens);
    view["cached_tokens"] = n;
    view["request_tokens"] = ids.size() - n;
    view["context_tail"] = pieces_of(ids.subspan(n - n_before, n_before), tokenizer);
    view["request_head"] = pieces_of(ids.subspan(n, n_after), tokenizer);
    view["safe_for"] = is_safe_for_any_request(ids.first(n), tokenizer) ? "any request" : "this request";
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Boundary) throw;
    view["error"] = error.what();
  }
  view["ids"] = request.ids;
  return view;
}

std::string line_of(const Json& pieces) {
  std::string line;
  for (const Json& piece : pieces)
    line += fmt::format(" {}:{}", piece["id"].get<int32_t>(), to_json_text(piece["piece"]));
  return line;
}

void print_table(const Json& view) {
  print_line("boundary    {}: {} context tokens, {}", view["mode"].get<std::string>(),
             view["context"]["tokens"].get<size_t>(),
             view["context"]["safe_for"] == "any request"
                 ? "ending at an added token: safe for any request"
                 : "not ending at an added token: verified for each request");
  for (const Json& request : view["requests"]) {
    print_line("\n> {}", to_json_text(request["prompt"]));
    if (request.contains("error")) {
      print_line("refused     {}", request["error"].get<std::string>());
      continue;
    }
    print_line("cached      {} tokens, then {} of the request; safe for {}", request["cached_tokens"].get<size_t>(),
               request["request_tokens"].get<size_t>(), request["safe_for"].get<std::string>());
    print_line("context  ..{}\nrequest    {} ..", line_of(request["context_tail"]),
               line_of(request["request_head"]));
  }
}

}  // namespace

int show_boundary(const Prompter& prompter, BoundaryMode mode, const std::vector<std::string>& prompts,
                  Format format) {
  const Prompt context = prompter.make_context(mode);
  warn_about(context);
  Json view = {
      {"mode", boundary_mode_name(mode)},
      {"context",
       {{"tokens", context.ids.size()},
        {"ids", context.ids},
        {"text", context.text},
        {"safe_for", is_safe_for_any_request(context.ids, prompter.tokenizer()) ? "any request" : "this request"}}},
      {"requests", Json::array()}};
  bool refused = false;
  for (const std::string& prompt : prompts) {
    view["requests"].push_back(view_request(prompter, context, mode, prompt));
    refused = refused || view["requests"].back().contains("error");
  }
  if (format == Format::Json) {
    write_json(view);
  } else {
    print_table(view);
  }
  if (refused) print_error("boundary: the context does not serve every request; see the report");
  return refused ? kExitRefused : 0;
}

}  // namespace kvfork::cli
