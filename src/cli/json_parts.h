// Parts that several commands' JSON documents share.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/numbers.h"
#include "kvfork/identity.h"
#include "kvfork/model.h"

namespace kvfork::cli {

/// null for an empty text or an absent value.
nlohmann::ordered_json or_null(const std::string& text);
nlohmann::ordered_json or_null(const std::optional<double>& value);

/// {"median", "min", "max"} of the rounds; null for none.
nlohmann::ordered_json times_json(const Times& times);

/// "dtype", "kernel_set", "threads", "versions".
nlohmann::ordered_json what_ran_json(const Model& model);
nlohmann::ordered_json what_ran_json(const ModelInfo& info);

nlohmann::ordered_json identity_json(const Identity& identity);

}  // namespace kvfork::cli
