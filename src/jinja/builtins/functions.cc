// Finding functions by name, and binding arguments as Python does.
#include "jinja/builtins/functions.h"

#include <algorithm>
#include <array>
#include <map>

#include "jinja/evaluation/evaluator.h"
#include "jinja/values/compare.h"
#include "jinja/values/operators.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"

namespace kvfork::jinja {
namespace {

constexpr size_t kMaxParameters = 8;

std::map<std::string_view, const Function*> index(std::initializer_list<std::span<const Function>> tables) {
  std::map<std::string_view, const Function*> out;
  for (std::span<const Function> table : tables) {
    for (const Function& function : table) out.emplace(function.name, &function);
  }
  return out;
}

const Function* find(const std::map<std::string_view, const Function*>& functions, std::string_view name) {
  auto found = functions.find(name);
  return found == functions.end() ? nullptr : found->second;
}

std::string display_name(const Function& function) {
  return function.name + "()";
}

void bind_keyword(Runtime& rt, const Function& function, const std::string& name, const Value& value,
                  std::span<Value> bound) {
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    const auto& parameter = function.parameters[i];
    if (parameter.name != name || parameter.positional_only) continue;
    if (!bound[i].is_missing()) {
      rt.fail("TypeError", fmt::format("{} got multiple values for argument '{}'", display_name(function), name));
    }
    bound[i] = value;
    return;
  }
  rt.fail("TypeError", fmt::format("{} got an unexpected keyword argument '{}'", display_name(function), name));
}

void bind(Runtime& rt, const Function& function, const CallArgs& args, std::span<Value> bound) {
  if (args.positional.size() > bound.size()) {
    rt.fail("TypeError", fmt::format("{} takes at most {} arguments ({} given)", display_name(function),
                                     bound.size(), args.positional.size()));
  }
  std::copy(args.positional.begin(), args.positional.end(), bound.begin());
  for (const auto& [name, value] : args.keywords) bind_keyword(rt, function, name, value, bound);
  for (size_t i = 0; i < bound.size(); ++i) {
    if (bound[i].is_missing() && !function.parameters[i].optional) {
      rt.fail("TypeError", fmt::format("{} missing required argument '{}'", display_name(function),
                                       function.parameters[i].name));
    }
  }
}

}  // namespace

const Value* CallArgs::find(std::string_view keyword) const noexcept {
  for (const auto& [name, value] : keywords) {
    if (name == keyword) return &value;
  }
  return nullptr;
}

Function::Function(const char* name_in, const char* signature, Invoke invoke_in)
    : name(name_in), invoke(invoke_in) {
  std::string_view rest = signature;
  while (!rest.empty()) {
    size_t space = std::min(rest.find(' '), rest.size());
    std::string_view word = rest.substr(0, space);
    rest.remove_prefix(std::min(space + 1, rest.size()));
    if (word == "*") {
      takes_any = true;
    } else if (word == "/") {
      for (Parameter& parameter : parameters) parameter.positional_only = true;
    } else {
      bool optional = word.back() == '?';
      if (optional) word.remove_suffix(1);
      parameters.push_back({std::string(word), optional, false});
    }
  }
}

int64_t Call::integer(size_t i, int64_t otherwise) const {
  return given(i) ? as_index(rt, args[i]) : otherwise;
}

bool Call::truth(size_t i, bool otherwise) const {
  return given(i) ? truthy(rt, args[i]) : otherwise;
}

std::string_view Call::text(size_t i, std::string_view otherwise) const {
  if (!given(i)) return otherwise;
  if (!args[i].is(Kind::String)) {
    rt.fail("TypeError", fmt::format("argument {} must be str, not {}", i + 1, type_name(args[i])));
  }
  return args[i].text();
}

Value invoke(Runtime& rt, const Function& function, const Value& self, CallArgs& args) {
  std::array<Value, kMaxParameters> slots;
  std::span<Value> bound(slots.data(), function.parameters.size());
  if (!function.takes_any) bind(rt, function, args, bound);
  Call call{rt, self, bound, args};
  return function.invoke(call);
}

bool is_callable(const Value& value) noexcept {
  switch (value.kind()) {
    case Kind::Function:
    case Kind::Macro:
    case Kind::Loop:
    case Kind::Joiner:
    case Kind::Undefined:
      return true;
    default:
      return false;
  }
}

Value call_value(Runtime& rt, const Value& callee, CallArgs& args) {
  switch (callee.kind()) {
    case Kind::Function: {
      const auto& bound = callee.as<BoundFunction>();
      return invoke(rt, *bound.function, bound.self, args);
    }
    case Kind::Macro: {
      const auto& macro = callee.as<Macro>();
      return macro.evaluator->call_macro(macro, args);
    }
    case Kind::Loop: {
      const auto& loop = callee.as<Loop>();
      if (loop.evaluator == nullptr) {
        rt.fail("TypeError", "The loop must have the 'recursive' marker to be called recursively.");
      }
      return loop.evaluator->call_loop(loop, args);
    }
    case Kind::Joiner: {
      if (!args.empty()) rt.fail("TypeError", "Joiner.__call__() takes 1 positional argument");
      auto& joiner = callee.as<Joiner>();
      return std::exchange(joiner.used, true) ? joiner.separator : rt.string("");
    }
    case Kind::Undefined:
      rt.fail_undefined(callee);
    default:
      rt.fail("TypeError", fmt::format("'{}' object is not callable", type_name(callee)));
  }
}

const Function* find_filter(std::string_view name) {
  static const auto kFilters = index({text_filters(), text_layout_filters(), number_filters(), sequence_filters(),
                                      select_filters(), pretty_filters()});
  return find(kFilters, name);
}

const Function* find_method(const Value& value, std::string_view name) {
  static const auto kText = index({text_methods(), text_search_methods()});
  static const auto kDict = index({dict_methods()});
  static const auto kSequence = index({sequence_methods()});
  static const auto kNumber = index({number_methods()});
  static const auto kObject = index({object_methods()});
  switch (value.kind()) {
    case Kind::String:
      return find(kText, name);
    case Kind::Dict:
      return find(kDict, name);
    case Kind::List:
    case Kind::Tuple:
    case Kind::Range:
      return name == "copy" && !value.is(Kind::List) ? nullptr : find(kSequence, name);
    case Kind::Bool:
    case Kind::Int: {
      const Function* method = find(kNumber, name);
      return name == "is_integer" ? nullptr : method;
    }
    case Kind::Float: {
      const Function* method = find(kNumber, name);
      return name == "is_integer" || name == "conjugate" ? method : nullptr;
    }
    case Kind::Cycler:
    case Kind::Loop: {
      const Function* method = find(kObject, name);
      bool of_cycler = name == "next" || name == "reset";
      return of_cycler == value.is(Kind::Cycler) ? method : nullptr;
    }
    default:
      return nullptr;
  }
}

}  // namespace kvfork::jinja
