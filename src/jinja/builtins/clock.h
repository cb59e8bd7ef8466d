// The templates' clock: strftime over a local time.
#pragma once

#include <string>
#include <string_view>

#include "jinja/values/runtime.h"

namespace kvfork::jinja {

/// "2031-01-05T06:07:08", also "2031-01-05" and with a space for the T. Fails with Error{InvalidArgument}.
LocalTime parse_local_time(std::string_view text);

/// The system's local time now.
LocalTime system_local_time();

/// datetime.strftime(format) in the C locale.
std::string format_time(Runtime& rt, const LocalTime& time, std::string_view format);

}  // namespace kvfork::jinja
