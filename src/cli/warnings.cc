#include "cli/warnings.h"

#include <fmt/format.h>

#include "cli/output.h"

namespace kvfork::cli {

void warn_about(const EncodeReport& report) {
  if (report.n_dropped_bytes == 0) return;
  std::string dropped;
  for (const std::string& bytes : report.dropped) {
    if (!dropped.empty()) dropped += ", ";
    for (const char c : bytes) dropped += fmt::format("0x{:02X}", static_cast<unsigned char>(c));
  }
  print_warning(fmt::format("tokenizer: {} bytes have no token in this vocabulary and were dropped: {}",
                            report.n_dropped_bytes, dropped));
}

}  // namespace kvfork::cli
