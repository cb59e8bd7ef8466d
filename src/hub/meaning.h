// What a failed exchange means to the user: one message each, with a hint.
//
// Pure functions; thread rule: none needed.
#pragma once

#include <string>
#include <string_view>

#include "hub/http.h"

namespace kvfork::hub {

struct Session;

/// Whether the failure may be gone at the next attempt: statuses 408, 429 and 5xx, stalls, broken connections.
/// False for success and for failures that stay.
bool may_pass(const Reply& reply);

/// Throws the HubError or StatusError that `reply`, a failure, stands for.
[[noreturn]] void throw_meaning(const Reply& reply, const std::string& subject, const Session& session,
                                const std::string& endpoint);

/// Text from outside, made safe for a message: valid UTF-8, no control characters, cut to a sane length.
std::string printable(std::string_view text);

}  // namespace kvfork::hub
