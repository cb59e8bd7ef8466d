// Requests to a Hub: redirects, retries, listings and file metadata.
#include "hub/client.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/json_tree.h"
#include "hub/file_endpoint.h"
#include "hub/names.h"
#include "hub/reply_errors.h"

namespace kvfork::hub {
namespace {

constexpr int kMaxRedirects = 10;
constexpr int kMaxAttemptsToConnect = 3;
constexpr size_t kMaxListingBytes = 64 << 20;
constexpr size_t kMaxErrorBodyBytes = 16 << 10;
constexpr size_t kMaxRevisionsNamed = 6;
constexpr Milliseconds kShortestTimeout{1000};

bool is_redirect(int status) {
  return status >= 301 && status <= 308 && status != 304 && status != 305 && status != 306;
}

std::optional<uint64_t> parse_size(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  uint64_t size = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, size);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return size;
}

// Keeps what the Hub said about a file when a later hop of the same host does not repeat it.
void keep_headers(const Reply& earlier, Reply& later) {
  for (const char* name : {"x-repo-commit", "x-linked-etag", "x-linked-size"}) {
    if (const auto value = earlier.find_header(name); value && !later.find_header(name))
      later.headers[name] = *value;
  }
}

bool describes_file(const Reply& reply) {
  return reply.find_header("x-linked-etag") && reply.find_header("x-repo-commit");
}

// The texts under `key` of the objects in the list `list` of a reply; what is something else is passed over.
std::vector<std::string_view> list_names(const base::Json& answer, std::string_view list, std::string_view key) {
  std::vector<std::string_view> names;
  const auto found = answer.is_object() ? answer.find(list) : std::nullopt;
  if (!found || !found->is_list()) return names;
  for (const base::Json item : found->items()) {
    if (const auto name = item.find_string(key)) names.push_back(*name);
  }
  return names;
}

Reply refused_address(const Url& url) {
  Reply reply;
  reply.transfer = Transfer::BadReply;
  reply.problem = fmt::format("redirected to {}, which is not https", printable_url(url.full));
  return reply;
}

}  // namespace

Client::Client(Session& session)
    : session_(session),
      endpoint_(parse_url(session.settings.endpoint, "HF_ENDPOINT")),
      connection_(session.settings, session.stall_timer.stopped()) {}

bool Client::may_visit(const Url& url) const {
  return url.scheme == "https" || url.scheme == endpoint_.scheme;
}

Request Client::make_request(Method method, Url url, bool send_token, Milliseconds timeout) const {
  Request request{
      .method = method, .url = std::move(url), .headers = {"Accept-Encoding: identity"}, .timeout = timeout};
  request.timeout = std::max(kShortestTimeout, std::min(timeout, session_.stall_timer.left()));
  if (send_token && session_.settings.token) {
    request.headers.push_back("Authorization: Bearer " + *session_.settings.token);
  }
  return request;
}

// One attempt, with its redirects. The token never leaves the host it was meant for: once a hop leads elsewhere it
// is dropped for good. `last` is where the last reply came from.
Reply Client::follow(Request request, Follow follow, const BodyFunction& on_body, Url* last) {
  std::optional<Reply> earlier;
  for (int hop = 0; hop <= kMaxRedirects; ++hop) {
    *last = request.url;
    const size_t max_body = request.method == Method::Get && !on_body ? kMaxListingBytes : kMaxErrorBodyBytes;
    Reply reply = request.url.scheme == "file"
                      ? ask_file_endpoint(endpoint_.full, request, on_body, session_.stall_timer.stopped())
                      : connection_.exchange(request, on_body, max_body);
    if (earlier) keep_headers(*earlier, reply);
    const auto location = reply.find_header("location");
    if (reply.transfer != Transfer::Done || !is_redirect(reply.status) || !location) return reply;
    const Url next = resolve_location(request.url, *location);
    const bool same_host = next.origin == request.url.origin;
    if (follow == Follow::SameHost && !is_relative(*location) && (!same_host || describes_file(reply)))
      return reply;
    if (!may_visit(next)) return refused_address(next);
    if (!same_host) {
      std::erase_if(request.headers, [](const std::string& line) { return line.starts_with("Authorization:"); });
    }
    request.url = next;
    earlier = std::move(reply);
  }
  earlier->transfer = Transfer::BadReply;
  earlier->problem = fmt::format("redirected more than {} times", kMaxRedirects);
  return *earlier;
}

