// str() and repr() of every kind of value.
#include "jinja/values/printing.h"

#include <charconv>
#include <cmath>

#include "base/number.h"
#include "jinja/builtins/functions.h"
#include "jinja/evaluation/loop.h"
#include "jinja/evaluation/macro.h"
#include "jinja/values/runtime.h"
#include "jinja/values/text.h"

namespace kvfork::jinja {
namespace {

void append_repr_char(std::string& out, char32_t c, char quote) {
  if (c == static_cast<char32_t>(quote) || c == '\\') {
    out.push_back('\\');
    out.push_back(static_cast<char>(c));
  } else if (c == '\n') {
    out += "\\n";
  } else if (c == '\r') {
    out += "\\r";
  } else if (c == '\t') {
    out += "\\t";
  } else if (is_printable(c)) {
    append_char(out, c);
  } else {
    append_escape(out, c);
  }
}

void append_repr_text(std::string& out, std::string_view text) {
  bool has_single = text.find('\'') != std::string_view::npos;
  bool has_double = text.find('"') != std::string_view::npos;
  char quote = has_single && !has_double ? '"' : '\'';
  out.push_back(quote);
  for (size_t at = 0; at < text.size();) append_repr_char(out, next_char(text, at), quote);
  out.push_back(quote);
}

void append_items(Runtime& rt, std::string& out, const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(rt, out, items[i]);
  }
}

void append_dict(Runtime& rt, std::string& out, const Dict& dict) {
  out.push_back('{');
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(rt, out, dict.entries[i].first);
    out += ": ";
    append_repr(rt, out, dict.entries[i].second);
  }
  out.push_back('}');
}

void append_view(Runtime& rt, std::string& out, const View& view) {
  static const char* const kNames[] = {"dict_keys([", "dict_values([", "dict_items(["};
  out += kNames[static_cast<size_t>(view.part)];
  bool first = true;
  for (const auto& [key, value] : view.dict->entries) {
    if (!first) out += ", ";
    first = false;
    if (view.part == View::Part::Items) {
      out.push_back('(');
      append_repr(rt, out, key);
      out += ", ";
      append_repr(rt, out, value);
      out.push_back(')');
    } else {
      append_repr(rt, out, view.part == View::Part::Keys ? key : value);
    }
  }
  out += "])";
}

void append_function(std::string& out, const BoundFunction& bound) {
  if (bound.self.is_missing()) {
    out += bound.function->is_class ? "<class '" : "<function ";
    out += bound.function->is_class ? bound.function->class_name : bound.function->name;
    out += bound.function->is_class ? "'>" : ">";
  } else {
    out += fmt::format("<built-in method {} of {} object>", bound.function->name, type_name(bound.self));
  }
}

void append_object(Runtime& rt, std::string& out, const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
      out += "Undefined";
      return;
    case Kind::BigInt:
      out += value.as<BigInt>().digits;
      return;
    case Kind::String: {
      bool markup = value.as<String>().markup;
      if (markup) out += "Markup(";
      append_repr_text(out, value.text());
      if (markup) out.push_back(')');
      return;
    }
    case Kind::List:
      out.push_back('[');
      append_items(rt, out, value.as<List>().items);
      out.push_back(']');
      return;
    case Kind::Tuple:
      out.push_back('(');
      append_items(rt, out, value.as<List>().items);
      out += value.as<List>().items.size() == 1 ? ",)" : ")";
      return;
    case Kind::Dict:
      append_dict(rt, out, value.as<Dict>());
      return;
    case Kind::View:
      append_view(rt, out, value.as<View>());
      return;
    case Kind::Range: {
      const auto& range = value.as<Range>();
      out += range.step == 1 ? fmt::format("range({}, {})", range.start, range.stop)
                             : fmt::format("range({}, {}, {})", range.start, range.stop, range.step);
      return;
    }
    case Kind::Namespace:
      out += "<Namespace ";
      append_dict(rt, out, *value.as<Namespace>().attributes);
      out.push_back('>');
      return;
    case Kind::Macro:
      out += "<Macro ";
      out += value.as<Macro>().name.is(Kind::None) ? "anonymous" : repr_text(value.as<Macro>().name.text());
      out.push_back('>');
      return;
    case Kind::Function:
      append_function(out, value.as<BoundFunction>());
      return;
    case Kind::Loop:
      out += fmt::format("<LoopContext {}/{}>", value.as<Loop>().index0 + 1, value.as<Loop>().length(rt));
      return;
    case Kind::Iterator:
      out += fmt::format("<{} object>", value.as<Iterator>().name);
      return;
    default:
      out += fmt::format("<{} object>", full_type_name(value));
      return;
  }
}

}  // namespace

