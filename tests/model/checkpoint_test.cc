#include "model/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "model/fingerprint.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/safetensors_writer.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string OpenMessage(const std::string& path) {
  const absl::Status status = Checkpoint::Open(path).status();
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
  return std::string(status.message());
}

// A directory whose tensors a to f are in three shards.
class ShardedCheckpointTest : public ::testing::Test {
 protected:
  ShardedCheckpointTest() {
    folder_.Write("config.json", R"({"model_type":"none"})");
    WriteShard("model-00001-of-00003.safetensors", {"a", "b"});
    WriteShard("model-00002-of-00003.safetensors", {"c", "d"});
    WriteShard("model-00003-of-00003.safetensors", {"e", "f"});
    WriteIndex(index_);
  }

  void WriteShard(const std::string& file, const std::vector<std::string>& names,
                  const std::string& dtype = "F32") {
    std::vector<NamedFloats> tensors;
    for (const std::string& name : names) {
      tensors.push_back({.name = name, .dtype = dtype, .element_bytes = dtype == "F32" ? 4 : 2});
      if (dtype == "F32") index_[name] = file;
    }
    folder_.Write(file, SafetensorsFile(tensors));
  }
  void WriteIndex(const nlohmann::json& weight_map) {
    folder_.Write("model.safetensors.index.json",
                  std::string_view(nlohmann::json{{"weight_map", weight_map}}.dump()));
  }

  TemporaryFolder folder_;
  nlohmann::json index_;
};

TEST_F(ShardedCheckpointTest, LoadsEveryListedTensorAndNoOther) {
  const auto checkpoint = Checkpoint::Open(folder_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->tensors().size(), 6u);
  EXPECT_EQ((*checkpoint)->files().size(), 3u);
  for (const char* const name : {"a", "b", "c", "d", "e", "f"}) {
    ASSERT_NE((*checkpoint)->Find(name), nullptr) << name;
    EXPECT_EQ((*checkpoint)->Find(name)->data.size(), 4u);
  }
  EXPECT_EQ((*checkpoint)->Find("g"), nullptr);
}

TEST_F(ShardedCheckpointTest, RefusesAMissingShardByName) {
  folder_.Remove("model-00002-of-00003.safetensors");
  const absl::Status status = Checkpoint::Open(folder_.path()).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("model-00002-of-00003.safetensors"));
}

TEST_F(ShardedCheckpointTest, RefusesARenamedShardByTheNameListed) {
  const std::string from = folder_.path() + "/model-00003-of-00003.safetensors";
  const std::string to = folder_.path() + "/renamed.safetensors";
  ASSERT_EQ(rename(from.c_str(), to.c_str()), 0);
  EXPECT_THAT(OpenMessage(folder_.path()), HasSubstr("model-00003-of-00003.safetensors"));
  ASSERT_EQ(unlink(to.c_str()), 0);
}

TEST_F(ShardedCheckpointTest, IgnoresAStrayShardWithACopyOfAnotherType) {
  WriteShard("stray.safetensors", {"a", "z"}, "BF16");
  ::testing::internal::CaptureStderr();
  const auto checkpoint = Checkpoint::Open(folder_.path());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("file=stray.safetensors"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->Find("a")->dtype, DType::kF32);
  EXPECT_EQ((*checkpoint)->Find("z"), nullptr);
}

TEST_F(ShardedCheckpointTest, RefusesAnEntryThatPointsAtAShardWithoutTheTensor) {
  index_["a"] = "model-00002-of-00003.safetensors";
  WriteIndex(index_);
  EXPECT_THAT(OpenMessage(folder_.path()),
              AllOf(HasSubstr("tensor a"), HasSubstr("model-00002-of-00003.safetensors")));
  index_["a"] = "model-00001-of-00003.safetensors";
  index_["missing"] = "model-00001-of-00003.safetensors";
  WriteIndex(index_);
  EXPECT_THAT(OpenMessage(folder_.path()), HasSubstr("tensor missing"));
}

