// Version of the library.
#pragma once

namespace kvfork {

/// "MAJOR.MINOR.PATCH" of the linked library.
const char* version() noexcept;

}  // namespace kvfork
