// Checks of names from outside that become paths.
#include "hub/names.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/utf8.h"
#include "kvfork/hub.h"

namespace kvfork::hub {
namespace {

constexpr size_t kMaxPartBytes = 255;
constexpr size_t kMaxRepoNameBytes = 96;

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_word(char c) {
  return is_alphanumeric(c) || c == '_';
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

// One half of a repository id: starts and ends with a word character.
bool is_repo_part(std::string_view part) {
  if (part.empty() || part.size() > kMaxRepoNameBytes) return false;
  if (!is_word(part.front()) || !is_word(part.back())) return false;
  return std::all_of(part.begin(), part.end(), [](char c) { return is_word(c) || c == '-' || c == '.'; });
}

bool is_plain_part(std::string_view part) {
  return !part.empty() && part.size() <= kMaxPartBytes && part != "." && part != ".." &&
         std::none_of(part.begin(), part.end(), [](char c) { return c == '\\' || c == '/' || is_control(c); });
}

}  // namespace

bool is_valid_repo_id(std::string_view repo_id) {
  const size_t slash = repo_id.find('/');
  const std::string_view name = slash == std::string_view::npos ? repo_id : repo_id.substr(slash + 1);
  if (slash != std::string_view::npos && !is_repo_part(repo_id.substr(0, slash))) return false;
  return is_repo_part(name) && repo_id.find("--") == std::string_view::npos &&
         repo_id.find("..") == std::string_view::npos && !repo_id.ends_with(".git");
}

bool is_hex(std::string_view text, size_t n_digits) {
  return text.size() == n_digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool is_commit(std::string_view revision) {
  return is_hex(revision, 40);
}

bool stays_inside(std::string_view relative_path) {
  while (true) {
    const size_t slash = relative_path.find('/');
    if (!is_plain_part(relative_path.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    relative_path.remove_prefix(slash + 1);
  }
}

bool is_too_long(std::string_view relative_path) {
  while (true) {
    const size_t slash = relative_path.find('/');
    if (relative_path.substr(0, slash).size() > kMaxPartBytes) return true;
    if (slash == std::string_view::npos) return false;
    relative_path.remove_prefix(slash + 1);
  }
}

std::string normalize_etag(std::string_view header, std::string_view subject) {
  std::string_view etag = header;
  etag.remove_prefix(std::min(etag.find_first_not_of("W/"), etag.size()));
  while (etag.starts_with('"')) etag.remove_prefix(1);
  while (etag.ends_with('"')) etag.remove_suffix(1);
  const bool fits = etag.size() <= kMaxPartBytes - std::string_view(".incomplete").size();
  if (!is_plain_part(etag) || !fits) {
    base::fail(ErrorCode::Corrupt, "{}: expected an ETag that can name a file, found '{}'", subject,
               base::to_valid_utf8(header.substr(0, 100)));
  }
  return std::string(etag);
}

std::string percent_encode(std::string_view text, Slashes slashes) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (is_word(c) || c == '-' || c == '.' || c == '~' || (c == '/' && slashes == Slashes::Keep)) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return out;
}

}  // namespace kvfork::hub

namespace kvfork {

std::optional<HubRef> HubRef::parse(std::string_view text) {
  HubRef ref;
  const size_t at = text.find('@');
  ref.repo_id = text.substr(0, at);
  if (at != std::string_view::npos) ref.revision = text.substr(at + 1);
  if (!hub::is_valid_repo_id(ref.repo_id) || !hub::stays_inside(ref.revision)) return std::nullopt;
  return ref;
}

}  // namespace kvfork
