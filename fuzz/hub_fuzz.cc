// Any text is a Hub id, a URL, a Location, an ETag, a Retry-After, a Content-Range or a shard index, or gives a
// kvfork::Error; and what passes leads nowhere outside.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "hub/model_files.h"
#include "hub/names.h"
#include "hub/ranges.h"
#include "hub/reply_errors.h"
#include "hub/settings.h"
#include "hub/stall_timer.h"
#include "hub/url.h"
#include "kvfork/error.h"
#include "kvfork/hub.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

template <typename Parse>
void may_fail(const Parse& parse) {
  try {
    parse();
  } catch (const kvfork::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvfork::hub;
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto ref = kvfork::HubRef::parse(text)) {
    require(is_valid_repo_id(ref->repo_id) && stays_inside(ref->repo_id) && stays_inside(ref->revision));
  }
  may_fail([&] {
    const std::string etag = normalize_etag(text, "input");
    require(stays_inside(etag) && etag.find('/') == std::string::npos && etag.size() < 256);
  });
  may_fail([&] {
    const Url url = parse_url(text, "input");
    require(!url.scheme.empty() && parse_url(url.full, "again").origin == url.origin);
  });
  may_fail([&] { resolve_location(parse_url("https://hub.example/a/b", "base"), text); });
  may_fail([&] {
    for (const std::string& name : parse_shard_names(text, "input")) require(stays_inside(name));
  });
  if (const auto wait = parse_retry_after(text)) require(wait->count() >= 0);
  if (const auto range = parse_content_range(text)) require(range->first <= range->last);
  for (const std::string& part : gguf_parts(text)) require(stays_inside(part) == stays_inside(text));
  require(printable(text).find('\n') == std::string::npos && printable_url(text).find('?') == std::string::npos);
  percent_encode(text, Slashes::Encode);
  return 0;
}
