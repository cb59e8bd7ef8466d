// Filters that apply a filter or a test to every item: map, select, reject, selectattr, rejectattr. All are lazy.
#include <utility>

#include "jinja/builtins/filters.h"
#include "jinja/builtins/functions.h"
#include "jinja/values/iterate.h"
#include "jinja/values/operators.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"

namespace kvfork::jinja {
namespace {

const Function* find_named(Runtime& rt, const Value& name, bool filter) {
  std::string text = name.is(Kind::String) ? std::string(name.text()) : to_str(rt, name);
  const Function* found = filter ? find_filter(text) : find_test(text);
  if (found == nullptr) {
    rt.fail("TemplateRuntimeError", fmt::format("No {} named '{}'.", filter ? "filter" : "test", text));
  }
  return found;
}

// Common to both: the source is read, and the arguments are looked at, when the first item is asked for.
struct Lazy : Iterator {
  Lazy(Value source_in, CallArgs args_in)
      : Iterator("generator"), source(std::move(source_in)), args(std::move(args_in)) {}

  bool next(Runtime& rt, Value& item) override {
    if (!started) {
      started = true;
      if (truthy(rt, source)) {
        prepare(rt);
        cursor.emplace(rt, source);
      }
    }
    return cursor && advance(rt, item);
  }

  virtual void prepare(Runtime& rt) = 0;
  virtual bool advance(Runtime& rt, Value& item) = 0;

  Value source;
  CallArgs args;
  std::optional<Cursor> cursor;
  bool started = false;
};

struct Mapped : Lazy {
  using Lazy::Lazy;

  void prepare(Runtime& rt) override {
    if (args.positional.empty() && args.find("attribute") != nullptr) {
      for (const auto& [keyword, value] : args.keywords) {
        if (keyword == "attribute") {
          path.emplace(rt, value);
        } else if (keyword == "default") {
          fallback = value;
        } else {
          rt.fail("FilterArgumentError", "Unexpected keyword argument " + repr_text(keyword));
        }
      }
      return;
    }
    if (args.positional.empty()) rt.fail("FilterArgumentError", "map requires a filter argument");
    filter = find_named(rt, args.positional[0], true);
    args.positional.erase(args.positional.begin());
  }

  bool advance(Runtime& rt, Value& item) override {
    Value in;
    if (!cursor->next(rt, in)) return false;
    if (path) {
      item = path->get(rt, in, fallback);
    } else {
      CallArgs copy = args;
      item = invoke(rt, *filter, in, copy);
    }
    return true;
  }

  std::optional<AttributePath> path;
  Value fallback;
  const Function* filter = nullptr;
};

struct Selected : Lazy {
  Selected(Value source_in, CallArgs args_in, bool keep_in, bool by_attribute_in)
      : Lazy(std::move(source_in), std::move(args_in)), keep(keep_in), by_attribute(by_attribute_in) {}

  void prepare(Runtime& rt) override {
    if (by_attribute) {
      if (args.positional.empty()) rt.fail("FilterArgumentError", "Missing parameter for attribute name");
      path.emplace(rt, args.positional[0]);
      args.positional.erase(args.positional.begin());
    }
    if (args.positional.empty()) return;
    test = find_named(rt, args.positional[0], false);
    args.positional.erase(args.positional.begin());
  }

  bool advance(Runtime& rt, Value& item) override {
    for (Value in; cursor->next(rt, in);) {
      Value subject = path ? path->get(rt, in) : in;
      if (test != nullptr) {
        CallArgs copy = args;
        subject = invoke(rt, *test, subject, copy);
      }
      if (truthy(rt, subject) != keep) continue;
      item = in;
      return true;
    }
    return false;
  }

  bool keep;
  bool by_attribute;
  std::optional<AttributePath> path;
  const Function* test = nullptr;
};

template <typename T, typename... Args>
Value make_lazy(Call& c, Args... arguments) {
  auto lazy = std::make_unique<T>(c.self, std::move(c.raw), arguments...);
  c.rt.add_part(*lazy, lazy->source);
  for (const Value& argument : lazy->args.positional) c.rt.add_part(*lazy, argument);
  for (const auto& [name, argument] : lazy->args.keywords) c.rt.add_part(*lazy, argument);
  return Value::object(c.rt.adopt(std::move(lazy)));
}

Value map(Call& c) {
  return make_lazy<Mapped>(c);
}

template <bool kKeep, bool kByAttribute>
Value select(Call& c) {
  return make_lazy<Selected>(c, kKeep, kByAttribute);
}

}  // namespace

std::span<const Function> select_filters() {
  static const Function kFilters[] = {
      {"map", "*", map},
      {"select", "*", select<true, false>},
      {"reject", "*", select<false, false>},
      {"selectattr", "*", select<true, true>},
      {"rejectattr", "*", select<false, true>},
  };
  return kFilters;
}

}  // namespace kvfork::jinja
