// A parsed template, ready to render.
//
// Immutable; any number of threads may render one Template at once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/values/runtime.h"

namespace kvfork::jinja {

using TextHook = std::function<void(std::string&)>;

/// What the template sees beside the globals: names with JSON text. A name given twice keeps its last value.
struct RenderInput {
  std::vector<std::pair<std::string, std::string>> variables;
  LocalTime now;
  bool check_conversation =
      false;                 ///< messages, tools and documents must have the shape that Transformers asks for
  std::string continue_tag;  ///< not empty: put behind the text of the last message
  TextHook on_text;          ///< may change each string of messages, tools and documents, keys included
};

struct Rendering {
  std::string text;
  std::string final_message;  ///< with a continue_tag: the text it was put behind
};

class Template {
 public:
  /// Fails with Error{Template} "SUBJECT: line L, column C: ..." at a syntax error, Error{Unsupported} naming a tag
  /// that loads other templates, Error{Limit} for a source that is too large or too deep.
  static Template parse(std::string_view source, std::string_view subject);

  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  /// Fails with Error{Template} where the template fails or raises, Error{Limit} where it passes a bound,
  /// Error{Corrupt} for a variable that is not JSON, Error{InvalidArgument} for a conversation of the wrong shape.
  Rendering render(const RenderInput& input, const Limits& limits = {}) const;

 private:
  struct State;
  explicit Template(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

}  // namespace kvfork::jinja
