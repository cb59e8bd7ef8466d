// What a model's bits depend on, and how two identities differ.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kvfork/identity.h"
#include "kvfork/model.h"

namespace kvfork::saved {

/// One field of Identity under the name that messages and files call it by.
struct IdentityField {
  const char* name;
  std::string Identity::*value;
};

/// The fields that decide bits and ids, in the order in which a difference is named.
std::span<const IdentityField> deciding_fields();

/// SHA-256 over the bit-deciding fields and the ids.
std::string make_context_id(const Identity& identity, std::span<const int32_t> ids);

/// The commit in ".../snapshots/<40 hex digits>/...", or "".
std::string find_revision(const std::string& path);

}  // namespace kvfork::saved
