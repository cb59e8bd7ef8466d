// The global functions: Jinja's own, and the two that Transformers adds.
#include <map>

#include "jinja/builtins/clock.h"
#include "jinja/builtins/functions.h"
#include "jinja/values/iterate.h"
#include "jinja/values/operators.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"

namespace kvfork::jinja {
namespace {

constexpr int64_t kMaxRange = 100000;  // jinja2's sandbox

Value make_range(Call& c) {
  auto range = std::make_unique<Range>();
  size_t n = c.raw.positional.size();
  if (n == 0 || n > 3 || !c.raw.keywords.empty()) {
    c.rt.fail("TypeError", fmt::format("range expected 1 to 3 arguments, got {}", n));
  }
  auto argument = [&](size_t i) { return as_index(c.rt, c.raw.positional[i]); };
  range->start = n > 1 ? argument(0) : 0;
  range->stop = argument(n > 1 ? 1 : 0);
  range->step = n > 2 ? argument(2) : 1;
  if (range->step == 0) c.rt.fail("ValueError", "range() arg 3 must not be zero");
  auto distance =
      static_cast<unsigned __int128>(range->step > 0 ? static_cast<__int128>(range->stop) - range->start
                                                     : static_cast<__int128>(range->start) - range->stop);
  auto step = static_cast<unsigned __int128>(range->step > 0 ? static_cast<__int128>(range->step)
                                                             : -static_cast<__int128>(range->step));
  bool empty = range->step > 0 ? range->stop <= range->start : range->stop >= range->start;
  unsigned __int128 length = empty ? 0 : (distance - 1) / step + 1;
  if (length > kMaxRange) {
    c.rt.fail("OverflowError",
              fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange));
  }
  range->length = static_cast<int64_t>(length);
  return Value::object(c.rt.adopt(std::move(range)));
}

// dict(mapping or pairs, **keywords), which namespace() takes, too.
std::unique_ptr<Dict> make_entries(Call& c, std::string_view name) {
  auto dict = std::make_unique<Dict>();
  if (c.raw.positional.size() > 1) {
    c.rt.fail("TypeError", fmt::format("{} expected at most 1 argument, got {}", name, c.raw.positional.size()));
  }
  if (!c.raw.positional.empty()) {
    const Value& source = c.raw.positional[0];
    if (source.is(Kind::Undefined)) c.rt.fail_undefined(source);
    if (source.is(Kind::Dict)) {
      for (const auto& [key, value] : source.as<Dict>().entries) dict->set(key, value);
    } else {
      Cursor cursor(c.rt, source);
      for (Value item; cursor.next(c.rt, item);) {
        std::vector<Value> pair = collect(c.rt, item);
        if (pair.size() != 2) c.rt.fail("ValueError", "dictionary update sequence element must have length 2");
        if (!is_hashable(pair[0])) c.rt.fail("TypeError", fmt::format("unhashable type: '{}'", type_name(pair[0])));
        dict->set(pair[0], pair[1]);
      }
    }
  }
  for (const auto& [key, value] : c.raw.keywords) dict->set(c.rt.string(key), value);
  return dict;
}

Value make_dict(Call& c) {
  return c.rt.dict(make_entries(c, "dict"));
}

Value make_namespace(Call& c) {
  auto space = std::make_unique<Namespace>();
  // Not Runtime::dict: attributes are set later, so the bounds on one value are not taken here.
  space->attributes = Ref<Dict>(c.rt.adopt(make_entries(c, "namespace")));
  Value value = Value::object(c.rt.adopt(std::move(space)));
  c.rt.keep(value.as_object());
  return value;
}

Value make_cycler(Call& c) {
  if (c.raw.positional.empty()) c.rt.fail("RuntimeError", "at least one item has to be provided");
  auto cycler = std::make_unique<Cycler>();
  cycler->items = c.raw.positional;
  for (const Value& item : cycler->items) c.rt.add_part(*cycler, item);
  return Value::object(c.rt.adopt(std::move(cycler)));
}

Value make_joiner(Call& c) {
  auto joiner = std::make_unique<Joiner>();
  joiner->separator = c.given(0) ? c.args[0] : c.rt.string(", ");
  c.rt.add_part(*joiner, joiner->separator);
  return Value::object(c.rt.adopt(std::move(joiner)));
}

Value lipsum(Call& c) {
  c.rt.fail("TemplateRuntimeError", "lipsum() is not supported: its text is random");
}

Value raise_exception(Call& c) {
  c.rt.fail_raised(to_str(c.rt, c.args[0]));
}

Value strftime_now(Call& c) {
  if (!c.args[0].is(Kind::String)) {
    c.rt.fail("TypeError", fmt::format("strftime() argument 1 must be str, not {}", type_name(c.args[0])));
  }
  return c.rt.string(format_time(c.rt, c.rt.now(), c.args[0].text()));
}

Function make_class(const char* name, const char* class_name, const char* parameters, Invoke invoke) {
  Function function(name, parameters, invoke);
  function.is_class = true;
  function.class_name = class_name;
  return function;
}

}  // namespace

const Function* find_global(std::string_view name) {
  static const Function kGlobals[] = {
      {"range", "*", make_range},
      make_class("dict", "dict", "*", make_dict),
      {"lipsum", "*", lipsum},
      make_class("cycler", "jinja2.utils.Cycler", "*", make_cycler),
      make_class("joiner", "jinja2.utils.Joiner", "sep?", make_joiner),
      make_class("namespace", "jinja2.utils.Namespace", "*", make_namespace),
      {"raise_exception", "message", raise_exception},
      {"strftime_now", "format", strftime_now},
  };
  for (const Function& function : kGlobals) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

}  // namespace kvfork::jinja
