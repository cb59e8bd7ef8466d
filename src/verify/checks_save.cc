// The check named save_open: a saved context is the context, and a damaged file is none.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "kvfork/error.h"
#include "verify/checks.h"

namespace kvfork::checks {
namespace {

namespace fs = std::filesystem;

// A name in a directory, and nothing there once the object is gone.
class TemporaryName {
 public:
  explicit TemporaryName(const fs::path& directory) {
    static std::atomic<unsigned> count{0};
    path_ = directory / fmt::format("kvfork-verify-{}-{}.safetensors", ::getpid(), count++);
  }
  TemporaryName(const TemporaryName&) = delete;
  TemporaryName& operator=(const TemporaryName&) = delete;
  ~TemporaryName() {
    std::error_code error;
    fs::remove(path_, error);
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// A copy of `from` with one bit flipped in its middle.
void damage(const std::string& from, const std::string& to) {
  fs::copy_file(from, to, fs::copy_options::overwrite_existing);
  std::fstream file(to, std::ios::in | std::ios::out | std::ios::binary);
  const auto middle = static_cast<std::streamoff>(fs::file_size(to) / 2);
  file.seekg(middle);
  const auto byte = static_cast<char>(file.get() ^ 1);
  file.seekp(middle);
  file.put(byte);
}

}  // namespace

Outcome Checks::check_save_open() {
  constexpr uint64_t kMaxDamagedBytes = uint64_t{1} << 30;
  std::error_code error;
  const fs::path directory =
      options_.directory.empty() ? fs::temp_directory_path(error) : fs::path(options_.directory);
  const TemporaryName saved(directory);
  try {
    subject_.save(*context_, saved.path());
  } catch (const Error& refused) {
    if (refused.code() != ErrorCode::Io && refused.code() != ErrorCode::NotFound) throw;
    return {.detail = fmt::format("not run: {}; TMPDIR names another directory", refused.what())};
  }
  const auto opened = subject_.open(saved.path());
  const auto fail = [](const char* what) {
    return Outcome{.pass = false,
                   .detail = fmt::format("the opened context has other {} than the one that was saved", what)};
  };
  if (!std::ranges::equal(opened->ids(), context_->ids())) return fail("token ids");
  if (opened->hash() != context_->hash()) return fail("keys and values");
  if (!same_bits(opened->logits(), context_->logits())) return fail("logits");
  const CheckedRequest& request = served_.front();
  const std::string problem = find_difference(
      request, subject_.answer(*opened, request.n_cached, request.ids, greedy_), "opened",
      subject_.answer(*context_, request.n_cached, request.ids, greedy_), "never saved", Compare::Bits);
  if (!problem.empty()) return {.pass = false, .detail = problem};
  const uint64_t n_bytes = fs::file_size(saved.path(), error);
  Outcome outcome{.pass = true,
                  .detail = fmt::format(
                      "saved to {} bytes and opened: ids, keys, values and logits have the same bits, and so has "
                      "the first answer",
                      n_bytes)};
  if (n_bytes > kMaxDamagedBytes) return outcome;
  const TemporaryName damaged(directory);
  try {
    damage(saved.path(), damaged.path());
  } catch (const fs::filesystem_error& refused) {
    outcome.detail += fmt::format("; no room for a damaged copy: {}", refused.code().message());
    return outcome;
  }
  try {
    subject_.open(damaged.path())->fork_unchecked();
  } catch (const Error&) {
    outcome.detail += "; a copy with one bit flipped is refused";
    return outcome;
  }
  return {.pass = false, .detail = "a copy of the saved file with one bit flipped was opened and forked"};
}

}  // namespace kvfork::checks
