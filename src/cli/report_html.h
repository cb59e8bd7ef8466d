// The report of `kvfork bench` as one HTML page: no script, no font or picture from elsewhere, light and dark, for
// screens from a phone's on and for print.
#pragma once

#include <string>

#include "cli/bench_report.h"

namespace kvfork::cli {

std::string make_html(const BenchReport& report);

}  // namespace kvfork::cli
