// Fetching one file: resume, verify, retry, and give the blob its name.
#include "hub/fetch.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/error.h"
#include "hub/blob_writer.h"
#include "hub/digest.h"
#include "hub/ranges.h"
#include "hub/reply_errors.h"

namespace kvfork::hub {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kMaxFailuresInARow = 6;
constexpr int kMaxRounds = 4;
constexpr int kMaxMismatches = 2;
constexpr Milliseconds kMaxLockStall{75000};

// A server that announces no length may send this much; the disk would be the only bound otherwise.
constexpr uint64_t kMaxUnannouncedBytes = 64'000'000;
constexpr uint64_t kMaxUnannouncedWeightBytes = 64'000'000'000;

// Several connections take over from one when it is seen to be slow and a good part is left. What is faster than
// this is held up by the processor or the disk, and would only lose by it.
constexpr auto kTimeToJudge = std::chrono::milliseconds(1500);
constexpr double kWorthwhileSeconds = 4;
constexpr uint64_t kWorthwhileBytes = 16 << 20;
constexpr double kFastBytesPerSecond = 256 << 20;

// Why the bytes of a reply were not taken, or stopped being taken.
enum class Refusal {
  None,
  WrongRange,  // a 206 for other bytes than asked for
  Encoded,     // compressed, though identity was asked for
  TooLong,     // more than the file's size
  Unbounded,   // no announced size, and more than such a file may have
  Changed,     // the Hub now has another version of the file
  Slow,        // nothing wrong: more connections would help
};

// One blob under its lock. `run` returns false when the Hub has another version by now and the caller must ask
// again.
class BlobFetch {
 public:
  enum class Versions { Compare, Ignore };  // the ETag of the bytes' reply

  BlobFetch(Client& client, const FileRequest& request, fs::path unfinished, Versions versions,
            const FetchProgress& on_progress)
      : client_(client),
        request_(request),
        versions_(versions),
        subject_(client.session().repo_id + ": " + request.file),
        size_(request.metadata.size),
        writer_(std::move(unfinished), size_.value_or(std::numeric_limits<uint64_t>::max()),
                etag_kind(request.metadata.etag) == EtagKind::Sha256 ? BlobWriter::Hash::Sha256
                                                                     : BlobWriter::Hash::None),
        on_progress_(on_progress) {
    // Without a size there is no telling whether old content is all of it.
    if (!size_) writer_.clear();
  }

  enum class Outcome { Verified, Changed, Mismatch, Moved };

  Outcome run() {
    high_water_ = writer_.size();
    report();
    while (!is_complete()) {
      refusal_ = Refusal::None;
      finished_ = false;
      const uint64_t start = writer_.size();
      stream_begin_ = Clock::now();
      stream_start_ = start;
      const Reply reply =
          client_.get_bytes(request_.metadata, start, std::nullopt,
                            [&](const Reply& head, std::string_view bytes) { return take(head, bytes, start); });
      writer_.flush();
      note_progress(reply);
      if (refusal_ == Refusal::Changed) return Outcome::Changed;
      if (refusal_ == Refusal::Unbounded) fail_unbounded();
      if (refusal_ == Refusal::Slow) {
        use_idle_connections();
        continue;
      }
      if (reply.transfer == Transfer::Done && (reply.status == 200 || reply.status == 206)) {
        finished_ = !size_;
        if (size_ == 0U || finished_ || is_complete()) continue;
      }
      if (has_expired(reply)) return Outcome::Moved;
      prepare_retry(reply);
    }
    return verify() ? Outcome::Verified : Outcome::Mismatch;
  }

  void publish(const fs::path& blob) { writer_.publish(blob); }
  void discard() { writer_.remove(); }
  uint64_t received() const { return received_; }
  const std::string& found_digest() const { return found_digest_; }

 private:
  bool is_complete() const { return size_ ? writer_.size() == *size_ : finished_; }

  void report() const {
    if (on_progress_) on_progress_(writer_.size(), size_.value_or(0));
  }

  bool refuse(Refusal why) {
    refusal_ = why;
    return false;
  }

