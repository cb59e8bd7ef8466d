#include "hub/digest.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/error.h"
#include "hub/names.h"

namespace kvfork::hub {
namespace {

constexpr size_t kReadBytes = 1 << 20;

using Context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

Context make_context(const EVP_MD* algorithm) {
  Context context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  if (!context || EVP_DigestInit_ex(context.get(), algorithm, nullptr) != 1) {
    base::fail(ErrorCode::Unsupported,
               "libcrypto: expected SHA-1 and SHA-256, found them refused by its configuration");
  }
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

struct Sha256::State {
  Context context = make_context(EVP_sha256());
};

Sha256::Sha256() : state_(std::make_unique<State>()) {}
Sha256::~Sha256() = default;

void Sha256::reset() {
  EVP_DigestInit_ex(state_->context.get(), EVP_sha256(), nullptr);
}
void Sha256::add(std::string_view bytes) {
  EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size());
}
std::string Sha256::hex() {
  return finish(state_->context.get());
}

EtagKind etag_kind(std::string_view etag) {
  if (is_hex(etag, 64)) return EtagKind::Sha256;
  return is_hex(etag, 40) ? EtagKind::GitSha1 : EtagKind::Opaque;
}

bool matches_sha1(const std::filesystem::path& path, std::string_view etag) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) base::fail_errno(path.string(), "open", errno);
  struct stat info {};
  ::fstat(fd, &info);
  const Context git = make_context(EVP_sha1());
  const Context plain = make_context(EVP_sha1());
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
