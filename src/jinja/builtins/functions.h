// Callables implemented here: filters, tests, globals and methods, with Python's rules for passing arguments.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/values/value.h"

namespace kvfork::jinja {

/// Arguments as a call passes them.
struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;

  const Value* find(std::string_view keyword) const noexcept;
  bool empty() const noexcept { return positional.empty() && keywords.empty(); }
};

/// One invocation: `self` is the value that a filter or test is applied to, or the receiver of a method.
struct Call {
  Runtime& rt;
  const Value& self;
  std::span<const Value> args;  ///< by parameter; Missing where not given
  CallArgs& raw;                ///< as passed, for functions that take any arguments

  bool given(size_t i) const noexcept { return !args[i].is_missing(); }
  bool given_value(size_t i) const noexcept { return given(i) && !args[i].is(Kind::None); }
  /// The argument as Python would take it where an int, a bool or a str is wanted. Fail with TypeError.
  int64_t integer(size_t i, int64_t otherwise) const;
  bool truth(size_t i, bool otherwise) const;
  std::string_view text(size_t i, std::string_view otherwise) const;
};

using Invoke = Value (*)(Call& call);

struct Function {
  /// `parameters`: names separated by spaces; "?" behind a name makes it optional, "/" ends those that have no
  /// keyword,
  /// "*" takes any arguments (in Call::raw).
  Function(const char* name, const char* parameters, Invoke invoke);

  struct Parameter {
    std::string name;
    bool optional = false;
    bool positional_only = false;
  };
  std::string name;
  std::vector<Parameter> parameters;
  bool takes_any = false;
  bool is_class = false;
  std::string class_name;
  Invoke invoke;
};

/// Null when there is no such name. `find_method` looks among the public methods of the value's type.
const Function* find_filter(std::string_view name);
const Function* find_test(std::string_view name);
const Function* find_global(std::string_view name);
const Function* find_method(const Value& value, std::string_view name);

/// Binds the arguments and runs the function. Fails with TypeError where they do not fit.
Value invoke(Runtime& rt, const Function& function, const Value& self, CallArgs& args);

/// Calls any value. Fails with TypeError when it is not callable.
Value call_value(Runtime& rt, const Value& callee, CallArgs& args);
bool is_callable(const Value& value) noexcept;

// The tables, one per file.
std::span<const Function> text_filters();
std::span<const Function> text_layout_filters();
std::span<const Function> number_filters();
std::span<const Function> sequence_filters();
std::span<const Function> select_filters();
std::span<const Function> pretty_filters();
std::span<const Function> text_methods();
std::span<const Function> text_search_methods();
std::span<const Function> dict_methods();
std::span<const Function> sequence_methods();
std::span<const Function> number_methods();
std::span<const Function> object_methods();

}  // namespace kvfork::jinja
