// What a context was rendered from, against the text side of the model at hand.
#pragma once

#include <string>

#include "kvfork/prompt.h"

namespace kvfork::prompt {

/// The template that a prompt with this fixed part is rendered with by a checkpoint's own choice: its source, or ""
/// where there is none.
std::string chosen_source(const ChatTemplate& chat_template, const FixedPart& fixed);

/// The fingerprint that this checkpoint's text side gives the template of `origin`; "" for plain text.
std::string fingerprint_origin_template(const Text& text, const ContextOrigin& origin);

}  // namespace kvfork::prompt
