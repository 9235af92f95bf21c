#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/unique_handle.h"

namespace cairn {
namespace {

absl::Status SystemError(const std::string& path, std::string_view operation, int error) {
  const std::string message = absl::StrCat(
      path, ": cannot ", absl::string_view(operation.data(), operation.size()), ": ",
      strerrordesc_np(error) != nullptr ? strerrordesc_np(error) : absl::StrCat("error ", error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(message);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(message);
  return absl::UnavailableError(message);
}

int64_t Nanoseconds(const timespec& time) {
  return static_cast<int64_t>(time.tv_sec) * 1000000000 + time.tv_nsec;
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe that nobody writes would wait for ever.
  const UniqueFd descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!descriptor.valid()) return SystemError(path, "open", errno);
  struct stat status;
  if (fstat(descriptor.get(), &status) != 0) return SystemError(path, "stat", errno);
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  MappedFile file;
  file.path_ = path;
  file.identity_ = {.device = status.st_dev,
                    .inode = status.st_ino,
                    .size_bytes = status.st_size,
                    .modified_ns = Nanoseconds(status.st_mtim),
                    .changed_ns = Nanoseconds(status.st_ctim)};
  if (status.st_size == 0) return file;  // mmap refuses a length of 0
  void* const data = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE,
                          descriptor.get(), 0);
  if (data == MAP_FAILED) return SystemError(path, "map", errno);
  file.data_ = static_cast<const std::byte*>(data);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  Unmap();
  path_ = std::move(other.path_);
  identity_ = std::exchange(other.identity_, FileIdentity{});
  data_ = std::exchange(other.data_, nullptr);
  return *this;
}

MappedFile::~MappedFile() { Unmap(); }

void MappedFile::Unmap() {
  if (data_ == nullptr) return;
  munmap(const_cast<std::byte*>(data_), static_cast<size_t>(identity_.size_bytes));
  data_ = nullptr;
}

}  // namespace cairn
