#include "model/fingerprint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "base/unique_handle.h"
#include "model/utf8.h"

namespace cairn {
namespace {

constexpr std::string_view kDomain = "cairn weights fingerprint 1";

void UpdateInteger(Sha256& hash, int64_t value) {
  hash.Update(std::as_bytes(std::span(&value, 1)));
}

// Length first, so that no two lists of texts give the same bytes.
void UpdateText(Sha256& hash, std::string_view text) {
  UpdateInteger(hash, static_cast<int64_t>(text.size()));
  hash.Update(text);
}

// Names the state of all files of the checkpoint.
std::string CachePath(const Checkpoint& checkpoint, const std::string& cache_directory) {
  Sha256 hash;
  UpdateText(hash, kDomain);
  for (const MappedFile& file : checkpoint.files()) {
    const FileIdentity& identity = file.identity();
    UpdateInteger(hash, static_cast<int64_t>(identity.device));
    UpdateInteger(hash, static_cast<int64_t>(identity.inode));
    UpdateInteger(hash, identity.size_bytes);
    UpdateInteger(hash, identity.modified_ns);
    UpdateInteger(hash, identity.changed_ns);
  }
  return absl::StrCat(cache_directory, "/weights-", ToHex(hash.Finish()), ".sha256");
}

std::optional<Sha256Digest> ReadCache(const std::string& path) {
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  Sha256Digest digest;
  if (!file.ok() || file->size_bytes() != static_cast<int64_t>(2 * digest.size())) {
    return std::nullopt;
  }
  const absl::string_view hex(reinterpret_cast<const char*>(file->bytes().data()),
                              file->bytes().size());
  if (!std::all_of(hex.begin(), hex.end(), [](char c) { return absl::ascii_isxdigit(c); })) {
    return std::nullopt;
  }
  const std::string bytes = absl::HexStringToBytes(hex);
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

// Written beside and renamed, so that a reader sees all of it or nothing.
void WriteCache(const std::string& path, const Sha256Digest& digest) {
  const std::string temporary = absl::StrCat(path, ".", getpid());
  const std::string hex = ToHex(digest);
  UniqueFd file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const bool written =
      file.valid() && write(file.get(), hex.data(), hex.size()) == static_cast<ssize_t>(hex.size());
  file.Reset();
  if (written && rename(temporary.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  unlink(temporary.c_str());
  LOG(WARNING) << "fingerprint_not_cached path=" << Printable(path)
               << " error=" << strerrordesc_np(error);
}

}  // namespace

Sha256Digest WeightsFingerprint(const Checkpoint& checkpoint) {
  Sha256 root;
  UpdateText(root, kDomain);
  UpdateInteger(root, static_cast<int64_t>(checkpoint.tensors().size()));
  for (const Tensor& tensor : checkpoint.tensors()) {
    UpdateText(root, tensor.name);
    UpdateText(root, tensor.type_name);
    UpdateInteger(root, static_cast<int64_t>(tensor.shape.size()));
    for (const int64_t extent : tensor.shape) UpdateInteger(root, extent);
    const auto bytes = static_cast<int64_t>(tensor.data.size());
    UpdateInteger(root, bytes);
    for (int64_t begin = 0; begin < bytes; begin += kFingerprintTileBytes) {
      const int64_t count = std::min(kFingerprintTileBytes, bytes - begin);
      const Sha256Digest tile =
          HashSha256(tensor.data.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)));
      root.Update(AsBytes(tile));
    }
  }
  return root.Finish();
}

Sha256Digest CachedWeightsFingerprint(const Checkpoint& checkpoint,
                                      const std::string& cache_directory) {
  const std::string path = CachePath(checkpoint, cache_directory);
  if (const std::optional<Sha256Digest> cached = ReadCache(path)) return *cached;
  const Sha256Digest digest = WeightsFingerprint(checkpoint);
  WriteCache(path, digest);
  return digest;
}

}  // namespace cairn
