// Replacing text within the bound on what may come out.
#include "tokenizer/text_limit.h"

#include "tokenizer/unicode.h"

namespace kvfork::tokenizer {

std::string replace_all(std::string_view text, std::string_view from, std::string_view to, const TextLimit& limit) {
  std::string out;
  size_t done = 0;
  const auto put = [&](size_t end) {
    limit.check(out.size() + (end - done) + to.size());
    out.append(text.substr(done, end - done)).append(to);
  };
  if (from.empty()) {
    for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
      put(at);
      done = at;
    }
    put(text.size());
    return out;
  }
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, done)) {
    put(at);
    done = at + from.size();
  }
  return out.append(text.substr(done));
}

}  // namespace kvfork::tokenizer
