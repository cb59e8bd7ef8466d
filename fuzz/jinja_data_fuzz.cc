// A conversation from strangers: JSON of any shape, through templates that touch all of it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "jinja/builtins/clock.h"
#include "jinja/template.h"
#include "kvfork/error.h"

namespace {

constexpr const char* kTemplates[] = {
    "{{ x }}{{ x|tojson }}{{ x|string|length }}",
    "{{ x|tojson(indent=2, sort_keys=true) }}",
    "{% for m in x %}{{ m.role ~ m['content'] }}{% if m.content is string %}{{ m.content|trim|upper }}{% endif "
    "%}{% endfor %}",
    "{% for k, v in x.items() %}{{ k }}={{ v }}{{ loop.nextitem }}{% endfor %}",
    "{{ x|list|sort|join(',') }}{{ x|length }}",
    "{{ x.split()[0].strip('ab')|replace('a', x)|truncate(20) }}{{ '%s|%r' % (x, x) }}{{ x[1:-1:2] }}",
    "{{ x|pprint }}{{ x|dictsort }}",
    "{{ x|int + x|float|round(2) }}{{ x == x }}{{ [x] == [x] }}{{ x in [x] }}",
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvfork::jinja;
  static const std::vector<Template> kParsed = [] {
    std::vector<Template> parsed;
    for (const char* source : kTemplates) parsed.push_back(Template::parse(source, "template"));
    return parsed;
  }();
  RenderInput input;
  input.variables = {{"x", std::string(reinterpret_cast<const char*>(data), size)}};
  Limits limits;
  limits.steps = 100000;
  limits.memory = size_t{16} << 20;
  limits.output = size_t{1} << 20;
  for (const Template& one : kParsed) {
    try {
      one.render(input, limits);
    } catch (const kvfork::Error&) {
    }
  }
  return 0;
}
