// Which bytes of a rendering are control tokens that the request's own words spell: each is marked in the words
// with a noncharacter behind its first character, and the marks are taken out of the rendering again.
#include <algorithm>
#include <bitset>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "kvfork/chat.h"

namespace kvfork {
namespace {

// U+FDD0 to U+FDEF: characters that no text should hold, that no case mapping, strip or normalization touches.
constexpr size_t kNoncharacters = 32;
constexpr std::string_view kLead = "\xEF\xB7";

std::string noncharacter(size_t index) {
  return std::string(kLead) + static_cast<char>(0x90 + index);
}

// How a template that asks for ASCII writes it.
std::string escaped_noncharacter(size_t index) {
  return std::string("\\ufd") + (index < 16 ? 'd' : 'e') + "0123456789abcdef"[index % 16];
}

class Words {
 public:
  explicit Words(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void read(const std::string& text) {
    ControlTokenScan scan = tokenizer_.scan_control_tokens(text);
    needs_marks_ = needs_marks_ || !scan.first_characters.empty();
    for (const int32_t id : scan.found) {
      std::string token(tokenizer_.piece(id));
      if (std::find(tokens_.begin(), tokens_.end(), token) == tokens_.end()) tokens_.push_back(std::move(token));
    }
    note_noncharacters(text);
  }

  void note_noncharacters(std::string_view text) {
    for (size_t at = text.find(kLead); at != std::string_view::npos; at = text.find(kLead, at + 1)) {
      const size_t index = at + 2 < text.size()
                               ? static_cast<size_t>(static_cast<unsigned char>(text[at + 2])) - 0x90
                               : kNoncharacters;
      if (index < kNoncharacters) used_.set(index);
    }
    if (text.find("\\ufd") == std::string_view::npos) return;
    for (size_t index = 0; index < kNoncharacters; ++index) {
      if (text.find(escaped_noncharacter(index)) != std::string_view::npos) used_.set(index);
    }
  }

  bool needs_marks() const { return needs_marks_; }
  const std::vector<std::string>& tokens() const { return tokens_; }

  size_t choose_noncharacter() const {
    for (size_t index = 0; index < kNoncharacters; ++index) {
      if (!used_.test(index)) return index;
    }
    base::fail(ErrorCode::Unsupported,
               "literal text: expected one of the noncharacters U+FDD0 to U+FDEF to be free, found all of them in "
               "the messages");
  }

 private:
  const Tokenizer& tokenizer_;
  bool needs_marks_ = false;
  std::vector<std::string> tokens_;
  std::bitset<kNoncharacters> used_;
};

void put_marks(const Tokenizer& tokenizer, std::string_view mark, std::string& text) {
  const ControlTokenScan scan = tokenizer.scan_control_tokens(text);
  if (scan.first_characters.empty()) return;
  std::string marked;
  size_t done = 0;
  for (const ByteRange& range : scan.first_characters) {
    marked.append(text, done, range.end - done).append(mark);
    done = range.end;
  }
  text = marked.append(text, done);
}

size_t character_before(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && (static_cast<unsigned char>(text[--begin]) & 0xC0) == 0x80) {
  }
  return begin;
}

// Takes the marks out; what stood before each is a range.
std::vector<ByteRange> take_marks(std::string& text, size_t noncharacter_index) {
  const std::string mark = noncharacter(noncharacter_index);
  const std::string escape = escaped_noncharacter(noncharacter_index);
  std::vector<ByteRange> ranges;
  std::string bare;
  for (size_t done = 0; done < text.size();) {
    const size_t at = std::min(text.find(mark, done), text.find(escape, done));
    bare.append(text, done, at == std::string::npos ? at : at - done);
    if (at == std::string::npos) break;
    done = at + (text[at] == '\\' ? escape.size() : mark.size());
    const ByteRange range{character_before(bare), bare.size()};
    if (range.begin == range.end) continue;
    if (!ranges.empty() && ranges.back().end >= range.begin) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  text = std::move(bare);
  return ranges;
}

std::string joined(const std::vector<std::string>& tokens) {
  std::string out;
  for (const std::string& token : tokens) out += (out.empty() ? "'" : ", '") + token + "'";
  return out.empty() ? "the beginning of one" : out;
}

}  // namespace

RenderedChat ChatTemplate::render(const ChatRequest& request, const Tokenizer& tokenizer,
                                  UserText user_text) const {
  Words words(tokenizer);
  RenderedChat rendered;
  rendered.text = render_with(request, [&](std::string& text) { words.read(text); });
  rendered.control_tokens = words.tokens();
  if (user_text == UserText::AsTransformers || !words.needs_marks()) return rendered;

  words.note_noncharacters(rendered.text);
  const size_t index = words.choose_noncharacter();
  const std::string mark = noncharacter(index);
  std::string marked = render_with(request, [&](std::string& text) { put_marks(tokenizer, mark, text); });
  rendered.literal_ranges = take_marks(marked, index);
  if (marked != rendered.text)
    base::fail(ErrorCode::Unsupported,
               "literal text: expected the chat template to take the messages as they are, found that it looks at "
               "the control tokens "
               "in them ({}), so that they cannot be told from its own; take them out of the messages, or have "
               "them read as control "
               "tokens",
               joined(words.tokens()));
  return rendered;
}

}  // namespace kvfork
