// A whole file mapped read-only.
//
// The size is the one at Open: a file that is cut short while mapped raises SIGBUS when the missing
// part is read, so files that are mapped must be replaced by rename, never rewritten in place.
// Thread: any; constant after Open. Move-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace cairn {

// What tells one state of a file from another without reading it.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t size_bytes = 0;
  int64_t modified_ns = 0;  // mtime
  int64_t changed_ns = 0;   // ctime, which cannot be set back

  bool operator==(const FileIdentity&) const = default;
};

class MappedFile {
 public:
  // Errors: NotFound; PermissionDenied; InvalidArgument if it is not a regular file; Unavailable
  // with the system's text for anything else.
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  const FileIdentity& identity() const { return identity_; }
  int64_t size_bytes() const { return identity_.size_bytes; }
  std::span<const std::byte> bytes() const {
    return {data_, static_cast<size_t>(identity_.size_bytes)};
  }

 private:
  MappedFile() = default;
  void Unmap();

  std::string path_;
  FileIdentity identity_;
  const std::byte* data_ = nullptr;
};

}  // namespace cairn
