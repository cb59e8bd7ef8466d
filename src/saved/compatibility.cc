// Says of a config.json, without the weights, whether kvfork runs it.

#include "kvfork/compatibility.h"

#include "base/error.h"
#include "checkpoint/config.h"

namespace kvfork {

void check_config(std::string_view config_json, std::string_view subject) {
  base::only_errors([&] { checkpoint::parse_config(config_json, subject); });
}

}  // namespace kvfork