  bool take(const Reply& head, std::string_view bytes, uint64_t start) {
    if (!begun_) {
      begun_ = true;
      if (head.find_header("content-encoding").value_or("identity") != "identity") return refuse(Refusal::Encoded);
      if (versions_ == Versions::Compare && has_changed(head, request_.metadata.etag))
        return refuse(Refusal::Changed);
      if (head.status == 206) {
        const auto range = parse_content_range(head.find_header("content-range").value_or(""));
        if (!range || range->first != start || (range->total && size_ && *range->total != *size_)) {
          return refuse(Refusal::WrongRange);
        }
      } else if (start > 0) {
        writer_.clear();
      }
    }
    if (size_ && bytes.size() > *size_ - writer_.size()) return refuse(Refusal::TooLong);
    if (!size_ && bytes.size() > max_unannounced() - writer_.size()) return refuse(Refusal::Unbounded);
    writer_.append(bytes);
    received_ += bytes.size();
    const uint64_t reported_step = 256 << 10;
    if (writer_.size() - reported_ >= reported_step || writer_.size() < reported_) {
      reported_ = writer_.size();
      if (writer_.size() > high_water_) client_.session().stall_timer.progress();
      report();
    }
    return wants_ranges() ? refuse(Refusal::Slow) : true;
  }

  uint64_t max_unannounced() const {
    const bool is_weights = request_.file.ends_with(".safetensors") || request_.file.ends_with(".gguf");
    return is_weights ? kMaxUnannouncedWeightBytes : kMaxUnannouncedBytes;
  }

  [[noreturn]] void fail_unbounded() {
    writer_.remove();
    base::fail(ErrorCode::Limit, "{}: expected at most {} where the server announces no length, found more",
               subject_, readable_size(max_unannounced()));
  }

  bool wants_ranges() const {
    if (!size_ || used_ranges_ || client_.session().idle_connections <= 0) return false;
    const auto elapsed = Clock::now() - stream_begin_;
    const uint64_t rest = *size_ - writer_.size();
    if (elapsed < kTimeToJudge || rest < kWorthwhileBytes || writer_.size() <= stream_start_) return false;
    const double rate =
        static_cast<double>(writer_.size() - stream_start_) / std::chrono::duration<double>(elapsed).count();
    return rate<kFastBytesPerSecond&& static_cast<double>(rest) / rate> kWorthwhileSeconds;
  }

  void use_idle_connections() {
    used_ranges_ = true;
    std::atomic<int>& idle = client_.session().idle_connections;
    const int extra = std::max(0, idle.exchange(0));
    const std::function<void()> on_progress = [this] { report(); };
    try {
      received_ += fetch_ranges(client_.session(), request_.metadata, *size_, writer_,
                                1 + static_cast<unsigned>(extra), on_progress);
    } catch (...) {
      idle += extra;
      throw;
    }
    idle += extra;
    high_water_ = std::max(high_water_, writer_.size());
  }

  // A server that sends little and breaks off must not keep the pull alive for ever: only new ground counts, and
  // at least a 64th of the file or 1 KiB of it.
  void note_progress(const Reply& reply) {
    begun_ = false;
    const uint64_t step = std::max<uint64_t>(1024, size_.value_or(0) / 64);
    const bool gained = writer_.size() >= high_water_ + step && reply.transfer != Transfer::Stalled;
    if (gained || is_complete()) {
      client_.session().stall_timer.progress();
      failures_ = 0;
    }
    if (gained) high_water_ = writer_.size();
    report();
  }

  // A signed address of the store runs out after a while; the Hub gives a new one, or says what is wrong.
  bool has_expired(const Reply& reply) const {
    const bool refused = reply.status == 401 || reply.status == 403 || reply.status == 404 || reply.status == 410;
    return reply.transfer == Transfer::Done && refused;
  }

  void prepare_retry(Reply reply) {
    if (refusal_ != Refusal::None) {
      reply.transfer = Transfer::Broken;
      reply.problem = refusal_ == Refusal::WrongRange ? "a reply for another range than asked for"
                      : refusal_ == Refusal::Encoded  ? "a compressed reply"
                                                      : fmt::format("more than the {} bytes announced", *size_);
      writer_.clear();
    } else if (reply.transfer == Transfer::Done && reply.status == 416 && writer_.size() > 0) {
      writer_.clear();
      reply.transfer = Transfer::Broken;
      reply.problem = "the range refused";
    } else if (reply.transfer == Transfer::Done && (reply.status == 200 || reply.status == 206)) {
      reply.transfer = Transfer::Broken;
      reply.problem = fmt::format("only {} of {} bytes", writer_.size(), *size_);
    }
    if (!client_.wait_to_retry(reply, ++failures_, kMaxFailuresInARow)) client_.fail_reply(reply, subject_);
  }

