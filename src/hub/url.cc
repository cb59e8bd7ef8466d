// Parsing, resolving and printing addresses.
#include "hub/url.h"

#include <curl/curl.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/utf8.h"

namespace kvfork::hub {
namespace {

using Handle = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

std::string part_of(const Handle& handle, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(handle.get(), part, &text, flags) != CURLUE_OK) return {};
  std::string out(text);
  curl_free(text);
  return out;
}

Url read(const Handle& handle, std::string_view subject) {
  if (!part_of(handle, CURLUPART_USER).empty() || !part_of(handle, CURLUPART_PASSWORD).empty()) {
    base::fail(ErrorCode::Network, "{}: expected a URL without a user name or password", subject);
  }
  Url url;
  url.full = part_of(handle, CURLUPART_URL);
  url.scheme = part_of(handle, CURLUPART_SCHEME);
  std::string host = part_of(handle, CURLUPART_HOST);
  std::transform(host.begin(), host.end(), host.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  url.origin = url.scheme + "://" + host + ":" + part_of(handle, CURLUPART_PORT, CURLU_DEFAULT_PORT);
  return url;
}

}  // namespace

Url parse_url(const std::string& text, std::string_view subject) {
  const Handle handle(curl_url(), &curl_url_cleanup);
  if (curl_url_set(handle.get(), CURLUPART_URL, text.c_str(), CURLU_URLENCODE) != CURLUE_OK) {
    base::fail(ErrorCode::Network, "{}: expected a URL, found '{}'", subject, printable_url(text));
  }
  return read(handle, subject);
}

Url resolve_location(const Url& base, const std::string& location) {
  const std::string subject = printable_url(base.full);
  const Handle handle(curl_url(), &curl_url_cleanup);
  if (curl_url_set(handle.get(), CURLUPART_URL, base.full.c_str(), 0) != CURLUE_OK ||
      curl_url_set(handle.get(), CURLUPART_URL, location.c_str(), CURLU_URLENCODE) != CURLUE_OK) {
    base::fail(ErrorCode::Network, "{}: redirected to '{}', which is no URL that kvfork follows", subject,
               printable_url(location));
  }
  return read(handle, subject + ": redirect");
}

bool is_relative(std::string_view location) {
  const size_t colon = location.find(':');
  return !location.starts_with("//") && (colon == std::string_view::npos || location.find('/') < colon);
}

std::string printable_url(std::string_view url) {
  constexpr size_t kMaxShown = 300;
  const std::string shown = base::to_valid_utf8(url.substr(0, std::min(url.find_first_of("?#"), kMaxShown)));
  std::string out;
  for (const char c : shown) out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  const size_t at = out.find('@');
  const size_t scheme_end = out.find("://");
  if (at != std::string::npos && scheme_end != std::string::npos && at < out.find('/', scheme_end + 3)) {
    out.erase(scheme_end + 3, at - scheme_end - 2);
  }
  return out;
}

}  // namespace kvfork::hub
