// The environment variables of huggingface_hub and the token file.
#include "hub/settings.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <vector>

#include "base/ascii.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "hub/url.h"

namespace kvfork::hub {
namespace {

constexpr const char* kDefaultEndpoint = "https://huggingface.co";
constexpr int kMaxTimeoutSeconds = 24 * 3600;
constexpr size_t kMaxTokenFileBytes = 1 << 16;

std::optional<std::string> find_variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::optional<std::string>(value) : std::nullopt;
}

std::string variable_or(const char* name, std::string otherwise) {
  return find_variable(name).value_or(std::move(otherwise));
}

bool is_true(const char* name) {
  std::string value = variable_or(name, "");
  std::transform(value.begin(), value.end(), value.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

std::string join(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

std::string home_folder() {
  if (const auto home = find_variable("HOME")) return *home;
  const passwd* entry = ::getpwuid(::getuid());
  return entry && entry->pw_dir ? entry->pw_dir : "/";
}

// Whole seconds, with blanks around them if need be; unset and 0 mean the default, as in huggingface_hub.
std::chrono::milliseconds timeout_from(const char* name, std::chrono::milliseconds otherwise) {
  const auto text = find_variable(name);
  if (!text) return otherwise;
  int seconds = -1;
  const char* begin = text->data();
  const char* end = begin + text->size();
  while (begin != end && base::is_ascii_space(*begin)) ++begin;
  while (begin != end && base::is_ascii_space(end[-1])) --end;
  const auto [stop, error] = std::from_chars(begin, end, seconds);
  if (error != std::errc{} || stop != end || seconds < 0 || seconds > kMaxTimeoutSeconds) {
    base::fail(ErrorCode::InvalidArgument, "{}: expected whole seconds from 0 to {}, found '{}'", name,
               kMaxTimeoutSeconds, *text);
  }
  return seconds == 0 ? otherwise : std::chrono::seconds(seconds);
}

std::optional<std::string> clean_token(std::string token) {
  std::erase_if(token, [](char c) { return c == '\r' || c == '\n'; });
  const size_t first = token.find_first_not_of(" \t\v\f");
  if (first == std::string::npos) return std::nullopt;
  token = token.substr(first, token.find_last_not_of(" \t\v\f") - first + 1);
  const bool printable = std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (!printable) {
    base::fail(ErrorCode::InvalidArgument,
               "access token: expected printable characters without spaces; check HF_TOKEN or the token file");
  }
  return token;
}

std::optional<std::string> find_token(const std::string& hf_home) {
  if (is_true("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return std::nullopt;
  std::string value = variable_or("HF_TOKEN", "");
  if (value.empty()) value = variable_or("HUGGING_FACE_HUB_TOKEN", "");
  if (auto token = clean_token(value)) return token;
  const std::filesystem::path path = expand_path(variable_or("HF_TOKEN_PATH", join(hf_home, "token")));
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  return clean_token(base::read_file(path, kMaxTokenFileBytes));
}

std::string first_of(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (auto value = find_variable(name); value && !value->empty()) return *value;
  }
  return {};
}

std::string endpoint_from_environment() {
  std::string endpoint = variable_or("HF_ENDPOINT", "");
  while (endpoint.ends_with('/')) endpoint.pop_back();
  if (endpoint.empty()) endpoint = kDefaultEndpoint;
  const auto starts = [&](const char* scheme) { return endpoint.starts_with(scheme); };
  if (!starts("https://") && !starts("http://") && !starts("file:///")) {
    base::fail(ErrorCode::InvalidArgument,
               "HF_ENDPOINT: expected https://HOST, http://HOST or file:///FOLDER, found '{}'",
               printable_url(endpoint));
  }
  return endpoint;
}

std::string user_agent_from_environment() {
  std::string agent = "kvfork/" KVFORK_VERSION;
  if (const auto origin = find_variable("HF_HUB_USER_AGENT_ORIGIN")) agent += "; origin/" + *origin;
  std::erase_if(agent, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
  return agent;
}

}  // namespace

std::string expand_path(std::string text) {
  if (text == "~" || text.starts_with("~/")) text = home_folder() + text.substr(1);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$') {
      out += text[i];
      continue;
    }
    const bool braced = i + 1 < text.size() && text[i + 1] == '{';
    const size_t begin = i + (braced ? 2 : 1);
    size_t end = begin;
    if (braced) {
      end = text.find('}', begin);
    } else {
      while (end < text.size() && (base::is_ascii_letter(text[end]) || base::is_ascii_digit(text[end]) || text[end] == '_')) ++end;
    }
    const bool complete = end != std::string::npos && end > begin;
    const auto value = complete ? find_variable(text.substr(begin, end - begin).c_str()) : std::nullopt;
    if (!value) {
      out += '$';
      continue;
    }
    out += *value;
    i = braced ? end : end - 1;
  }
  return out;
}

std::string proxy_for(std::string_view scheme) {
  const std::string lower = std::string(scheme) + "_proxy";
  std::string upper = lower;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](char c) { return c == '_' ? c : static_cast<char>(c - 32); });
  return first_of({lower.c_str(), upper.c_str(), "all_proxy", "ALL_PROXY"});
}

Settings Settings::from_environment() {
  Settings settings;
  const std::string cache_home = variable_or("XDG_CACHE_HOME", join(home_folder(), ".cache"));
  const std::string hf_home = expand_path(variable_or("HF_HOME", join(cache_home, "huggingface")));
  const std::string legacy_cache = variable_or("HUGGINGFACE_HUB_CACHE", join(hf_home, "hub"));
  // Joined rather than made absolute: an empty variable is the current folder, as in Python.
  std::error_code ignored;
  settings.cache = std::filesystem::current_path(ignored) / expand_path(variable_or("HF_HUB_CACHE", legacy_cache));
  settings.endpoint = endpoint_from_environment();
  settings.token = find_token(hf_home);
  const char* offline = variable_or("HF_HUB_OFFLINE", "").empty() ? "TRANSFORMERS_OFFLINE" : "HF_HUB_OFFLINE";
  settings.offline = is_true(offline);
  settings.etag_timeout = timeout_from("HF_HUB_ETAG_TIMEOUT", settings.etag_timeout);
  settings.download_timeout = timeout_from("HF_HUB_DOWNLOAD_TIMEOUT", settings.download_timeout);
  settings.ca_path = first_of({"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"});
  settings.user_agent = user_agent_from_environment();
  return settings;
}

}  // namespace kvfork::hub
