// Replies to Hub requests from a local folder, for an HF_ENDPOINT of file://.
#include "hub/file_endpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/json_text.h"
#include "base/sha256.h"
#include "hub/names.h"

namespace kvfork::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kReadBytes = 256 << 10;
constexpr std::string_view kApi = "/api/models/";
constexpr std::string_view kRevision = "/revision/";
constexpr std::string_view kResolve = "/resolve/";

std::string decode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// What the request's address names; `file` is empty for the listing.
struct Wanted {
  std::string repo;
  std::string revision;
  std::string file;
};

std::optional<Wanted> parse_address(std::string_view address) {
  address = address.substr(0, address.find_first_of("?#"));
  if (address.starts_with(kApi)) {
    address.remove_prefix(kApi.size());
    const size_t at = address.find(kRevision);
    if (at == std::string_view::npos) return std::nullopt;
    return Wanted{decode(address.substr(0, at)), decode(address.substr(at + kRevision.size())), {}};
  }
  const size_t at = address.find(kResolve);
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  const std::string_view rest = address.substr(at + kResolve.size());
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  return Wanted{decode(address.substr(1, at - 1)), decode(rest.substr(0, slash)), decode(rest.substr(slash + 1))};
}

// The files of one revision by name; hidden folders are somebody's notes.
std::map<std::string, fs::path> list_files(const fs::path& folder) {
  std::map<std::string, fs::path> files;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    const fs::path& path = it->path();
    if (path.filename().string().starts_with('.') && it->is_directory(ignored)) {
      it.disable_recursion_pending();
    } else if (it->is_regular_file(ignored)) {
      files.emplace(path.lexically_relative(folder).generic_string(), path);
    }
  }
  return files;
}

std::string commit_of(const fs::path& folder) {
  if (is_commit(folder.filename().string())) return folder.filename().string();
  base::Sha256 sha;
  for (const auto& [name, path] : list_files(folder)) {
    std::error_code ignored;
    const auto time = fs::last_write_time(path, ignored).time_since_epoch().count();
    sha.add(fmt::format("{}\n{}\n{}\n", name, fs::file_size(path, ignored), time));
  }
  return sha.hex().substr(0, 40);
}

// Where the revision lies, and its commit.
struct Version {
  fs::path folder;
  std::string commit;
};

std::optional<Version> find_version(const fs::path& repo, const std::string& revision) {
  std::error_code ignored;
  const fs::path mirrored = repo / "resolve";
  if (!fs::is_directory(mirrored, ignored)) {
    Version version{repo, commit_of(repo)};
    if (revision == "main" || revision == version.commit) return version;
    return std::nullopt;
  }
  for (const std::string& name : {revision, percent_encode(revision, Slashes::Encode)}) {
    if (fs::is_directory(mirrored / name, ignored)) return Version{mirrored / name, commit_of(mirrored / name)};
  }
  if (!is_commit(revision)) return std::nullopt;
  for (const auto& entry : fs::directory_iterator(mirrored, ignored)) {
    if (entry.is_directory(ignored) && commit_of(entry.path()) == revision) return Version{entry.path(), revision};
  }
  return std::nullopt;
}

Reply refuse(const char* code) {
  Reply reply;
  reply.status = 404;
  reply.headers["x-error-code"] = code;
  return reply;
}

Reply broken(const fs::path& path, int error_number) {
  Reply reply;
  reply.transfer = Transfer::Refused;
  reply.problem = fmt::format("{}: {}", path.string(), std::strerror(error_number));
  return reply;
}

// "Range: bytes=FIRST-[LAST]" among the headers.
std::pair<uint64_t, uint64_t> wanted_range(const Request& request, uint64_t size) {
  constexpr std::string_view kRange = "Range: bytes=";
  uint64_t first = 0;
  uint64_t end = size;
  for (const std::string& line : request.headers) {
    if (!line.starts_with(kRange)) continue;
    const char* stop = line.data() + line.size();
    const char* dash = std::from_chars(line.data() + kRange.size(), stop, first).ptr;
    uint64_t last = 0;
    if (dash != stop && std::from_chars(dash + 1, stop, last).ec == std::errc{}) end = std::min(size, last + 1);
  }
  return {std::min(first, end), end};
}