TEST_F(ShardedCheckpointTest, RefusesATensorInTwoShardsNamingBoth) {
  WriteShard("model-00002-of-00003.safetensors", {"a", "c", "d"});
  index_["a"] = "model-00001-of-00003.safetensors";
  WriteIndex(index_);
  EXPECT_THAT(OpenMessage(folder_.path()),
              AllOf(HasSubstr("tensor a"), HasSubstr("model-00001-of-00003.safetensors"),
                    HasSubstr("model-00002-of-00003.safetensors")));
}

TEST_F(ShardedCheckpointTest, RefusesATensorThatTheIndexDoesNotList) {
  index_.erase("f");
  WriteIndex(index_);
  EXPECT_THAT(OpenMessage(folder_.path()),
              AllOf(HasSubstr("tensor f"), HasSubstr("model-00003-of-00003.safetensors")));
}

TEST_F(ShardedCheckpointTest, RefusesShardsThatLeadOutOfTheFolder) {
  index_["a"] = "../a.safetensors";
  WriteIndex(index_);
  EXPECT_THAT(OpenMessage(folder_.path()), HasSubstr("../a.safetensors"));
}

TEST_F(ShardedCheckpointTest, RefusesADamagedShardByName) {
  folder_.Write("model-00001-of-00003.safetensors", std::string_view("{}"));
  EXPECT_THAT(OpenMessage(folder_.path()), HasSubstr("shard model-00001-of-00003.safetensors"));
}

