// kvfork as a worker of bench/peers: holds one model and times what it is asked, one JSON line in, one out
// (bench/peers_worker.py says what the operations are).
//
//   peer_worker MODEL float32|bfloat16 THREADS [KERNEL_SET]
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mapped_file.h"
#include "bench/kernels/probe.h"
#include "kvfork/batch.h"
#include "kvfork/context.h"
#include "kvfork/error.h"
#include "kvfork/fork.h"
#include "kvfork/generate.h"
#include "kvfork/model.h"

namespace kvfork::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

double milliseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

int32_t best_of(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

class Worker {
 public:
  Worker(const std::string& path, const ModelOptions& options) : path_(path) {
    const auto start = Clock::now();
    model_ = Model::open(path, options);
    open_ms_ = milliseconds(start, Clock::now());
  }

  Json about() const {
    const ModelInfo& info = model_->info();
    return {{"ms", open_ms_}, {"kernel_set", info.kernel_set}, {"threads", info.n_threads}};
  }

  Json answer(const Json& asked) {
    const std::string op = asked.at("op");
    if (op == "probe") return probe();
    const Ids ids = asked.value("ids", Ids());
    if (op == "prefill") return prefill(ids);
    if (op == "context") return hold(asked.at("context"), ids);
    const std::string name = asked.at("context");
    if (op == "decode") return decode(name, ids, decoding(asked));
    if (op == "hit") return hit(*contexts_.at(name), ids);
    if (op == "fork") return fork_alone(*contexts_.at(name));
    if (op == "together") return together(*contexts_.at(name), ids, asked.at("new"));
    if (op == "compare") return compare(*contexts_.at(name), ids, asked.at("new"));
    throw Error(ErrorCode::InvalidArgument, "op: unknown: " + op);
  }

 private:
  static GenerateOptions decoding(const Json& asked) {
    GenerateOptions options{.max_new_tokens = asked.at("new").get<size_t>() + 1};
    if (asked.value("speculate", "off") == "lookup") options.speculation = Speculation::Lookup;
    options.sampling.temperature = asked.value("temperature", 0.0);
    options.sampling.seed = asked.value("seed", 0u);
    return options;
  }

  Json prefill(const Ids& ids) const {
    const auto start = Clock::now();
    const auto context = model_->prefill(ids);
    return {{"ms", milliseconds(start, Clock::now())}};
  }

  Json hold(const std::string& name, const Ids& ids) {
    contexts_[name] = model_->prefill(ids);
    return Json::object();
  }

  Json decode(const std::string& name, const Ids& ids, const GenerateOptions& options) const {
    Fork fork = name.empty() ? model_->start() : contexts_.at(name)->fork_unchecked();
    fork.append(ids);
    std::vector<Clock::time_point> times;
    const Generation generation = generate(fork, options, [&](int32_t) {
      times.push_back(Clock::now());
      return true;
    });
    std::vector<double> steps;
    for (size_t i = 1; i < times.size(); ++i) steps.push_back(milliseconds(times[i - 1], times[i]));
    return {
        {"ms", median(steps)},
        {"mean_ms", milliseconds(times.front(), times.back()) / static_cast<double>(options.max_new_tokens - 1)},
        {"ids", generation.ids},
        {"passes", generation.n_passes}};
  }

  static Json hit(const Context& context, const Ids& ids) {
    const auto start = Clock::now();
    Fork fork = context.fork_unchecked();
    fork.append(ids);
    const int32_t first = best_of(fork.logits());
    return {{"ms", milliseconds(start, Clock::now())}, {"id", first}};
  }

  static Json fork_alone(const Context& context) {
    std::vector<double> times;
    for (int i = 0; i < 100; ++i) {
      const auto start = Clock::now();
      const Fork fork = context.fork_unchecked();
      times.push_back(milliseconds(start, Clock::now()));
    }
    return {{"ms", median(times)}};
  }

  // Each id starts a fork; a step is over when every fork has its next id.
  static Json together(const Context& context, const Ids& ids, size_t n_new) {
    std::vector<BatchRequest> requests;
    for (const int32_t id : ids) {
      Ids whole(context.ids().begin(), context.ids().end());
      whole.push_back(id);
      requests.push_back({.request = Request::unchecked(std::move(whole), context.size()),
                          .options = {.max_new_tokens = n_new + 1}});
    }
    std::vector<Clock::time_point> ends;
    size_t n_ids = 0;
    answer_all(context, requests, {.max_width = ids.size()},
               {.on_answer =
                    [](size_t, const BatchAnswer& answer) {
                      if (answer.error) throw Error(*answer.error);
                    },
                .on_token =
                    [&](size_t, int32_t) {
                      if (++n_ids % ids.size() == 0) ends.push_back(Clock::now());
                      return true;
                    }});
    std::vector<double> steps;
    for (size_t i = 1; i < ends.size(); ++i) steps.push_back(milliseconds(ends[i - 1], ends[i]));
    return {{"per_s", 1e3 * static_cast<double>(ids.size()) / median(steps)}};
  }

  Json compare(const Context& context, const Ids& ids, size_t n_new) const {
    Fork cached = context.fork_unchecked();
    cached.append(ids);
    Ids whole(context.ids().begin(), context.ids().end());
    whole.insert(whole.end(), ids.begin(), ids.end());
    Fork uncached = model_->start();
    uncached.append(whole);
    float most = 0;
    bool bits_differ = false;
    const auto add = [&](std::span<const float> a, std::span<const float> b) {
      bits_differ = bits_differ || std::memcmp(a.data(), b.data(), a.size_bytes()) != 0;
      for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
    };
    add(cached.logits(), uncached.logits());
    const GenerateOptions options{.max_new_tokens = n_new};
    const Ids hit_ids = generate(cached, options).ids;
    const Ids miss_ids = generate(uncached, options).ids;
    return {{"max_difference", most}, {"bits_differ", bits_differ}, {"hit_ids", hit_ids}, {"miss_ids", miss_ids}};
  }

  // What this machine does at this moment, on the threads that the model has.
  Json probe() {
    if (!file_) file_ = base::MappedFile::open(path_ + "/model.safetensors");
    const size_t n_threads = model_->info().n_threads;
    const auto on_all = [n_threads](const auto& measure) {
      std::atomic<double> sum = 0;
      std::vector<std::thread> threads;
      for (size_t i = 0; i < n_threads; ++i) threads.emplace_back([&, i] { sum += measure(i); });
      for (auto& thread : threads) thread.join();
      return sum.load();
    };
    const auto bytes = file_->bytes();
    const char* data = reinterpret_cast<const char*>(bytes.data());
    const size_t share = bytes.size() / n_threads;
    const double read = on_all([&](size_t i) { return read_bytes_per_second(data + i * share, share); });
    const double fma = on_all([&](size_t) { return register_flops_per_second(model_->info().kernel_set); });
    Json found = {{"read_bytes_per_s", read}, {"fma_flops_per_s", fma}, {"clock_hz", clock_hertz()}};
    if (const double pairs = on_all([](size_t) { return pair_flops_per_second(); }); pairs > 0)
      found["pair_flops_per_s"] = pairs;
    if (model_->info().kernel_set == "amx") {
      found["tile_flops_per_s_one_thread"] = tile_flops_per_second();
      found["tile_flops_per_s"] = on_all([](size_t) { return tile_flops_per_second(); });
    }
    return found;
  }

  std::string path_;
  std::shared_ptr<const Model> model_;
  double open_ms_ = 0;
  std::map<std::string, std::shared_ptr<const Context>> contexts_;
  std::optional<base::MappedFile> file_;
};

int serve(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::cerr << "peer_worker: expected MODEL float32|bfloat16 THREADS [KERNEL_SET]\n";
    return 2;
  }
  const ModelOptions options{
      .mode = std::string(argv[2]) == "bfloat16" ? ComputeMode::BFloat16 : ComputeMode::Float32,
      .n_threads = static_cast<size_t>(std::stoul(argv[3])),
      .kernel_set = argc == 5 ? argv[4] : ""};
  Worker worker(argv[1], options);
  std::cout << worker.about() << std::endl;
  for (std::string line; std::getline(std::cin, line);) std::cout << worker.answer(Json::parse(line)) << std::endl;
  return 0;
}

}  // namespace
}  // namespace kvfork::bench

int main(int argc, char** argv) {
  try {
    return kvfork::bench::serve(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "peer_worker: " << error.what() << "\n";
    return 1;
  }
}
