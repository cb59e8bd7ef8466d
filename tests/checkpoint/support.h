// What the tests of this folder share: files and the check of an Error.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "kvfork/error.h"
#include "tests/support/temp_dir.h"

namespace kvfork::test {

inline std::filesystem::path golden() {
  return std::filesystem::path(KVFORK_SOURCE_DIR) / "tests" / "golden";
}

inline void write_file(const std::filesystem::path& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
}

/// Runs `body`, which must throw an Error of `code` whose message has every one of `parts`.
template <typename Body, typename... Parts>
void expect_error(ErrorCode code, const Body& body, const Parts&... parts) {
  try {
    body();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), code) << message;
    for (const std::string_view part : {std::string_view(parts)...})
      EXPECT_NE(message.find(part), std::string::npos) << "expected \"" << part << "\" in: " << message;
    return;
  }
  ADD_FAILURE() << "no error";
}

}  // namespace kvfork::test
