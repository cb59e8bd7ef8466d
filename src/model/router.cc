// Which experts a row chooses.
#include <algorithm>
#include <cmath>
#include <limits>

#include "model/double_math.h"
#include "model/experts.h"

namespace kvfork::model {
namespace {

void softmax(std::span<double> scores) noexcept {
  const double most = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = exponential(score - most);
  for (double& score : scores) score /= sum;
}

constexpr double kOut = -std::numeric_limits<double>::infinity();

// Leaves the groups_kept groups whose two best choices add up to the most; the others are out. Of equal groups the
// one of lower index stays.
void keep_groups(const checkpoint::ExpertsSpec& spec, std::span<double> choice) noexcept {
  const size_t n_groups = spec.n_groups, size = choice.size() / n_groups;
  const auto worth = [&](size_t group) {
    double first = kOut, second = kOut;
    for (const double value : choice.subspan(group * size, size)) {
      second = std::max(second, std::min(first, value));
      first = std::max(first, value);
    }
    return size == 1 ? first : first + second;
  };
  // Groups are compared before any of them is put out.
  size_t n_out = n_groups - std::min(n_groups, spec.groups_kept);
  for (; n_out > 0; --n_out) {
    size_t least = n_groups;
    for (size_t group = 0; group < n_groups; ++group) {
      if (choice[group * size] == kOut && worth(group) == kOut) continue;  // is out already
      if (least == n_groups || worth(group) <= worth(least)) least = group;
    }
    if (least == n_groups) return;
    std::fill_n(choice.begin() + static_cast<ptrdiff_t>(least * size), size, kOut);
  }
}

}  // namespace

void choose_experts(const checkpoint::ExpertsSpec& spec, std::span<const float> correction,
                    std::span<const float> scores, std::span<double> work, std::span<Choice> chosen) noexcept {
  const size_t n = scores.size();
  const std::span<double> probability = work.first(n);
  std::copy(scores.begin(), scores.end(), probability.begin());
  if (spec.score == checkpoint::ExpertsSpec::Score::Softmax) softmax(probability);
  if (spec.score == checkpoint::ExpertsSpec::Score::Sigmoid) {
    for (double& value : probability) value = 1 / (1 + exponential(-value));
  }
  const std::span<double> choice = work.subspan(n, n);
  for (size_t i = 0; i < n; ++i)
    choice[i] = probability[i] + (correction.empty() ? 0.0 : static_cast<double>(correction[i]));
  if (spec.n_groups > 1) keep_groups(spec, choice);
  for (Choice& next : chosen) {
    const auto best = std::max_element(choice.begin(), choice.end());
    next.expert = static_cast<uint32_t>(best - choice.begin());
    *best = kOut;
  }
  std::sort(chosen.begin(), chosen.end(), [](const Choice& a, const Choice& b) { return a.expert < b.expert; });

  const std::span<double> weights = choice.first(chosen.size());
  for (size_t i = 0; i < chosen.size(); ++i) weights[i] = probability[chosen[i].expert];
  if (spec.score == checkpoint::ExpertsSpec::Score::SoftmaxOfChosen) softmax(weights);
  double sum = 0;
  for (const double weight : weights) sum += weight;
  const double divisor = spec.is_normed ? std::max(sum, spec.least) + spec.tiny : 1;
  for (size_t i = 0; i < chosen.size(); ++i)
    chosen[i].weight = static_cast<float>(weights[i] / divisor * spec.scale);
}

}  // namespace kvfork::model
