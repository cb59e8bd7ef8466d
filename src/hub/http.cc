// One HTTP connection over libcurl, with limits on time and size.
#include "hub/http.h"

#include <curl/curl.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "base/error.h"
#include "base/utf8.h"

namespace kvfork::hub {
namespace {

using Clock = std::chrono::steady_clock;

constexpr long kReceiveBufferBytes = 512 << 10;

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

Transfer classify(CURLcode code, long proxy_status) {
  switch (code) {
    case CURLE_OK:
      return Transfer::Done;
    case CURLE_OPERATION_TIMEDOUT:
      return Transfer::Stalled;
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_PROXY:
      return Transfer::Proxy;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
      return proxy_status >= 400 ? Transfer::Proxy : Transfer::Unreachable;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS:
    case CURLE_USE_SSL_FAILED:
      return Transfer::Tls;
    default:
      return proxy_status >= 400 ? Transfer::Proxy : Transfer::Broken;
  }
}

void initialize_curl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

}  // namespace

std::optional<std::string> Reply::find_header(const std::string& lower_case_name) const {
  const auto found = headers.find(lower_case_name);
  if (found == headers.end()) return std::nullopt;
  return found->second;
}

// The state of one exchange, seen by libcurl's callbacks. None of them may throw through C code.
struct Connection::Exchange {
  Exchange(const BodyFunction& body, size_t max_bytes, const std::atomic<bool>& stop_flag,
           std::chrono::milliseconds limit)
      : on_body(body), max_body_bytes(max_bytes), stop(stop_flag), timeout(limit) {}

  Reply reply;
  const BodyFunction& on_body;
  size_t max_body_bytes;
  const std::atomic<bool>& stop;
  std::chrono::milliseconds timeout;
  size_t header_bytes = 0;
  bool has_enough = false;            // of the text that explains an error
  Transfer verdict = Transfer::Done;  // why a callback ended the exchange
  std::string verdict_text;
  std::exception_ptr exception;
  Clock::time_point window_start = Clock::now();
  curl_off_t window_bytes = 0;

  void end(Transfer why, std::string text) {
    if (verdict != Transfer::Done) return;
    verdict = why;
    verdict_text = std::move(text);
  }

  size_t take_header(std::string_view line) {
    header_bytes += line.size();
    if (header_bytes > kMaxHeaderBytes) {
      end(Transfer::BadReply, fmt::format("more than {} bytes of headers", kMaxHeaderBytes));
      return 0;
    }
    if (line.starts_with("HTTP/")) {
      reply.headers.clear();
      const size_t space = line.find(' ');
      reply.status =
          space == std::string_view::npos ? 0 : std::atoi(std::string(line.substr(space + 1, 3)).c_str());
    } else if (const size_t colon = line.find(':'); colon != std::string_view::npos) {
      reply.headers[lower_case(trim(line.substr(0, colon)))] = base::to_valid_utf8(trim(line.substr(colon + 1)));
    }
    return line.size();
  }

  size_t take_body(std::string_view bytes) {
    try {
      if (on_body && (reply.status == 200 || reply.status == 206)) {
        if (on_body(reply, bytes)) return bytes.size();
        end(Transfer::Refused, "refused");
        return 0;
      }
      if (reply.body.size() + bytes.size() > max_body_bytes) {
        has_enough = reply.status >= 300;
        if (has_enough) return 0;
        end(Transfer::BadReply, fmt::format("more than {} bytes", max_body_bytes));
        return 0;
      }
      reply.body.append(bytes);
      return bytes.size();
    } catch (...) {
      exception = std::current_exception();
      end(Transfer::Refused, "refused");
      return 0;
    }
  }

