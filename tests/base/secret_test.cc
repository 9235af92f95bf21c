#include "base/secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace cairn {
namespace {

using testing::HasSubstr;
using testing::Not;

Hello NewHello(const std::string& purpose) {
  return {.purpose = purpose, .client_nonce = MakeNonce(), .server_nonce = MakeNonce()};
}

TEST(ClusterSecretTest, BothSidesWithOneSecretAcceptEachOther) {
  const ClusterSecret secret = ClusterSecret::Random();
  const ClusterSecret same = *ClusterSecret::FromHexText(secret.ToHexText());
  const Hello hello = NewHello("collective");
  for (const HelloRole role : {HelloRole::kClient, HelloRole::kServer}) {
    EXPECT_TRUE(same.Verify(role, hello, AsBytes(secret.Prove(role, hello))));
  }
}

TEST(ClusterSecretTest, AProofIsGoodForOneRolePurposeAndPairOfNoncesOnly) {
  const ClusterSecret secret = ClusterSecret::Random();
  const Hello hello = NewHello("collective");
  const Sha256Digest proof = secret.Prove(HelloRole::kServer, hello);
  EXPECT_FALSE(secret.Verify(HelloRole::kClient, hello, AsBytes(proof)));
  EXPECT_FALSE(ClusterSecret::Random().Verify(HelloRole::kServer, hello, AsBytes(proof)));
  for (int change = 0; change < 4; ++change) {
    Hello other = hello;
    if (change == 0) other.purpose = "collectiv";
    if (change == 1) other.client_nonce[31] ^= 1;
    if (change == 2) other.server_nonce[0] ^= 1;
    if (change == 3) std::swap(other.client_nonce, other.server_nonce);
    EXPECT_FALSE(secret.Verify(HelloRole::kServer, other, AsBytes(proof))) << change;
  }
}

TEST(ClusterSecretTest, RefusesProofsOfAnySizeAndContent) {
  const ClusterSecret secret = ClusterSecret::Random();
  const Hello hello = NewHello("collective");
  const std::string proof(AsBytes(secret.Prove(HelloRole::kServer, hello)));
  for (const std::string& wrong :
       {std::string(), proof.substr(1), proof.substr(0, 31), proof + "x", std::string(32, '\0')}) {
    EXPECT_FALSE(secret.Verify(HelloRole::kServer, hello, wrong));
  }
}

TEST(ClusterSecretTest, DerivedKeysDifferByPurposeAndFromTheSecret) {
  const ClusterSecret secret = ClusterSecret::Random();
  EXPECT_EQ(secret.Derive("epoch 1").ToHexText(), secret.Derive("epoch 1").ToHexText());
  EXPECT_NE(secret.Derive("epoch 1").ToHexText(), secret.Derive("epoch 2").ToHexText());
  EXPECT_NE(secret.Derive("").ToHexText(), secret.ToHexText());
}

TEST(ClusterSecretTest, RandomSecretsAndNoncesDiffer) {
  EXPECT_NE(ClusterSecret::Random().ToHexText(), ClusterSecret::Random().ToHexText());
  EXPECT_NE(MakeNonce(), MakeNonce());
}

TEST(ClusterSecretTest, RefusesOtherTextWithoutRepeatingIt) {
  const std::string good = ClusterSecret::Random().ToHexText();
  for (const std::string& text :
       {std::string(), good.substr(1), good + "0", "zz" + good.substr(2), " " + good.substr(1)}) {
    const absl::Status status = ClusterSecret::FromHexText(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(good.substr(10, 40))));
  }
}

class SecretFileTest : public testing::Test {
 protected:
  SecretFileTest() {
    std::string name = testing::TempDir() + "/secret_XXXXXX";
    folder_ = mkdtemp(name.data());
    path_ = folder_ + "/secret";
  }
  ~SecretFileTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  void WriteFile(const std::string& text, mode_t mode) {
    std::ofstream(path_) << text;
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }
  std::string folder_, path_;
};

TEST_F(SecretFileTest, IsMadePrivateAndReadBack) {
  const absl::StatusOr<ClusterSecret> made = ReadOrCreateSecretFile(path_);
  ASSERT_TRUE(made.ok()) << made.status();
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(ReadOrCreateSecretFile(path_)->ToHexText(), made->ToHexText());
  EXPECT_EQ(ReadSecretFile(path_)->ToHexText(), made->ToHexText());
}

TEST_F(SecretFileTest, AMissingFileIsNotFound) {
  EXPECT_EQ(ReadSecretFile(path_).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(SecretFileTest, RefusesAFileThatOthersMayReadOrWrite) {
  const std::string text = ClusterSecret::Random().ToHexText() + "\n";
  for (const mode_t mode : {0640, 0604, 0660, 0666, 0620}) {
    WriteFile(text, mode);
    const absl::Status status = ReadOrCreateSecretFile(path_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << mode;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  }
  WriteFile(text, 0600);
  EXPECT_TRUE(ReadSecretFile(path_).ok());
}

TEST_F(SecretFileTest, RefusesAFolderAndAPipe) {
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  EXPECT_EQ(ReadSecretFile(path_).status().code(), absl::StatusCode::kPermissionDenied);
  ASSERT_EQ(rmdir(path_.c_str()), 0);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(ReadSecretFile(path_).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(SecretFileTest, RefusesOtherContents) {
  for (const std::string& text : {std::string(), std::string("short\n"), std::string(200, 'a')}) {
    WriteFile(text, 0600);
    EXPECT_EQ(ReadSecretFile(path_).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(SecretFileTest, ManyWhoCreateItAtOnceGetOneSecret) {
  constexpr int kThreads = 8;
  std::vector<std::string> secrets(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] { secrets[i] = ReadOrCreateSecretFile(path_)->ToHexText(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& secret : secrets) EXPECT_EQ(secret, secrets[0]);
  const auto files = std::filesystem::directory_iterator(folder_);
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

}  // namespace
}  // namespace cairn