  bool verify() {
    const std::string& etag = request_.metadata.etag;
    switch (etag_kind(etag)) {
      case EtagKind::Sha256:
        found_digest_ = writer_.sha256();
        return found_digest_ == etag;
      case EtagKind::GitSha1:
        writer_.flush();
        found_digest_ = "another SHA-1";
        return matches_sha1(writer_.path(), etag);
      case EtagKind::Opaque:
        return true;
    }
    return false;
  }

  Client& client_;
  const FileRequest& request_;
  const Versions versions_;
  const std::string subject_;
  const std::optional<uint64_t> size_;
  BlobWriter writer_;
  const FetchProgress& on_progress_;
  Refusal refusal_ = Refusal::None;
  bool begun_ = false;
  bool finished_ = false;
  bool used_ranges_ = false;
  Clock::time_point stream_begin_;
  uint64_t stream_start_ = 0;
  int failures_ = 0;
  uint64_t high_water_ = 0;
  uint64_t reported_ = 0;
  uint64_t received_ = 0;
  std::string found_digest_;
};

bool has_whole_blob(const RepoCache& cache, const FileMetadata& metadata) {
  std::error_code error;
  const uint64_t size = fs::file_size(cache.blob_path(metadata.etag), error);
  return !error && (!metadata.size || size == *metadata.size);
}

fs::path unfinished_path(const RepoCache& cache, const FileMetadata& metadata) {
  return cache.blob_path(metadata.etag + ".incomplete");
}

}  // namespace

uint64_t bytes_missing(const RepoCache& cache, const FileMetadata& metadata) {
  if (!metadata.size || has_whole_blob(cache, metadata)) return 0;
  std::error_code error;
  const uint64_t present = fs::file_size(unfinished_path(cache, metadata), error);
  return error || present > *metadata.size ? *metadata.size : *metadata.size - present;
}

uint64_t fetch_file(Client& client, const RepoCache& cache, FileRequest request, const FetchProgress& on_progress) {
  const std::string subject = client.session().repo_id + ": " + request.file;
  uint64_t received = 0;
  int mismatches = 0;
  auto versions = BlobFetch::Versions::Compare;
  for (int round = 1;; ++round) {
    const FileMetadata metadata = request.metadata;
    const fs::path unfinished = unfinished_path(cache, metadata);
    const BlobLock lock(cache.lock_path(metadata.etag), unfinished, kMaxLockStall,
                        client.session().stall_timer.stopped());
    if (cache.has_file(request.commit, request.file)) return received;
    if (has_whole_blob(cache, metadata)) {
      cache.place_file(metadata.etag, request.commit, request.file, false);
      return received;
    }
    BlobFetch fetch(client, request, unfinished, versions, on_progress);
    const BlobFetch::Outcome outcome = fetch.run();
    received += fetch.received();
    if (outcome == BlobFetch::Outcome::Verified) {
      fetch.publish(cache.blob_path(metadata.etag));
      cache.place_file(metadata.etag, request.commit, request.file, true);
      return received;
    }
    if (outcome == BlobFetch::Outcome::Mismatch) {
      fetch.discard();
      if (++mismatches == kMaxMismatches) {
        base::fail(ErrorCode::Corrupt,
                   "{}: expected content with the checksum {}, found {} {} times; a copy at the Hub or on the way "
                   "is damaged, "
                   "try again later",
                   subject, metadata.etag, fetch.found_digest(), mismatches);
      }
    }
    if (round == kMaxRounds) {
      base::fail(ErrorCode::Network, "{}: expected one version of this file, found it {} {} times; try again later",
                 subject, outcome == BlobFetch::Outcome::Moved ? "refused by the store that holds it" : "changed",
                 round);
    }
    const auto again = client.find_file(request.commit, request.file);
    if (!again) base::fail(ErrorCode::NotFound, "{}: expected this file, found it gone while fetching it", subject);
    const bool same = again->etag == metadata.etag;
    if (outcome == BlobFetch::Outcome::Changed && same) versions = BlobFetch::Versions::Ignore;
    request.metadata = *again;
  }
}

}  // namespace kvfork::hub