bool Client::wait_to_retry(const Reply& reply, int attempt, int max_attempts) {
  if (!is_transient(reply) || attempt >= max_attempts) return false;
  if (reply.transfer == Transfer::Unreachable && attempt >= kMaxAttemptsToConnect) return false;
  const auto asked = reply.transfer == Transfer::Done ? reply.find_header("retry-after") : std::nullopt;
  const Milliseconds at_least = asked ? parse_retry_after(*asked).value_or(Milliseconds(0)) : Milliseconds(0);
  connection_.start_afresh();
  return at_least <= kMaxRetryAfter && session_.stall_timer.wait(attempt, at_least);
}

Reply Client::get_text(const std::string& path) {
  for (int attempt = 1;; ++attempt) {
    Url last;
    const Url url = parse_url(session_.settings.endpoint + path, "HF_ENDPOINT");
    Reply reply =
        follow(make_request(Method::Get, url, true, session_.settings.etag_timeout), Follow::All, {}, &last);
    if (reply.transfer == Transfer::Done && !is_transient(reply)) {
      if (attempt == 1) session_.stall_timer.progress();
      return reply;
    }
    if (!wait_to_retry(reply, attempt, session_.max_attempts)) return reply;
  }
}

std::optional<RepoListing> Client::list_repo() {
  const std::string subject = session_.repo_id + "@" + session_.revision;
  const Reply reply = get_text("/api/models/" + session_.repo_id + "/revision/" +
                               percent_encode(session_.revision, Slashes::Encode));
  if (reply.transfer == Transfer::Done && reply.status == 404 && !reply.find_header("x-error-code"))
    return std::nullopt;
  if (reply.transfer != Transfer::Done || reply.status != 200) fail_reply(reply, subject);
  const auto answer = base::JsonTree::try_parse(reply.body);
  const auto commit = answer ? answer->root().find_string("sha") : std::nullopt;
  if (!commit) {
    throw HubError(
        ErrorCode::Network,
        fmt::format("{}: expected a model description in JSON from {}, found something else; is HF_ENDPOINT "
                    "a Hub, or does a proxy or login page answer in its place?",
                    subject, printable_url(session_.settings.endpoint)),
        HubError::Cached::MayStandIn);
  }
  RepoListing listing{.commit = std::string(*commit), .files = {}};
  for (const std::string_view name : list_names(answer->root(), "siblings", "rfilename"))
    listing.files.emplace_back(name);
  return listing;
}

