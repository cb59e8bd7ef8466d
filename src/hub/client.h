// Requests to a Hub: authorization, redirects, retries, and what its replies mean.
//
// Thread rule: a Client belongs to one thread; the Session that clients share is safe from any.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/http.h"
#include "hub/settings.h"
#include "hub/stall_timer.h"
#include "kvfork/error.h"

namespace kvfork::hub {

/// An Error that also says whether a cached snapshot may stand in: the Hub was out of reach or kept the
/// repository closed, which says nothing about what was downloaded before.
class HubError : public Error {
 public:
  enum class Cached { MayStandIn, MayNot };
  HubError(ErrorCode code, const std::string& message, Cached cached) : Error(code, message), cached_(cached) {}
  bool cached_may_stand_in() const { return cached_ == Cached::MayStandIn; }

 private:
  Cached cached_;
};

/// The HTTP status is no success: a HubError that knows which, for callers that can go on.
class StatusError : public HubError {
 public:
  StatusError(ErrorCode code, const std::string& message, Cached cached, int status, std::string error_code)
      : HubError(code, message, cached), status_(status), error_code_(std::move(error_code)) {}
  int status() const { return status_; }
  const std::string& error_code() const { return error_code_; }  ///< X-Error-Code, or empty

 private:
  int status_;
  std::string error_code_;
};

/// What every request of one pull shares.
struct Session {
  const Settings& settings;
  StallTimer& stall_timer;
  std::string repo_id;
  std::string revision;                   ///< as asked for; named in messages
  int max_attempts = 6;                   ///< of one request
  std::atomic<int> idle_connections = 0;  ///< of those allowed at the same time
};

/// A file of the repository as a HEAD request describes it.
struct FileMetadata {
  std::string etag;  ///< normalized
  std::string commit;
  std::optional<uint64_t> size;
  Url location;            ///< where GET finds the bytes
  bool send_token = true;  ///< whether that place may see the token
};

struct RepoListing {
  std::string commit;
  std::vector<std::string> files;
};

class Client {
 public:
  explicit Client(Session& session);

  /// GET /api/models/REPO/revision/REVISION. Empty when this Hub has no such interface (a 404 without the Hub's
  /// error code). Throws HubError.
  std::optional<RepoListing> list_repo();

  /// HEAD /REPO/resolve/REVISION/FILE. Empty when the revision has no such file. Throws HubError.
  std::optional<FileMetadata> find_file(const std::string& revision, const std::string& file);

  /// One attempt at the bytes from `first` on, up to and with `last` or the end. Redirects are followed; nothing is
  /// retried.
  Reply get_bytes(const FileMetadata& file, uint64_t first, std::optional<uint64_t> last,
                  const BodyFunction& on_body);

  /// Throws what a failed transfer or a status other than success means for `subject`.
  [[noreturn]] void fail_reply(const Reply& reply, const std::string& subject);

  /// Sleeps before the next attempt, if `reply` is a failure that may pass. False when it is not, when the attempts
  /// or the time without progress are used up, or when the server asks for a longer wait than kMaxRetryAfter.
  bool wait_to_retry(const Reply& reply, int attempt, int max_attempts);

  Session& session() { return session_; }

 private:
  enum class Follow { All, SameHost };
  bool may_visit(const Url& url) const;
  Request make_request(Method method, Url url, bool send_token, Milliseconds timeout) const;
  Reply follow(Request request, Follow follow, const BodyFunction& on_body, Url* last);
  Reply get_text(const std::string& path);
  std::string revision_hint();

  Session& session_;
  Url endpoint_;
  Connection connection_;
};

/// The longest Retry-After that is waited for.
inline constexpr Milliseconds kMaxRetryAfter{30000};

}  // namespace kvfork::hub
