// From a failed reply to an error message with a hint.
#include "hub/reply_errors.h"

#include <algorithm>

#include "base/error.h"
#include "base/json_tree.h"
#include "base/visible_text.h"
#include "hub/client.h"

namespace kvfork::hub {
namespace {

constexpr size_t kMaxShownBytes = 300;

bool contains(const std::string& text, std::string_view part) {
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return lower.find(part) != std::string::npos;
}

// What the server itself says: X-Error-Message, or the JSON body's "error".
std::string server_message(const Reply& reply) {
  if (const auto header = reply.find_header("x-error-message")) return printable(*header);
  const auto answer = base::JsonTree::try_parse(reply.body);
  const auto error = answer ? answer->root().find_string("error") : std::nullopt;
  return error ? printable(std::string(*error)) : std::string();
}

[[noreturn]] void throw_transfer(const Reply& reply, const std::string& subject, const std::string& endpoint) {
  std::string hint;
  switch (reply.transfer) {
    case Transfer::Stalled:
      hint = "try again, or allow more time with HF_HUB_ETAG_TIMEOUT and HF_HUB_DOWNLOAD_TIMEOUT (seconds)";
      break;
    case Transfer::Unreachable:
      hint = "check the network, HF_ENDPOINT and the proxy variables; HF_HUB_OFFLINE=1 uses only what is cached";
      break;
    case Transfer::Tls:
      hint = "TLS failed: for a private certificate authority name its file in REQUESTS_CA_BUNDLE";
      break;
    case Transfer::Proxy:
      hint = "the proxy refused: check https_proxy, http_proxy and no_proxy";
      break;
    default:
      hint = "try again";
  }
  throw HubError(
      ErrorCode::Network,
      fmt::format("{}: expected a reply from {}, found: {}; {}", subject, endpoint, printable(reply.problem), hint),
      HubError::Cached::MayStandIn);
}

std::string retry_after_text(const Reply& reply) {
  const auto asked = reply.find_header("retry-after");
  return asked ? " and asks to wait (Retry-After: " + printable(*asked) + ")" : "";
}

struct Explanation {
  ErrorCode code;
  HubError::Cached cached;
  std::string text;
};

Explanation explain(const Reply& reply, const Session& session, const std::string& endpoint) {
  using enum HubError::Cached;
  const std::string code = reply.find_header("x-error-code").value_or("");
  const std::string said = server_message(reply);
  const bool has_token = session.settings.token.has_value();
  const std::string page = endpoint + "/" + session.repo_id;
  const bool denied = reply.status == 401 || reply.status == 403;
  if (code == "GatedRepo") {
    return {ErrorCode::NotFound, MayStandIn,
            "expected access, found a gated repository; accept its licence at " + page +
                (has_token ? " with the account of your token" : " and set HF_TOKEN to a token of that account")};
  }
  if (denied && contains(said, "expired")) {
    return {ErrorCode::Network, MayStandIn,
            "expected a valid access token, found an expired one; make a new one at " + endpoint +
                "/settings/tokens and set HF_TOKEN"};
  }
  if (reply.status == 401 && has_token && (contains(said, "invalid credentials") || code.empty())) {
    return {ErrorCode::Network, MayStandIn,
            "expected a valid access token, found one that the Hub refuses; check HF_TOKEN or the token file, or "
            "unset it"};
  }
  if (code == "RepoNotFound" || reply.status == 401) {
    return {ErrorCode::NotFound, MayStandIn,
            std::string("expected a model repository, found none; check the spelling; if it is private, ") +
                (has_token ? "the token in use has no access to it" : "set HF_TOKEN")};
  }
  if (reply.status == 403) {
    return {ErrorCode::NotFound, MayStandIn,
            "expected access, found it forbidden; check that the token has read permission for this repository"};
  }
  if (code == "EntryNotFound" || reply.status == 404) {
    return {ErrorCode::NotFound, MayNot, "expected this file in the repository, found none; see " + page + "/tree"};
  }
  if (reply.status == 408 || reply.status == 429 || reply.status >= 500) {
    return {ErrorCode::Network, MayStandIn,
            fmt::format("expected success, found HTTP status {}{}; try again later", reply.status,
                        retry_after_text(reply))};
  }
  return {ErrorCode::Network, MayNot,
          fmt::format("expected success, found HTTP status {}; is HF_ENDPOINT a Hub?", reply.status)};
}

}  // namespace

std::string printable(std::string_view text) {
  return base::to_visible_text(text.substr(0, kMaxShownBytes));
}

bool is_transient(const Reply& reply) {
  switch (reply.transfer) {
    case Transfer::Done:
      return reply.status == 408 || reply.status == 429 || (reply.status >= 500 && reply.status != 501);
    case Transfer::Stalled:
    case Transfer::Broken:
    case Transfer::Unreachable:
      return true;
    default:
      return false;
  }
}

void throw_reply_error(const Reply& reply, const std::string& subject, const Session& session,
                       const std::string& endpoint) {
  if (reply.transfer != Transfer::Done) throw_transfer(reply, subject, endpoint);
  const Explanation explanation = explain(reply, session, endpoint);
  const std::string said = server_message(reply);
  const std::string quoted = said.empty() ? "" : " (the Hub says: " + said + ")";
  throw StatusError(explanation.code, subject + ": " + explanation.text + quoted, explanation.cached, reply.status,
                    reply.find_header("x-error-code").value_or(""));
}

}  // namespace kvfork::hub
