// What the environment says about the Hub, read once per pull with huggingface_hub's names and precedence.
//
// Immutable after construction; any thread may read it.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace kvfork::hub {

/// Whether snapshots may be made of links. `Copy` is for file systems that have none; found by trying.
enum class Links { Try, Copy };

struct Settings {
  std::filesystem::path cache;  ///< holds models--ORG--NAME and .locks
  std::string endpoint;         ///< scheme://host[:port][/path] or file:///folder, no slash at the end
  std::optional<std::string> token;
  bool offline = false;
  std::chrono::milliseconds etag_timeout{10000};
  std::chrono::milliseconds download_timeout{10000};
  std::string ca_path;  ///< file or folder of certificates; empty: the system's
  std::string user_agent;
  Links links = Links::Try;

  /// Throws Error{InvalidArgument} naming the variable for a value that cannot be used.
  static Settings from_environment();
};

/// The proxy that the environment names for `scheme` ("http", "https"): lower-case name first, then upper-case,
/// then all_proxy. Empty when there is none. Exceptions in no_proxy are libcurl's to apply.
std::string proxy_for(std::string_view scheme);

/// `text` with a leading "~" and $NAME or ${NAME} replaced, as Python's expanduser and expandvars do.
std::string expand_path(std::string text);

}  // namespace kvfork::hub
