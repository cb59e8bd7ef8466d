// JSON texts as values of a rendering.
#include "base/error.h"
#include "base/json_tree.h"
#include "jinja/values/json.h"
#include "jinja/values/runtime.h"

namespace kvfork::jinja {
namespace {

using base::Json;
using base::JsonKind;

constexpr size_t kMaxDigits = 4300;  // Python's bound for integers as text

class Converter {
 public:
  Converter(Runtime& rt, const std::function<void(std::string&)>& on_text) : rt_(rt), on_text_(on_text) {}

  // Recursion ends where the reader's bound on depth does.
  Value convert(const Json& json) {
    rt_.step();
    switch (json.kind()) {
      case JsonKind::Null:
        return Value::none();
      case JsonKind::False:
      case JsonKind::True:
        return Value::boolean(json.as_bool());
      case JsonKind::Integer:
        return integer(json);
      case JsonKind::Real:
        return Value::real(json.as_double());
      case JsonKind::String:
        return string(json.as_string());
      case JsonKind::List:
        return list(json);
      case JsonKind::Object:
        break;
    }
    auto dict = std::make_unique<Dict>();
    for (const auto& [key, value] : json.members()) {
      Value name = string(key);
      dict->set(std::move(name), convert(value));
    }
    return rt_.dict(std::move(dict));
  }

 private:
  Value integer(const Json& json) {
    if (const auto value = json.to<int64_t>()) return Value::integer(*value);
    if (json.raw().size() > kMaxDigits)
      base::fail(ErrorCode::Corrupt, "{}: expected an integer of at most {} digits, found {}", json.where(),
                 kMaxDigits, json.raw().size());
    return rt_.big_integer(std::string(json.raw()));
  }

  Value string(std::string_view text) {
    std::string own(text);
    if (on_text_) on_text_(own);
    return rt_.string(std::move(own));
  }

  Value list(const Json& json) {
    std::vector<Value> items;
    for (const Json item : json.items()) {
      items.push_back(convert(item));
      rt_.reserve(items.size() * sizeof(Value));
    }
    return rt_.list(std::move(items));
  }

  Runtime& rt_;
  const std::function<void(std::string&)>& on_text_;
};

}  // namespace

Value read_json(Runtime& rt, std::string_view text, std::string_view subject,
                const std::function<void(std::string&)>& on_text) {
  base::JsonRules rules = base::JsonRules::python();
  rules.max_depth = rt.limits().nesting + 1;
  base::JsonProblem problem;
  const auto tree = base::JsonTree::try_parse(std::string(text), subject, rules, &problem);
  if (!tree && problem.is_too_deep)
    base::fail(ErrorCode::Limit, "{}: expected at most {} values inside one another, found more at byte {}",
               subject, rt.limits().nesting, problem.position);
  if (!tree)
    base::fail(ErrorCode::Corrupt, "{}: not JSON at byte {}: expected {}", subject, problem.position,
               problem.expected);
  return Converter(rt, on_text).convert(tree->root());
}

}  // namespace kvfork::jinja
