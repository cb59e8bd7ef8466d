// Turns ids into text piece by piece and holds back what may become a stop string.

#include "kvfork/answer_stream.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace kvfork {

AnswerStream::AnswerStream(const Tokenizer& tokenizer, std::span<const std::string> stop)
    : stream_(tokenizer, SpecialTokens::Skip) {
  base::only_errors([&] {
    stop_.assign(stop.begin(), stop.end());
    for (const std::string& text : stop_) {
      if (text.empty()) base::fail(ErrorCode::InvalidArgument, "stop: expected text, found an empty string");
      longest_stop_ = std::max(longest_stop_, text.size());
      const auto id = tokenizer.find_id(text);
      if (id && tokenizer.is_special(*id)) stop_ids_.push_back(*id);
    }
  });
}

std::string AnswerStream::push(int32_t id) {
  return base::only_errors([&]() -> std::string {
    if (stopped_) return {};
    if (std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end()) {
      std::string rest = finish();
      stopped_ = true;
      return rest;
    }
    return take(stream_.push(id));
  });
}

std::string AnswerStream::finish() {
  return base::only_errors([&]() -> std::string {
    if (stopped_) return {};
    std::string text = take(stream_.finish());
    if (!stopped_) text += std::exchange(held_, {});
    return text;
  });
}

// Adds text to what is held, and gives out what no stop string can reach any more.
std::string AnswerStream::take(std::string_view text) {
  if (stop_.empty()) return std::string(text);
  held_ += text;
  size_t cut = std::string::npos;
  for (const std::string& stop : stop_) cut = std::min(cut, held_.find(stop));
  stopped_ = cut != std::string::npos;
  std::string certain = held_.substr(0, stopped_ ? cut : held_.size() - longest_possible_start());
  held_.erase(0, certain.size());
  return certain;
}

// Bytes at the end of the held text with which a stop string begins.
size_t AnswerStream::longest_possible_start() const {
  for (size_t n = std::min(held_.size(), longest_stop_); n > 0; --n) {
    const std::string_view end = std::string_view(held_).substr(held_.size() - n);
    for (const std::string& stop : stop_) {
      if (n < stop.size() && stop.starts_with(end)) return n;
    }
  }
  return 0;
}

std::string answer_text(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                        std::span<const std::string> stop) {
  return base::only_errors([&] {
    AnswerStream stream(tokenizer, stop);
    std::string text;
    for (const int32_t id : ids) text += stream.push(id);
    return text + stream.finish();
  });
}

}  // namespace kvfork
