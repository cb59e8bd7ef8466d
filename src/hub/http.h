// One HTTP exchange over libcurl: no redirects followed, no retries, bounded headers, a limit on stalling.
//
// A Connection keeps its TCP connection between exchanges. Thread rule: one thread at a time; the stop flag may be
// set from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/settings.h"
#include "hub/url.h"

namespace kvfork::hub {

enum class Method { Get, Head };

struct Request {
  Method method = Method::Get;
  Url url;
  std::vector<std::string> headers;  ///< "Name: value"
  /// To connect, to answer, and then to move at least kMinBytesPerSecond on average over any such span.
  std::chrono::milliseconds timeout{10000};
};

/// How the exchange itself went. Everything but Done may pass when tried again, except Tls, Proxy, BadReply and
/// the last two.
enum class Transfer {
  Done,         ///< a whole reply came, whatever its status
  Stalled,      ///< nothing, or too little, within the timeout
  Broken,       ///< the connection ended early
  Unreachable,  ///< no address, or nobody listens there
  Tls,
  Proxy,
  BadReply,  ///< not HTTP, or headers beyond the bound
  Stopped,   ///< the stop flag was set
  Refused,   ///< the body callback returned false
};

struct Reply {
  Transfer transfer = Transfer::Done;
  std::string problem;  ///< when not Done: what libcurl says
  int status = 0;
  std::map<std::string, std::string> headers;  ///< names in lower case; the last of equal names counts
  std::string body;                            ///< of replies that no body callback took

  std::optional<std::string> find_header(const std::string& lower_case_name) const;
};

/// Takes body bytes of a 200 or 206 reply, whose status and headers are known by then. False ends the exchange.
using BodyFunction = std::function<bool(const Reply& reply, std::string_view bytes)>;

inline constexpr size_t kMinBytesPerSecond = 1024;
inline constexpr size_t kMaxHeaderBytes = 64 << 10;

class Connection {
 public:
  Connection(const Settings& settings, const std::atomic<bool>& stop);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Bodies without a callback land in reply.body, at most `max_body_bytes` of them (more is BadReply).
  Reply exchange(const Request& request, const BodyFunction& on_body, size_t max_body_bytes);

  /// The next exchange opens a connection of its own: what is left in the old one is not to be trusted.
  void start_afresh() { fresh_ = true; }

 private:
  struct Exchange;
  void* handle_;
  bool fresh_ = false;
  const Settings& settings_;
  const std::atomic<bool>& stop_;
};

/// Keeps SIGPIPE from this thread while it lives: libcurl leaves that to the caller where it may not use signals.
class SigpipeGuard {
 public:
  SigpipeGuard();
  ~SigpipeGuard();
  SigpipeGuard(const SigpipeGuard&) = delete;
  SigpipeGuard& operator=(const SigpipeGuard&) = delete;

 private:
  bool was_blocked_ = false;
};

}  // namespace kvfork::hub
