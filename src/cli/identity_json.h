// Identities as the commands' JSON shows them.
#pragma once

#include <nlohmann/json.hpp>

#include "kvfork/identity.h"

namespace kvfork::cli {

nlohmann::ordered_json identity_json(const Identity& identity);

}  // namespace kvfork::cli
