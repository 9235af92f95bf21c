#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace cairn {
namespace {

// The vectors are those of FIPS 180-2 and RFC 4231.

TEST(Sha256Test, MatchesThePublishedVectors) {
  EXPECT_EQ(ToHex(HashSha256(std::string_view())),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(ToHex(HashSha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(ToHex(HashSha256(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Test, DoesNotDependOnHowTheInputIsCut) {
  const std::string text(1000, 'x');
  for (size_t cut = 0; cut <= text.size(); cut += 37) {
    Sha256 hash;
    hash.Update(std::string_view(text).substr(0, cut));
    hash.Update(std::string_view(text).substr(cut));
    EXPECT_EQ(hash.Finish(), HashSha256(text)) << "cut at " << cut;
  }
}

TEST(Sha256Test, StartsAnewAfterFinish) {
  Sha256 hash;
  hash.Update("something else");
  hash.Finish();
  hash.Update("abc");
  EXPECT_EQ(hash.Finish(), HashSha256("abc"));
}

TEST(Sha256Test, ACopyGoesItsOwnWay) {
  Sha256 head;
  head.Update("ab");
  Sha256 fork = head;
  fork.Update("c");
  head.Update("d");
  EXPECT_EQ(fork.Finish(), HashSha256("abc"));
  EXPECT_EQ(head.Finish(), HashSha256("abd"));
  Sha256 assigned;
  assigned.Update("lost");
  head.Update("ab");
  assigned = head;
  assigned.Update("c");
  EXPECT_EQ(assigned.Finish(), HashSha256("abc"));
}

TEST(HmacSha256Test, MatchesThePublishedVectors) {
  EXPECT_EQ(ToHex(HmacSha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(ToHex(HmacSha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  // A key longer than a block is hashed first.
  EXPECT_EQ(ToHex(HmacSha256(std::string(131, '\xaa'),
                             "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(HmacSha256Test, AcceptsAnEmptyKeyAndMessage) {
  EXPECT_EQ(ToHex(HmacSha256("", "")),
            "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(ConstantTimeEqualTest, ComparesEveryByteAndTheSize) {
  EXPECT_TRUE(ConstantTimeEqual("abc", "abc"));
  EXPECT_TRUE(ConstantTimeEqual("", ""));
  EXPECT_FALSE(ConstantTimeEqual("abc", "abd"));
  EXPECT_FALSE(ConstantTimeEqual("xbc", "abc"));
  EXPECT_FALSE(ConstantTimeEqual("abc", "ab"));
  EXPECT_FALSE(ConstantTimeEqual("", "a"));
}

}  // namespace
}  // namespace cairn