  // Called at least about once a second.
  int watch(curl_off_t received) {
    if (stop.load(std::memory_order_relaxed)) {
      end(Transfer::Stopped, "stopped");
      return 1;
    }
    const auto now = Clock::now();
    const auto enough = static_cast<curl_off_t>(kMinBytesPerSecond) * timeout.count() / 1000;
    if (received - window_bytes >= std::max<curl_off_t>(enough, 1)) {
      window_bytes = received;
      window_start = now;
    } else if (now - window_start > timeout) {
      end(Transfer::Stalled,
          fmt::format("less than {} bytes in {:.3g} s", enough, std::chrono::duration<double>(timeout).count()));
      return 1;
    }
    return 0;
  }
};

Connection::Connection(const Settings& settings, const std::atomic<bool>& stop) : settings_(settings), stop_(stop) {
  initialize_curl();
  handle_ = curl_easy_init();
  if (!handle_) base::fail(ErrorCode::Network, "libcurl: cannot make a handle");
}

Connection::~Connection() {
  curl_easy_cleanup(static_cast<CURL*>(handle_));
}

Reply Connection::exchange(const Request& request, const BodyFunction& on_body, size_t max_body_bytes) {
  CURL* curl = static_cast<CURL*>(handle_);
  curl_easy_reset(curl);
  Exchange exchange(on_body, max_body_bytes, stop_, request.timeout);

  char error_text[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error_text);
  curl_easy_setopt(curl, CURLOPT_URL, request.url.full.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(curl, CURLOPT_HTTP_CONTENT_DECODING, 0L);
  curl_easy_setopt(curl, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, kReceiveBufferBytes);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, settings_.user_agent.c_str());
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.timeout.count()));
  curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, fresh_ ? 1L : 0L);
  fresh_ = false;
  if (request.method == Method::Head) curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);

  const std::string proxy = proxy_for(request.url.scheme);
  curl_easy_setopt(curl, CURLOPT_PROXY, proxy.c_str());
  if (!settings_.ca_path.empty()) {
    std::error_code ignored;
    const bool folder = std::filesystem::is_directory(settings_.ca_path, ignored);
    curl_easy_setopt(curl, folder ? CURLOPT_CAPATH : CURLOPT_CAINFO, settings_.ca_path.c_str());
  }

  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(nullptr, &curl_slist_free_all);
  for (const std::string& line : request.headers) {
    curl_slist* longer = curl_slist_append(headers.get(), line.c_str());
    if (!longer) throw std::bad_alloc();
    static_cast<void>(headers.release());
    headers.reset(longer);
  }
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());

  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &exchange);
  curl_easy_setopt(
      curl, CURLOPT_HEADERFUNCTION, +[](char* data, size_t, size_t n, void* self) -> size_t {
        return static_cast<Exchange*>(self)->take_header({data, n});
      });
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &exchange);
  curl_easy_setopt(
      curl, CURLOPT_WRITEFUNCTION, +[](char* data, size_t, size_t n, void* self) -> size_t {
        return static_cast<Exchange*>(self)->take_body({data, n});
      });
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &exchange);
  curl_easy_setopt(
      curl, CURLOPT_XFERINFOFUNCTION,
      +[](void* self, curl_off_t, curl_off_t received, curl_off_t, curl_off_t) -> int {
        return static_cast<Exchange*>(self)->watch(received);
      });

  const CURLcode code = curl_easy_perform(curl);
  if (exchange.exception) std::rethrow_exception(exchange.exception);
  Reply reply = std::move(exchange.reply);
  long proxy_status = 0;
  curl_easy_getinfo(curl, CURLINFO_HTTP_CONNECTCODE, &proxy_status);
  reply.transfer = exchange.verdict != Transfer::Done ? exchange.verdict : classify(code, proxy_status);
  if (exchange.has_enough) reply.transfer = Transfer::Done;
  if (reply.transfer != Transfer::Done) {
    reply.problem = exchange.verdict != Transfer::Done ? exchange.verdict_text
                    : error_text[0] != '\0'            ? base::to_valid_utf8(error_text)
                                                       : curl_easy_strerror(code);
    // libcurl quotes a proxy that it cannot read, password and all.
    if (const size_t at = proxy.empty() ? std::string::npos : reply.problem.find(proxy); at != std::string::npos)
      reply.problem.replace(at, proxy.size(), printable_url(proxy));
    if (reply.transfer == Transfer::Unreachable && !proxy.empty())
      reply.problem += " (the environment names a proxy)";
  }
  return reply;
}

SigpipeGuard::SigpipeGuard() {
  sigset_t pipe_signal;
  sigset_t before;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  was_blocked_ = sigismember(&before, SIGPIPE) == 1;
}

SigpipeGuard::~SigpipeGuard() {
  if (was_blocked_) return;
  sigset_t pipe_signal;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  const timespec at_once{};
  while (sigtimedwait(&pipe_signal, nullptr, &at_once) == SIGPIPE) {
  }
  pthread_sigmask(SIG_UNBLOCK, &pipe_signal, nullptr);
}

}  // namespace kvfork::hub
