// SHA-256 against published digests, whole and in pieces.

#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace kvfork::base {
namespace {

// FIPS 180-4's examples, and `printf hello | sha256sum`.
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(sha256_hex(std::string_view()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("hello"), "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesMakeTheWhole) {
  const std::string text(1000, 'x');
  for (const size_t piece : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{999}}) {
    Sha256 sha;
    for (size_t i = 0; i < text.size(); i += piece) sha.add(std::string_view(text).substr(i, piece));
    EXPECT_EQ(sha.hex(), sha256_hex(text)) << piece;
  }
}

}  // namespace
}  // namespace kvfork::base
