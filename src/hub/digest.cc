// SHA-1 of small blobs, as Git or plain, and the kinds of ETag.
#include "hub/digest.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "hub/names.h"

namespace kvfork::hub {
namespace {

constexpr size_t kReadBytes = 1 << 20;

using Context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

Context make_sha1() {
  Context context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  if (!context || EVP_DigestInit_ex(context.get(), EVP_sha1(), nullptr) != 1)
    base::fail(ErrorCode::Unsupported, "libcrypto: expected SHA-1, found it refused by its configuration");
  return context;
}

std::string finish(EVP_MD_CTX* context) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(context, digest, &size);
  std::string hex;
  for (unsigned i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

}  // namespace

EtagKind etag_kind(std::string_view etag) {
  if (is_hex(etag, 64)) return EtagKind::Sha256;
  return is_hex(etag, 40) ? EtagKind::GitSha1 : EtagKind::Opaque;
}

bool matches_sha1(const std::filesystem::path& path, std::string_view etag) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) base::fail_errno(path.string(), "open", errno);
  struct stat info {};
  ::fstat(fd, &info);
  const Context git = make_sha1();
  const Context plain = make_sha1();
  const std::string header = fmt::format("blob {}", info.st_size);
  EVP_DigestUpdate(git.get(), header.c_str(), header.size() + 1);
  std::vector<char> buffer(kReadBytes);
  ssize_t n = 0;
  while ((n = ::read(fd, buffer.data(), buffer.size())) > 0) {
    EVP_DigestUpdate(git.get(), buffer.data(), static_cast<size_t>(n));
    EVP_DigestUpdate(plain.get(), buffer.data(), static_cast<size_t>(n));
  }
  const int error_number = errno;
  ::close(fd);
  if (n < 0) base::fail_errno(path.string(), "read", error_number);
  return finish(git.get()) == etag || finish(plain.get()) == etag;
}

}  // namespace kvfork::hub
