#include "model/gguf_split.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "model/fingerprint.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/safetensors_writer.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kParts = 3;

void AddPlace(GgufWriter* writer, int number, int count, int num_tensors) {
  writer->AddScalar<uint16_t>("split.no", 2, static_cast<uint16_t>(number));
  writer->AddScalar<uint16_t>("split.count", 2, static_cast<uint16_t>(count));
  writer->AddScalar<int32_t>("split.tensors.count", 5, num_tensors);
}

// TinyModel as gguf-split divides it: the first part has the key-values, tensors in the order of
// the file. A test changes single parts.
class GgufSplitTest : public ::testing::Test {
 protected:
  GgufSplitTest() : whole_(TinyModel()) {
    const auto num_tensors = static_cast<int>(whole_.tensors.size());
    parts_.resize(kParts);
    parts_[0] = whole_;
    parts_[0].tensors.clear();
    for (int i = 0; i < kParts; ++i) AddPlace(&parts_[i], i, kParts, num_tensors);
    for (int i = 0; i < num_tensors; ++i)
      parts_[i * kParts / num_tensors].tensors.push_back(whole_.tensors[i]);
    for (int i = 0; i < kParts; ++i) Write(i);
  }

  static std::string Name(int part, int count = kParts) {
    return absl::StrFormat("tiny-%05d-of-%05d.gguf", part + 1, count);
  }
  std::string Path(int part) const { return folder_.path() + "/" + Name(part); }
  void Write(int part) { folder_.Write(Name(part), parts_[part].File()); }

  // The refusal of the model after part `part` was written anew as `change` makes it.
  std::string MessageWith(int part, const std::function<void(GgufWriter&)>& change) {
    const GgufWriter before = parts_[part];
    change(parts_[part]);
    Write(part);
    const absl::Status status = Checkpoint::Open(Path(0)).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
    parts_[part] = before;
    Write(part);
    return std::string(status.message());
  }
  // Part `part` with another place in its key-values.
  std::string MessageWithPlace(int part, int number, int count, int num_tensors) {
    return MessageWith(part, [&](GgufWriter& writer) {
      GgufWriter other;
      AddPlace(&other, number, count, num_tensors);
      other.tensors = writer.tensors;
      writer = other;
    });
  }

  const GgufWriter whole_;
  TemporaryFolder folder_;
  std::vector<GgufWriter> parts_;
};

TEST_F(GgufSplitTest, OpensAllPartsFromAnyOfThemAsTheWholeModel) {
  const auto whole = Checkpoint::Open(folder_.Write("whole.gguf", whole_.File()));
  ASSERT_TRUE(whole.ok()) << whole.status();
  for (int part = 0; part < kParts; ++part) {
    const auto checkpoint = Checkpoint::Open(Path(part));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ((*checkpoint)->files().size(), size_t{kParts});
    EXPECT_EQ((*checkpoint)->tensors().size(), whole_.tensors.size());
    EXPECT_EQ(ToHex(WeightsFingerprint(**checkpoint)), ToHex(WeightsFingerprint(**whole)));
    EXPECT_EQ((*checkpoint)->metadata().Find("general.name")->AsString(), "tiny");
  }
}

TEST_F(GgufSplitTest, AFirstPartWithoutTensorsIsFine) {
  std::vector<GgufWriter::TensorRecord>& second = parts_[1].tensors;
  second.insert(second.end(), parts_[0].tensors.begin(), parts_[0].tensors.end());
  parts_[0].tensors.clear();
  Write(0);
  Write(1);
  const auto checkpoint = Checkpoint::Open(Path(0));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->tensors().size(), whole_.tensors.size());
}

TEST_F(GgufSplitTest, AModelOfOnePartNeedsNoSpecialName) {
  GgufWriter one = whole_;
  AddPlace(&one, 0, 1, static_cast<int>(one.tensors.size()));
  EXPECT_TRUE(Checkpoint::Open(folder_.Write("one.gguf", one.File())).ok());
}