std::optional<FileMetadata> Client::find_file(const std::string& revision, const std::string& file) {
  const std::string subject = session_.repo_id + ": " + file;
  const Url url =
      parse_url(session_.settings.endpoint + "/" + session_.repo_id + "/resolve/" +
                    percent_encode(revision, Slashes::Encode) + "/" + percent_encode(file, Slashes::Keep),
                "HF_ENDPOINT");
  for (int attempt = 1;; ++attempt) {
    Url last;
    const Reply reply =
        follow(make_request(Method::Head, url, true, session_.settings.etag_timeout), Follow::SameHost, {}, &last);
    const bool found = reply.status == 200 || is_redirect(reply.status);
    if (reply.transfer != Transfer::Done || !found) {
      if (wait_to_retry(reply, attempt, session_.max_attempts)) continue;
      const std::string code = reply.find_header("x-error-code").value_or("");
      const bool no_entry = reply.status == 404 && (code == "EntryNotFound" || code.empty());
      if (reply.transfer == Transfer::Done && no_entry) return std::nullopt;
      fail_reply(reply, subject);
    }
    if (attempt == 1) session_.stall_timer.progress();
    const auto etag = reply.find_header("x-linked-etag");
    const auto plain_etag = etag ? etag : reply.find_header("etag");
    const auto commit = reply.find_header("x-repo-commit");
    if (!plain_etag || !commit) {
      throw HubError(
          ErrorCode::Network,
          fmt::format("{}: expected the headers ETag and X-Repo-Commit, found a reply without; does a proxy, a "
                      "login page or another site answer in place of {}?",
                      subject, printable_url(session_.settings.endpoint)),
          HubError::Cached::MayStandIn);
    }
    if (is_commit(revision) && *commit != revision) {
      throw HubError(ErrorCode::Network,
                     fmt::format("{}: expected the file of commit {}, found that of {}; is HF_ENDPOINT a Hub?",
                                 subject, revision, printable(*commit)),
                     HubError::Cached::MayNot);
    }
    FileMetadata metadata{
        .etag = normalize_etag(*plain_etag, subject), .commit = *commit, .size = {}, .location = last};
    const auto linked_size = reply.find_header("x-linked-size");
    metadata.size = parse_size(linked_size ? linked_size : reply.find_header("content-length"));
    if (const auto location = reply.find_header("location"); location && is_redirect(reply.status)) {
      metadata.location = resolve_location(last, *location);
    }
    metadata.send_token = metadata.location.origin == endpoint_.origin;
    return metadata;
  }
}

Reply Client::get_bytes(const FileMetadata& file, uint64_t first, std::optional<uint64_t> last,
                        const BodyFunction& on_body) {
  Request request = make_request(Method::Get, file.location, file.send_token, session_.settings.download_timeout);
  if (last) {
    request.headers.push_back(fmt::format("Range: bytes={}-{}", first, *last));
  } else if (first > 0) {
    request.headers.push_back(fmt::format("Range: bytes={}-", first));
  }
  Url from;
  if (!may_visit(file.location)) return refused_address(file.location);
  return follow(std::move(request), Follow::All, on_body, &from);
}

// A few names of what there is, for the message about a revision that is not.
std::string Client::revision_hint() {
  Url last;
  const Url url =
      parse_url(session_.settings.endpoint + "/api/models/" + session_.repo_id + "/refs", "HF_ENDPOINT");
  const Reply reply =
      follow(make_request(Method::Get, url, true, session_.settings.etag_timeout), Follow::All, {}, &last);
  const auto answer = base::JsonTree::try_parse(reply.transfer == Transfer::Done ? reply.body : "null");
  std::string names;
  size_t n_named = 0;
  for (const char* kind : {"branches", "tags"}) {
    if (!answer) break;
    for (const std::string_view name : list_names(answer->root(), kind, "name")) {
      if (n_named++ < kMaxRevisionsNamed) names += (names.empty() ? "" : ", ") + printable(std::string(name));
    }
  }
  if (names.empty()) return "use a branch, a tag or a full commit";
  return "it has " + names + (n_named > kMaxRevisionsNamed ? ", ..." : "");
}

void Client::fail_reply(const Reply& reply, const std::string& subject) {
  const bool missing_revision = reply.find_header("x-error-code").value_or("") == "RevisionNotFound";
  if (reply.transfer == Transfer::Done && missing_revision) {
    throw HubError(ErrorCode::NotFound,
                   fmt::format("{}: expected revision '{}', found none of that name; {}", session_.repo_id,
                               session_.revision, revision_hint()),
                   HubError::Cached::MayNot);
  }
  throw_reply_error(reply, subject, session_, printable_url(session_.settings.endpoint));
}

}  // namespace kvfork::hub