class OpenFile {
 public:
  explicit OpenFile(const fs::path& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  bool is_open() const { return fd_ >= 0; }

  /// Calls take(bytes) from `first` to `end` until it says false. Zero, or what went wrong.
  template <typename Take>
  int read(uint64_t first, uint64_t end, const Take& take) const {
    std::vector<char> buffer(kReadBytes);
    while (first < end) {
      const ssize_t n =
          ::pread(fd_, buffer.data(), std::min<uint64_t>(buffer.size(), end - first), static_cast<off_t>(first));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return n < 0 ? errno : EIO;
      if (!take(std::string_view(buffer.data(), static_cast<size_t>(n)))) return ECANCELED;
      first += static_cast<uint64_t>(n);
    }
    return 0;
  }

 private:
  int fd_;
};

Reply give_file(const fs::path& path, const std::string& commit, const Request& request,
                const BodyFunction& on_body, const std::atomic<bool>& stop) {
  const OpenFile file(path);
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (!file.is_open() || error) return broken(path, file.is_open() ? error.value() : errno);
  Reply reply;
  reply.status = 200;
  reply.headers["x-repo-commit"] = commit;
  if (request.method == Method::Head) {
    base::Sha256 sha;
    const int problem = file.read(0, size, [&](std::string_view bytes) {
      sha.add(bytes);
      return !stop;
    });
    if (problem != 0) return broken(path, problem);
    reply.headers["etag"] = "\"" + sha.hex() + "\"";
    reply.headers["content-length"] = std::to_string(size);
    return reply;
  }
  const auto [first, end] = wanted_range(request, size);
  if (first > 0 || end < size) {
    reply.status = 206;
    reply.headers["content-range"] = fmt::format("bytes {}-{}/{}", first, end - 1, size);
  }
  const int problem = file.read(first, end, [&](std::string_view bytes) { return !stop && on_body(reply, bytes); });
  return problem == 0 ? reply : broken(path, problem);
}

Reply give_listing(const Version& version) {
  auto siblings = base::JsonText::list();
  for (const auto& [name, path] : list_files(version.folder)) siblings.push_back({{"rfilename", name}});
  Reply reply;
  reply.status = 200;
  reply.body = base::JsonText{{"sha", version.commit}, {"siblings", siblings}}.text();
  return reply;
}

}  // namespace

Reply ask_file_endpoint(const std::string& endpoint, const Request& request, const BodyFunction& on_body,
                        const std::atomic<bool>& stop) {
  const fs::path top = decode(std::string_view(endpoint).substr(std::string_view("file://").size()));
  const auto wanted =
      parse_address(std::string_view(request.url.full).substr(std::min(request.url.full.size(), endpoint.size())));
  std::error_code error;
  if (!fs::is_directory(top, error)) {
    Reply reply;
    reply.transfer = Transfer::Unreachable;
    reply.problem = top.string() + ": no such folder";
    return reply;
  }
  if (!wanted || !stays_inside(wanted->repo) || !fs::is_directory(top / wanted->repo, error))
    return refuse("RepoNotFound");
  if (!stays_inside(wanted->revision)) return refuse("RevisionNotFound");
  const auto version = find_version(top / wanted->repo, wanted->revision);
  if (!version) return refuse("RevisionNotFound");
  if (wanted->file.empty()) return give_listing(*version);
  const fs::path path = version->folder / wanted->file;
  if (!stays_inside(wanted->file) || !fs::is_regular_file(path, error)) return refuse("EntryNotFound");
  return give_file(path, version->commit, request, on_body, stop);
}

}  // namespace kvfork::hub
