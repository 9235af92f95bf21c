#include "kvstore/key.h"

#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

KvIdentity SomeIdentity() {
  return {.weights = "weights",
          .architecture = "arch",
          .tokenizer = "tok",
          .activations = "f32",
          .kv_dtype = "f16",
          .kv_quantisation = "",
          .attention = "full",
          .block_tokens = 16,
          .layout_version = 1,
          .numerics = "exact",
          .numerics_version = 1};
}

std::vector<std::string KvIdentity::*> TextFields() {
  return {&KvIdentity::weights,     &KvIdentity::architecture, &KvIdentity::tokenizer,
          &KvIdentity::activations, &KvIdentity::kv_dtype,     &KvIdentity::kv_quantisation,
          &KvIdentity::attention,   &KvIdentity::numerics};
}

std::vector<int32_t KvIdentity::*> NumberFields() {
  return {&KvIdentity::block_tokens, &KvIdentity::layout_version, &KvIdentity::numerics_version};
}

TEST(KeyTest, IsTheSha256OfTheEncoding) {
  const KvIdentity identity = SomeIdentity();
  EXPECT_EQ(ToHex(AsBytes(IdentityRoot(identity))), ToHex(HashSha256(EncodeIdentity(identity))));
  const BlockKey root = IdentityRoot(identity);
  EXPECT_EQ(ToHex(AsBytes(ScopeRoot(root, {}))), ToHex(HashSha256(EncodeScope(root, {}))));
}

// Stores on disk and in other processes hold keys: a change of the function must be meant, and
// comes with a new domain version. The digests were computed apart, with Python's hashlib.
TEST(KeyTest, StaysTheSameFunction) {
  const BlockKey root = IdentityRoot(SomeIdentity());
  const BlockKey scope = ScopeRoot(root, {.layer_group = 1, .cache_salt = "salt"});
  const BlockKey child = ChildKey(scope, std::vector<int32_t>{1, 2, 3, 70000});
  EXPECT_EQ(ToHex(AsBytes(root)),
            "d4f1fac75934cb777054a889c04d752f7829f4e958f1ebffb06c349487aa9d6d");
  EXPECT_EQ(ToHex(AsBytes(scope)),
            "a8b8fa2ced18199a75db0ac9ca830de9237fe17b972eb20f7b372be977cbb5c4");
  EXPECT_EQ(ToHex(AsBytes(child)),
            "159f9399bfb72207aa27719c52a5ff23f7fd5256a43dec3c3f854917b7adfb0e");
}

TEST(KeyTest, EveryFieldOfTheIdentityCounts) {
  std::set<std::string> encodings = {EncodeIdentity(SomeIdentity())};
  std::set<BlockKey> keys = {IdentityRoot(SomeIdentity())};
  size_t num_identities = 1;
  const auto add = [&](const KvIdentity& identity) {
    encodings.insert(EncodeIdentity(identity));
    keys.insert(IdentityRoot(identity));
    ++num_identities;
  };
  for (const auto field : TextFields()) {
    for (const std::string& change : {std::string("x"), std::string(1, '\0')}) {
      KvIdentity identity = SomeIdentity();
      identity.*field += change;
      add(identity);
    }
  }
  for (const auto field : NumberFields()) {
    for (const int32_t value : {0, 2, 17, 256, -1}) {
      KvIdentity identity = SomeIdentity();
      identity.*field = value;
      add(identity);
    }
  }
  EXPECT_EQ(encodings.size(), num_identities);
  EXPECT_EQ(keys.size(), num_identities);
}

TEST(KeyTest, MovingABoundaryBetweenFieldsChangesTheEncoding) {
  const auto fields = TextFields();
  for (size_t i = 0; i + 1 < fields.size(); ++i) {
    std::set<std::string> encodings;
    const std::string text = "aaaaaaaaaaaa";
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      KvIdentity identity = SomeIdentity();
      identity.*fields[i] = text.substr(0, cut);
      identity.*fields[i + 1] = text.substr(cut);
      encodings.insert(EncodeIdentity(identity));
    }
    EXPECT_EQ(encodings.size(), text.size() + 1) << "between fields " << i << " and " << i + 1;
  }
}