TEST_F(GgufSplitTest, RefusesAMissingPartByName) {
  folder_.Remove(Name(1));
  for (const int part : {0, 2}) {
    const absl::Status status = Checkpoint::Open(Path(part)).status();
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("part 2 of 3"), HasSubstr(Name(1))));
  }
}

TEST_F(GgufSplitTest, RefusesAPartThatContradictsTheOthers) {
  const auto n = static_cast<int>(whole_.tensors.size());
  EXPECT_THAT(MessageWithPlace(1, 2, kParts, n),
              AllOf(HasSubstr(Name(1)), HasSubstr("split.no=2 expected=1")));
  EXPECT_THAT(MessageWithPlace(1, 1, 4, n),
              AllOf(HasSubstr(Name(1)), HasSubstr("split.count=4 expected=3")));
  EXPECT_THAT(MessageWithPlace(2, 2, kParts, n - 1),
              AllOf(HasSubstr(Name(2)), HasSubstr("split.tensors.count=11 expected=12")));
  EXPECT_THAT(
      MessageWith(1, [](GgufWriter& part) { part.AddString("general.architecture", "qwen2"); }),
      AllOf(HasSubstr(Name(1)), HasSubstr("general.architecture=qwen2 expected=llama")));
}

TEST_F(GgufSplitTest, RefusesAPartThatDoesNotSayItsPlace) {
  EXPECT_THAT(MessageWith(2, [](GgufWriter& part) { part = TinyModel(); }),
              AllOf(HasSubstr(Name(2)), HasSubstr("split.count")));
}

TEST_F(GgufSplitTest, RefusesPlacesThatCannotBe) {
  EXPECT_THAT(MessageWithPlace(0, 3, kParts, 12),
              AllOf(HasSubstr("split.no"), HasSubstr("value=3 limits=0..2")));
  EXPECT_THAT(MessageWithPlace(0, 0, 60000, 12),
              AllOf(HasSubstr("split.count"), HasSubstr("value=60000 limits=0..4096")));
  EXPECT_THAT(MessageWithPlace(0, 0, kParts, -1),
              AllOf(HasSubstr("split.tensors.count"), HasSubstr("value=-1")));
  EXPECT_THAT(MessageWith(0,
                          [](GgufWriter& part) {
                            part = TinyModel();
                            part.AddString("split.count", "3");
                          }),
              HasSubstr("split.count is no integer"));
}

TEST_F(GgufSplitTest, RefusesATensorInTwoPartsNamingBoth) {
  EXPECT_THAT(
      MessageWith(2, [&](GgufWriter& part) { part.tensors.push_back(parts_[1].tensors[0]); }),
      AllOf(HasSubstr(parts_[1].tensors[0].name), HasSubstr(Name(1)), HasSubstr(Name(2))));
}

TEST_F(GgufSplitTest, RefusesAnotherNumberOfTensorsThanDeclared) {
  EXPECT_THAT(MessageWith(2, [](GgufWriter& part) { part.tensors.pop_back(); }),
              AllOf(HasSubstr("tensors=11"), HasSubstr("split.tensors.count=12")));
}

TEST_F(GgufSplitTest, RefusesADamagedPartByName) {
  folder_.Write(Name(1), std::string_view("GGUF"));
  EXPECT_THAT(std::string(Checkpoint::Open(Path(0)).status().message()),
              AllOf(HasSubstr(Name(1)), HasSubstr("file ends")));
}

TEST_F(GgufSplitTest, RefusesAPartWhoseNameDoesNotSayItsPlace) {
  for (const std::string& name : {std::string("renamed.gguf"), Name(1), Name(0, 2)}) {
    const std::string path = folder_.Write("x" + name, parts_[0].File());
    EXPECT_THAT(std::string(Checkpoint::Open(path).status().message()),
                HasSubstr("expected=-00001-of-00003.gguf"))
        << name;
  }
}

}  // namespace
}  // namespace cairn
