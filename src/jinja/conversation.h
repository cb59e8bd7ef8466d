// The checks and the one change that Transformers makes to a conversation before it is rendered.
#pragma once

#include <string>
#include <string_view>

#include "jinja/values/value.h"

namespace kvfork::jinja {

/// Fails with Error{InvalidArgument} unless messages is a list that begins with a message, tools None or a list of
/// objects, and documents None or an iterable of objects.
void check_messages(const Value& messages);
void check_objects(const Value& list, std::string_view name);

/// The messages with `tag` behind the last one's text; that text goes to `final_message`. Fails with
/// Error{InvalidArgument} where the last message has no text.
Value append_tag(Runtime& rt, const Value& messages, std::string_view tag, std::string& final_message);

}  // namespace kvfork::jinja