// Texts made of bytes that look like lengths, so that a missing prefix would show as a collision.
TEST(KeyTest, NoTwoRandomIdentitiesEncodeAlike) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto text = [&] {
    std::string result(random() % 3, '\0');
    for (char& c : result) c = static_cast<char>(random() % 2);
    return result;
  };
  std::set<std::string> encodings;
  std::set<std::vector<std::string>> identities;
  for (int i = 0; i < 5000; ++i) {
    KvIdentity identity;
    std::vector<std::string> values;
    for (const auto field : TextFields()) values.push_back(identity.*field = text());
    for (const auto field : NumberFields()) {
      values.push_back(std::to_string(identity.*field = static_cast<int32_t>(random() % 3)));
    }
    identities.insert(values);
    encodings.insert(EncodeIdentity(identity));
  }
  EXPECT_EQ(encodings.size(), identities.size());
}

TEST(KeyTest, EveryFieldOfTheScopeCounts) {
  const BlockKey root = IdentityRoot(SomeIdentity());
  BlockKey other_root = root;
  other_root.bytes[31] ^= 1;
  const std::vector<std::pair<BlockKey, KvScope>> scopes = {
      {root, {}},
      {other_root, {}},
      {root, {.layer_group = 1}},
      {root, {.adapter = "a"}},
      {root, {.tenant_salt = "a"}},
      {root, {.cache_salt = "a"}},
      {root, {.tenant_salt = "a", .cache_salt = "a"}},
      {root, {.tenant_salt = "aa"}},
      {root, {.cache_salt = "aa"}},
  };
  std::set<BlockKey> keys;
  for (const auto& [from, scope] : scopes) keys.insert(ScopeRoot(from, scope));
  EXPECT_EQ(keys.size(), scopes.size());
}

// A caller who knows a tenant's salt cannot choose a cache salt that lands among its blocks.
TEST(KeyTest, ACacheSaltCannotStandInForATenantSalt) {
  const BlockKey root = IdentityRoot(SomeIdentity());
  EXPECT_NE(ScopeRoot(root, {.tenant_salt = "victim"}), ScopeRoot(root, {.cache_salt = "victim"}));
  EXPECT_NE(ScopeRoot(root, {.tenant_salt = "victim"}),
            ScopeRoot(root, {.tenant_salt = "other", .cache_salt = "victim"}));
}

TEST(KeyTest, AChildDependsOnParentTokensAndTheirOrder) {
  const BlockKey a = IdentityRoot(SomeIdentity());
  const BlockKey b = ScopeRoot(a, {});
  std::set<BlockKey> keys = {a, b};
  const std::vector<std::vector<int32_t>> blocks = {{},     {0},    {0, 0},  {1},        {256},
                                                    {1, 2}, {2, 1}, {65536}, {16777216}, {-1}};
  for (const BlockKey& parent : {a, b}) {
    for (const auto& tokens : blocks) keys.insert(ChildKey(parent, tokens));
  }
  EXPECT_EQ(keys.size(), 2 + 2 * blocks.size());
}

TEST(KeyTest, ChainsThatDifferOnceNeverMeetAgain) {
  BlockKey left = IdentityRoot(SomeIdentity());
  BlockKey right = left;
  const std::vector<int32_t> tokens = {5, 6, 7, 8};
  EXPECT_EQ(ChildKey(left, tokens), ChildKey(right, tokens));
  right = ChildKey(right, std::vector<int32_t>{5, 6, 7, 9});
  left = ChildKey(left, tokens);
  for (int i = 0; i < 100; ++i) {
    EXPECT_NE(left, right);
    left = ChildKey(left, tokens);
    right = ChildKey(right, tokens);
  }
}

TEST(KeyTest, ParsesItsOwnBytesAndNothingShorterOrLonger) {
  const BlockKey key = IdentityRoot(SomeIdentity());
  const absl::StatusOr<BlockKey> parsed = ParseBlockKey(AsBytes(key));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, key);
  for (const size_t length : {0, 16, 31, 33}) {
    const absl::Status status = ParseBlockKey(std::string(length, 'x')).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("expected=32"));
  }
}

}  // namespace
}  // namespace cairn