std::string_view type_name(const Value& value) noexcept {
  switch (value.kind()) {
    case Kind::Missing:
      return "missing";
    case Kind::None:
      return "NoneType";
    case Kind::Bool:
      return "bool";
    case Kind::Int:
    case Kind::BigInt:
      return "int";
    case Kind::Float:
      return "float";
    case Kind::Undefined:
      return "Undefined";
    case Kind::String:
      return value.as<String>().markup ? "Markup" : "str";
    case Kind::List:
      return "list";
    case Kind::Tuple:
      return value.as<List>().group ? "_GroupTuple" : "tuple";
    case Kind::Dict:
      return "dict";
    case Kind::View: {
      static const std::string_view kNames[] = {"dict_keys", "dict_values", "dict_items"};
      return kNames[static_cast<size_t>(value.as<View>().part)];
    }
    case Kind::Range:
      return "range";
    case Kind::Iterator:
      return "generator";
    case Kind::Namespace:
      return "Namespace";
    case Kind::Macro:
      return "Macro";
    case Kind::Function: {
      const auto& bound = value.as<BoundFunction>();
      if (bound.function->is_class) return "type";
      return bound.self.is_missing() ? "function" : "builtin_function_or_method";
    }
    case Kind::Loop:
      return "LoopContext";
    case Kind::Cycler:
      return "Cycler";
    case Kind::Joiner:
      return "Joiner";
    case Kind::Frame:
      return "frame";
  }
  return "object";
}

std::string_view full_type_name(const Value& value) noexcept {
  switch (value.kind()) {
    case Kind::Undefined:
      return "jinja2.runtime.Undefined";
    case Kind::Namespace:
      return "jinja2.utils.Namespace";
    case Kind::Macro:
      return "jinja2.runtime.Macro";
    case Kind::Loop:
      return "jinja2.runtime.LoopContext";
    case Kind::Cycler:
      return "jinja2.utils.Cycler";
    case Kind::Joiner:
      return "jinja2.utils.Joiner";
    case Kind::String:
      return value.as<String>().markup ? "markupsafe.Markup" : "str";
    default:
      return type_name(value);
  }
}

std::string repr_text(std::string_view text) {
  std::string out;
  append_repr_text(out, text);
  return out;
}

std::string to_str(Runtime& rt, const Value& value) {
  std::string out;
  append_str(rt, out, value);
  return out;
}

std::string to_repr(Runtime& rt, const Value& value) {
  std::string out;
  append_repr(rt, out, value);
  return out;
}

void append_str(Runtime& rt, std::string& out, const Value& value) {
  if (value.is(Kind::String)) {
    rt.reserve(out.size() + value.text().size());
    out.append(value.text());
  } else if (!value.is(Kind::Undefined)) {
    append_repr(rt, out, value);
  }
}

void append_repr(Runtime& rt, std::string& out, const Value& value) {
  Runtime::Deeper deeper(rt);
  rt.step();
  rt.reserve(out.size());
  switch (value.kind()) {
    case Kind::Missing:
      out += "missing";
      break;
    case Kind::None:
      out += "None";
      break;
    case Kind::Bool:
      out += value.as_bool() ? "True" : "False";
      break;
    case Kind::Int:
      out += std::to_string(value.as_int());
      break;
    case Kind::Float:
      out += base::print_double(value.as_real());
      break;
    default:
      append_object(rt, out, value);
  }
}

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

}  // namespace kvfork::jinja
