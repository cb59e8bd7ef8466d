// What both ways of formatting share.
#include "jinja/values/formatting.h"

#include <algorithm>
#include <cmath>

#include "jinja/values/runtime.h"
#include "jinja/values/text.h"

namespace kvfork::jinja {

std::string format_real(Runtime& rt, double value, char type, int64_t precision, bool alternate) {
  if (std::isnan(value)) return type >= 'A' && type <= 'Z' ? "NAN" : "nan";
  if (std::isinf(value)) {
    std::string text = value < 0 ? "-inf" : "inf";
    return type >= 'A' && type <= 'Z' ? to_upper(text) : text;
  }
  if (precision > INT32_MAX - 1000) rt.fail("ValueError", "precision too big");
  rt.reserve(static_cast<size_t>(precision) + 400);
  const std::string format = fmt::format("{{:{}.{}{}}}", alternate ? "#" : "", precision, type);
  std::string text = fmt::format(fmt::runtime(format), value);
  if (!alternate || (type | 0x20) != 'g') return text;
  // fmt writes a digit behind the point also where the precision leaves none.
  const size_t end = std::min(text.find_first_of("eE"), text.size());
  const size_t first = text.find_first_of("123456789");
  if (first < end) {
    const size_t n_digits = end - first - (text.find('.') > first ? 1 : 0);
    if (n_digits > static_cast<size_t>(std::max<int64_t>(precision, 1))) text.erase(end - 1, 1);
  }
  return text;
}

std::string ascii_only(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_char(text, at);
    c < 0x80 ? out.push_back(static_cast<char>(c)) : append_escape(out, c);
  }
  return out;
}

}  // namespace kvfork::jinja
