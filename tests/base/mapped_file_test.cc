#include "base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace cairn {
namespace {

using testing::HasSubstr;

class MappedFileTest : public testing::Test {
 protected:
  MappedFileTest() {
    std::string name = testing::TempDir() + "/mapped_file_XXXXXX";
    folder_ = mkdtemp(name.data());
    path_ = folder_ + "/file";
  }
  ~MappedFileTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  void Write(const std::string& text) { std::ofstream(path_) << text; }
  static std::string Text(const MappedFile& file) {
    return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  }
  std::string folder_, path_;
};

TEST_F(MappedFileTest, ShowsTheWholeFile) {
  Write("some bytes");
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(Text(*file), "some bytes");
  EXPECT_EQ(file->size_bytes(), 10);
  EXPECT_EQ(file->path(), path_);
}

TEST_F(MappedFileTest, AnEmptyFileHasNoBytes) {
  Write("");
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->bytes().empty());
}

TEST_F(MappedFileTest, NamesThePathOfAFileThatIsMissing) {
  for (const std::string& path : {path_, path_ + "/below"}) {
    const absl::Status status = MappedFile::Open(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
}

TEST_F(MappedFileTest, RefusesAFolderAndAPipeWithoutWaiting) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::Open(path_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MappedFile::Open(folder_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(MappedFileTest, StaysWhatItWasWhenTheFileIsReplacedByRename) {
  Write("old");
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path_);
  ASSERT_TRUE(file.ok());
  std::ofstream(folder_ + "/new") << "new text";
  std::error_code error;
  std::filesystem::rename(folder_ + "/new", path_, error);
  ASSERT_FALSE(error);
  EXPECT_EQ(Text(*file), "old");
  const absl::StatusOr<MappedFile> replaced = MappedFile::Open(path_);
  ASSERT_TRUE(replaced.ok());
  EXPECT_EQ(Text(*replaced), "new text");
  EXPECT_FALSE(file->identity() == replaced->identity());
  EXPECT_TRUE(replaced->identity() == MappedFile::Open(path_)->identity());
}

TEST_F(MappedFileTest, MovingKeepsTheMapping) {
  Write("first");
  MappedFile a = *MappedFile::Open(path_);
  const std::byte* const data = a.bytes().data();
  MappedFile b = std::move(a);
  EXPECT_EQ(b.bytes().data(), data);
  EXPECT_EQ(Text(b), "first");
  std::ofstream(folder_ + "/second") << "second";
  MappedFile c = *MappedFile::Open(folder_ + "/second");
  c = std::move(b);
  EXPECT_EQ(Text(c), "first");
}

}  // namespace
}  // namespace cairn
