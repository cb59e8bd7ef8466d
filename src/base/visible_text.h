// Text from outside (a file, a model, a server, a command line) made safe to show on a terminal.
//
// Pure function; thread rule: none needed.
#pragma once

#include <string>
#include <string_view>

namespace kvfork::base {

/// What happens to a line break or a tab.
enum class LineBreaks {
  Keep,  ///< stays: the text has lines of its own
  Join,  ///< becomes a space: the text is a part of one line
};

/// The text as valid UTF-8 without a character that a terminal acts on. Control characters (C0, DEL, C1), and the
/// marks that change the direction or the lines of the text around them, are written as their code: "\u001B".
std::string to_visible_text(std::string_view text, LineBreaks line_breaks = LineBreaks::Join);

}  // namespace kvfork::base
