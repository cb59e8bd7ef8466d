// The activations that configs name, by Transformers' names of them.
#pragma once

#include <optional>
#include <string_view>

#include "checkpoint/model_spec.h"

namespace kvfork::checkpoint {

/// Nothing for a name that kvfork does not know.
std::optional<Activation> find_activation(std::string_view name) noexcept;

/// Of a name that find_activation knows.
Activation activation_of(std::string_view name) noexcept;

}  // namespace kvfork::checkpoint
