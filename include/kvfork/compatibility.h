// Whether kvfork can run a model, judged from its config.json alone.
//
// Thread rule: safe from any thread.
#pragma once

#include <string_view>

namespace kvfork {

/// Throws Error{Unsupported} when the architecture, or a field that changes the result, is not implemented, and
/// Error{Corrupt} when the text is no config; `subject` is named in the message.
void check_config(std::string_view config_json, std::string_view subject);

}  // namespace kvfork