TEST(CheckpointTest, RefusesDirectoriesThatLackTheirFiles) {
  TemporaryFolder folder;
  EXPECT_THAT(OpenMessage(folder.path()), HasSubstr("config.json"));
  folder.Write("config.json", std::string_view("{}"));
  EXPECT_THAT(OpenMessage(folder.path()), HasSubstr("model.safetensors"));
  folder.Write("model.safetensors", SafetensorsFile(std::vector<NamedFloats>{{.name = "x"}}));
  EXPECT_TRUE(Checkpoint::Open(folder.path()).ok());
  folder.Write("config.json", std::string_view("[1"));
  EXPECT_THAT(OpenMessage(folder.path()), HasSubstr("config.json: not valid JSON"));
  folder.Write("config.json", std::string(100'000, '['));
  EXPECT_THAT(OpenMessage(folder.path()), HasSubstr("nested too deeply"));
  folder.Write("config.json", std::string_view(R"({"a":1,"a":2})"));
  EXPECT_THAT(OpenMessage(folder.path()), HasSubstr("\"a\" twice"));
}

TEST(CheckpointTest, RefusesWhatIsNoModelFile) {
  TemporaryFolder folder;
  EXPECT_TRUE(absl::IsNotFound(Checkpoint::Open(folder.path() + "/absent.gguf").status()));
  EXPECT_THAT(OpenMessage(folder.Write("empty.gguf", std::string_view())), HasSubstr("empty.gguf"));
  EXPECT_NE(OpenMessage(folder.Write("empty.safetensors", std::string_view())), "");
  EXPECT_THAT(OpenMessage(folder.Write("text", std::string_view("hello, this is not a model"))),
              HasSubstr("neither GGUF nor safetensors"));
  const std::string pipe = folder.path() + "/pipe.gguf";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(OpenMessage(pipe), HasSubstr("not a regular file"));
  unlink(pipe.c_str());
}

TEST(CheckpointTest, KnowsTheFormatByTheBytesWhateverTheName) {
  TemporaryFolder folder;
  const auto gguf = Checkpoint::Open(folder.Write("blob-1", TinyModel().File()));
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  EXPECT_EQ((*gguf)->format(), CheckpointFormat::kGguf);
  const auto safetensors = Checkpoint::Open(
      folder.Write("blob-2", SafetensorsFile(std::vector<NamedFloats>{{.name = "x"}})));
  ASSERT_TRUE(safetensors.ok()) << safetensors.status();
  EXPECT_EQ((*safetensors)->format(), CheckpointFormat::kSafetensors);
}

TEST(FingerprintTest, DoesNotDependOnOrderPlaceOrShards) {
  TemporaryFolder one;
  one.Write("config.json", std::string_view("{}"));
  one.Write("model.safetensors", SafetensorsFile(std::vector<NamedFloats>{
                                     {.name = "a", .count = 300'000}, {.name = "b", .count = 2}}));
  TemporaryFolder two;
  two.Write("config.json", std::string_view("{\"x\":1}"));
  two.Write("1.safetensors", SafetensorsFile(std::vector<NamedFloats>{{.name = "b", .count = 2}}));
  two.Write("2.safetensors",
            SafetensorsFile(std::vector<NamedFloats>{{.name = "a", .count = 300'000}}));
  two.Write("model.safetensors.index.json",
            std::string_view(R"({"weight_map":{"a":"2.safetensors","b":"1.safetensors"}})"));
  const auto single = Checkpoint::Open(one.path());
  const auto sharded = Checkpoint::Open(two.path());
  ASSERT_TRUE(single.ok()) << single.status();
  ASSERT_TRUE(sharded.ok()) << sharded.status();
  EXPECT_EQ(ToHex(WeightsFingerprint(**single)), ToHex(WeightsFingerprint(**sharded)));
}

TEST(FingerprintTest, ChangesWithAnyByteNameTypeOrShape) {
  TemporaryFolder folder;
  std::vector<std::string> digests;
  const auto add = [&](const std::vector<std::byte>& file) {
    const auto checkpoint = Checkpoint::Open(folder.Write("x.safetensors", file));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    digests.push_back(ToHex(WeightsFingerprint(**checkpoint)));
  };
  std::vector<std::byte> file =
      SafetensorsFile(std::vector<NamedFloats>{{.name = "a", .count = 600'000}});
  add(file);
  file.back() ^= std::byte{1};  // in the last of three tiles
  add(file);
  file.back() ^= std::byte{1};
  file[file.size() - 2'400'000] ^= std::byte{1};  // in the first
  add(file);
  add(SafetensorsFile(std::vector<NamedFloats>{{.name = "b", .count = 600'000}}));
  add(SafetensorsFile(std::vector<NamedFloats>{{.name = "a", .dtype = "I32", .count = 600'000}}));
  add(SafetensorsFile(R"({"a":{"dtype":"F32","shape":[600,1000],"data_offsets":[0,2400000]}})",
                      2'400'000));
  for (size_t i = 0; i < digests.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(digests[i], digests[j]) << i << " " << j;
  }
}

TEST(FingerprintTest, IsRememberedUntilTheFileChanges) {
  TemporaryFolder folder;
  TemporaryFolder cache;
  std::vector<std::byte> file = SafetensorsFile(std::vector<NamedFloats>{{.name = "a"}});
  const std::string path = folder.Write("x.safetensors", file);
  const auto before = Checkpoint::Open(path);
  ASSERT_TRUE(before.ok());
  const Sha256Digest digest = CachedWeightsFingerprint(**before, cache.path());
  EXPECT_EQ(digest, WeightsFingerprint(**before));
  EXPECT_EQ(digest, CachedWeightsFingerprint(**before, cache.path()));
  // Replaced by another file of the same name and size.
  file.back() ^= std::byte{1};
  const std::string next = folder.Write("next", file);
  ASSERT_EQ(rename(next.c_str(), path.c_str()), 0);
  const auto after = Checkpoint::Open(path);
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(CachedWeightsFingerprint(**after, cache.path()), WeightsFingerprint(**after));
  EXPECT_NE(CachedWeightsFingerprint(**after, cache.path()), digest);
  ASSERT_EQ(system(absl::StrCat("rm ", cache.path(), "/weights-*").c_str()), 0);
}

TEST(FingerprintTest, IsComputedWhereTheCacheCannotBeUsed) {
  TemporaryFolder folder;
  const auto checkpoint = Checkpoint::Open(
      folder.Write("x.safetensors", SafetensorsFile(std::vector<NamedFloats>{{.name = "a"}})));
  ASSERT_TRUE(checkpoint.ok());
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(CachedWeightsFingerprint(**checkpoint, folder.path() + "/absent"),
            WeightsFingerprint(**checkpoint));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("fingerprint_not_cached"));
}

}  // namespace
}  // namespace cairn
