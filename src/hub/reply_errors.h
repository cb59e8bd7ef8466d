// The error message for each kind of failed exchange with a server, with a hint.
//
// Pure functions; thread rule: none needed.
#pragma once

#include <string>
#include <string_view>

#include "hub/http.h"

namespace kvfork::hub {

struct Session;

/// Whether the next attempt may succeed: statuses 408, 429 and 5xx, stalls, broken connections.
/// False for success and for failures that stay.
bool is_transient(const Reply& reply);

/// Throws the HubError or StatusError that describes `reply`, a failure.
[[noreturn]] void throw_reply_error(const Reply& reply, const std::string& subject, const Session& session,
                                    const std::string& endpoint);

/// Text from outside for a message: cut to 300 bytes and made visible (base/visible_text.h).
std::string printable(std::string_view text);

}  // namespace kvfork::hub
