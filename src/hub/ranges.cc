// Fetching pieces of one file over several connections and writing them in order.
#include "hub/ranges.h"

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "hub/names.h"

namespace kvfork::hub {
namespace {

constexpr uint64_t kPieceBytes = 4 << 20;
constexpr uint64_t kPiecesPerConnection = 2;

std::optional<uint64_t> parse_number(std::string_view digits) {
  uint64_t value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || stop != digits.data() + digits.size()) return std::nullopt;
  return value;
}

class RangeFetch {
 public:
  RangeFetch(Session& session, const FileMetadata& file, uint64_t size, BlobWriter& writer, unsigned n_connections,
             const std::function<void()>& on_progress)
      : session_(session),
        file_(file),
        size_(size),
        writer_(writer),
        n_connections_(n_connections),
        on_progress_(on_progress),
        next_(writer.size()) {}

  uint64_t run() {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < n_connections_; ++i) threads.emplace_back([this] { work(); });
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
    writer_.flush();
    return received_;
  }

 private:
  void work() {
    const SigpipeGuard no_sigpipe;
    try {
      Client client(session_);
      while (const auto first = take_piece()) {
        const uint64_t last = std::min(size_, *first + kPieceBytes) - 1;
        std::string piece = fetch_piece(client, *first, last);
        if (piece.size() != last + 1 - *first) return give_up();
        put_piece(*first, std::move(piece));
      }
    } catch (...) {
      give_up(std::current_exception());
    }
  }

  // The next piece to fetch, once it is near enough to what is written.
  std::optional<uint64_t> take_piece() {
    std::unique_lock lock(mutex_);
    const uint64_t window = kPieceBytes * kPiecesPerConnection * n_connections_;
    changed_.wait(lock, [&] { return gave_up_ || next_ >= size_ || next_ < writer_.size() + window; });
    if (gave_up_ || next_ >= size_) return std::nullopt;
    const uint64_t first = next_;
    next_ += kPieceBytes;
    return first;
  }

  // The piece, or less of it when anything is not as it should be.
  std::string fetch_piece(Client& client, uint64_t first, uint64_t last) {
    std::string piece;
    bool begun = false;
    client.get_bytes(file_, first, last, [&](const Reply& head, std::string_view bytes) {
      if (!begun && !is_expected(head, first, last)) return false;
      begun = true;
      if (bytes.size() > last + 1 - first - piece.size()) return false;
      if (piece.empty()) piece.reserve(last + 1 - first);
      piece.append(bytes);
      const std::lock_guard lock(mutex_);
      return !gave_up_;
    });
    return piece;
  }

  bool is_expected(const Reply& head, uint64_t first, uint64_t last) const {
    const auto range = parse_content_range(head.find_header("content-range").value_or(""));
    return head.status == 206 && range && range->first == first && range->last == last &&
           range->total.value_or(size_) == size_ &&
           head.find_header("content-encoding").value_or("identity") == "identity" &&
           !has_changed(head, file_.etag);
  }

  void put_piece(uint64_t first, std::string piece) {
    const std::lock_guard lock(mutex_);
    received_ += piece.size();
    waiting_.emplace(first, std::move(piece));
    while (!gave_up_ && !waiting_.empty() && waiting_.begin()->first == writer_.size()) {
      writer_.append(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
    }
    session_.stall_timer.progress();
    on_progress_();
    changed_.notify_all();
  }

  void give_up(std::exception_ptr failure = nullptr) {
    const std::lock_guard lock(mutex_);
    gave_up_ = true;
    if (!failure_) failure_ = failure;
    changed_.notify_all();
  }

  Session& session_;
  const FileMetadata& file_;
  const uint64_t size_;
  BlobWriter& writer_;
  const unsigned n_connections_;
  const std::function<void()>& on_progress_;
  std::mutex mutex_;  // guards all below, and the writer
  std::condition_variable changed_;
  uint64_t next_;
  std::map<uint64_t, std::string> waiting_;
  uint64_t received_ = 0;
  bool gave_up_ = false;
  std::exception_ptr failure_;
};

}  // namespace

std::optional<ContentRange> parse_content_range(const std::string& text) {
  std::string_view rest = text;
  if (!rest.starts_with("bytes ")) return std::nullopt;
  rest.remove_prefix(6);
  const size_t dash = rest.find('-');
  const size_t slash = rest.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash) return std::nullopt;
  const auto first = parse_number(rest.substr(0, dash));
  const auto last = parse_number(rest.substr(dash + 1, slash - dash - 1));
  const auto total = parse_number(rest.substr(slash + 1));
  if (!first || !last || *last < *first || (!total && rest.substr(slash + 1) != "*")) return std::nullopt;
  return ContentRange{.first = *first, .last = *last, .total = total};
}

bool has_changed(const Reply& reply, const std::string& etag) {
  const auto linked = reply.find_header("x-linked-etag");
  const auto now = linked ? linked : reply.find_header("x-repo-commit") ? reply.find_header("etag") : std::nullopt;
  return now && normalize_etag(*now, "ETag") != etag;
}

uint64_t fetch_ranges(Session& session, const FileMetadata& file, uint64_t size, BlobWriter& writer,
                      unsigned n_connections, const std::function<void()>& on_progress) {
  return RangeFetch(session, file, size, writer, n_connections, on_progress).run();
}

}  // namespace kvfork::hub
