#include "common/base/sha256.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

// FIPS 180-4, examples.
TEST(Sha256Test, KnownValues) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256Test, PiecesEqualTheWhole) {
  Sha256 sha;
  sha.Update("a", 1);
  sha.Update("", 0);
  sha.Update("bc", 2);
  EXPECT_EQ(sha.Finish(), Sha256Hex("abc"));
}

}  // namespace
}  // namespace sluice
