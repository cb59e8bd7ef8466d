// Times the template engine: render_bench TEMPLATE VARIABLES.json [REPEATS]. Prints one JSON object with
// microseconds: "parse" and "render" (medians), and the number of bytes rendered. bench/render.py sets it beside
// jinja2.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "jinja/builtins/clock.h"
#include "jinja/template.h"
#include "kvfork/error.h"

namespace {

using Clock = std::chrono::steady_clock;

template <typename Work>
double median_us(int repeats, const Work& work) {
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    auto start = Clock::now();
    work();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return times[static_cast<size_t>(repeats / 2)];
}

}  // namespace

int main(int argc, char** argv) {
  using namespace kvfork;
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s TEMPLATE VARIABLES.json [REPEATS]\n", argv[0]);
    return 2;
  }
  try {
    std::string source = base::read_file(argv[1]);
    auto variables = nlohmann::ordered_json::parse(base::read_file(argv[2]));
    int repeats = argc > 3 ? std::max(1, std::atoi(argv[3])) : 200;
    jinja::RenderInput input;
    for (const auto& [name, value] : variables.items()) input.variables.emplace_back(name, value.dump());
    input.now = jinja::parse_local_time("2031-01-05T06:07:08");
    jinja::Template parsed = jinja::Template::parse(source, argv[1]);
    size_t n_bytes = 0;
    double parse_us = median_us(repeats, [&] { jinja::Template::parse(source, argv[1]); });
    double render_us = median_us(repeats, [&] { n_bytes = parsed.render(input).text.size(); });
    std::printf("{\"parse\": %.2f, \"render\": %.2f, \"bytes\": %zu}\n", parse_us, render_us, n_bytes);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
