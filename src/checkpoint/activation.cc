// The names of activations: ACT2FN of Transformers' activations.py.
#include "checkpoint/activation.h"

#include <array>

#include "base/check.h"

namespace kvfork::checkpoint {
namespace {

struct Name {
  std::string_view name;
  Activation activation;
};

constexpr std::array kNames = {
    Name{"silu", Activation::Silu},          Name{"swish", Activation::Silu},
    Name{"gelu", Activation::Gelu},          Name{"gelu_new", Activation::GeluTanh},
    Name{"gelu_fast", Activation::GeluTanh}, Name{"gelu_pytorch_tanh", Activation::GeluTanh},
    Name{"relu", Activation::Relu},          Name{"relu2", Activation::ReluSquared},
};

}  // namespace

std::optional<Activation> find_activation(std::string_view name) noexcept {
  for (const Name& known : kNames) {
    if (known.name == name) return known.activation;
  }
  return std::nullopt;
}

Activation activation_of(std::string_view name) noexcept {
  const auto activation = find_activation(name);
  KVFORK_CHECK(activation.has_value());
  return *activation;
}

}  // namespace kvfork::checkpoint
