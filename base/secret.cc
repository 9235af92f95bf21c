#include "base/secret.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/unique_handle.h"

namespace cairn {
namespace {

// A field with its length before it: no two lists of fields encode alike.
void AppendField(std::string* out, std::string_view field) {
  for (int shift = 56; shift >= 0; shift -= 8) {
    out->push_back(static_cast<char>(static_cast<uint64_t>(field.size()) >> shift));
  }
  out->append(field);
}

std::string_view AsText(const std::array<uint8_t, 32>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::array<uint8_t, 32> RandomBytes() {
  std::array<uint8_t, 32> bytes;
  // The kernel gives up to 256 bytes in one piece once it has randomness at all.
  ssize_t got;
  do {
    got = getrandom(bytes.data(), bytes.size(), 0);
  } while (got < 0 && errno == EINTR);
  CHECK_EQ(got, static_cast<ssize_t>(bytes.size())) << strerror(errno);
  return bytes;
}

absl::Status FileError(std::string_view what, const std::string& path) {
  const std::string reason = strerror(errno);
  return absl::InternalError(
      absl::StrCat("cannot ", std::string(what), " secret file: path=", path, " reason=", reason));
}

// Fills a private file and then gives it its name, which fails if another process was first: the
// file is never seen half written.
absl::Status CreateSecretFile(const std::string& path) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".", ToHex(AsText(MakeNonce())));
  const UniqueFd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return FileError("create", path);
  const std::string text = ClusterSecret::Random().ToHexText() + "\n";
  const bool written =
      write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      fsync(fd.get()) == 0;
  absl::Status status;
  if (!written) status = FileError("write", path);
  if (written && link(temporary.c_str(), path.c_str()) != 0 && errno != EEXIST) {
    status = FileError("name", path);
  }
  unlink(temporary.c_str());
  return status;
}

absl::Status CheckPrivate(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return FileError("examine", path);
  const bool ours = info.st_uid == geteuid() || info.st_uid == 0;
  const int open_bits = info.st_mode & (S_IRWXG | S_IRWXO);
  if (S_ISREG(info.st_mode) && ours && open_bits == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "secret file must be a regular file of this user with mode 0600: path=", path, " mode=",
      absl::StrCat("0", absl::Hex(info.st_mode >> 6 & 7), absl::Hex(info.st_mode >> 3 & 7),
                   absl::Hex(info.st_mode & 7)),
      " owner=", info.st_uid));
}

}  // namespace

Nonce MakeNonce() { return RandomBytes(); }

ClusterSecret::ClusterSecret(const std::array<uint8_t, kBytes>& bytes) : bytes_(bytes) {}

ClusterSecret ClusterSecret::Random() { return ClusterSecret(RandomBytes()); }

Sha256Digest ClusterSecret::Prove(HelloRole role, const Hello& hello) const {
  std::string message;
  AppendField(&message, "cairn hello 1");
  AppendField(&message, std::string(1, static_cast<char>(role)));
  AppendField(&message, hello.purpose);
  AppendField(&message, AsText(hello.client_nonce));
  AppendField(&message, AsText(hello.server_nonce));
  return HmacSha256(AsText(bytes_), message);
}

bool ClusterSecret::Verify(HelloRole role, const Hello& hello, std::string_view proof) const {
  return ConstantTimeEqual(AsBytes(Prove(role, hello)), proof);
}

ClusterSecret ClusterSecret::Derive(std::string_view purpose) const {
  std::string message;
  AppendField(&message, "cairn derive 1");
  AppendField(&message, purpose);
  return ClusterSecret(HmacSha256(AsText(bytes_), message));
}

std::string ClusterSecret::ToHexText() const { return ToHex(AsText(bytes_)); }

absl::StatusOr<ClusterSecret> ClusterSecret::FromHexText(std::string_view text) {
  const bool valid = text.size() == 2 * kBytes &&
                     text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  if (!valid) {
    return absl::InvalidArgumentError(
        absl::StrCat("secret must be 64 lower-case hexadecimal digits: characters=", text.size()));
  }
  const std::string decoded = absl::HexStringToBytes(absl::string_view(text.data(), text.size()));
  std::array<uint8_t, kBytes> bytes;
  std::copy(decoded.begin(), decoded.end(), bytes.begin());
  return ClusterSecret(bytes);
}

absl::StatusOr<ClusterSecret> ReadSecretFile(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid() && errno == ENOENT) {
    return absl::NotFoundError(absl::StrCat("no secret file: path=", path));
  }
  if (!fd.valid()) return FileError("open", path);
  RETURN_IF_ERROR(CheckPrivate(fd.get(), path));
  char text[2 * ClusterSecret::kBytes + 2];
  const ssize_t size = read(fd.get(), text, sizeof text);
  if (size < 0) return FileError("read", path);
  std::string_view line(text, size);
  if (!line.empty() && line.back() == '\n') line.remove_suffix(1);
  absl::StatusOr<ClusterSecret> secret = ClusterSecret::FromHexText(line);
  if (!secret.ok()) return Annotate(secret.status(), path);
  return secret;
}

absl::StatusOr<ClusterSecret> ReadOrCreateSecretFile(const std::string& path) {
  absl::StatusOr<ClusterSecret> secret = ReadSecretFile(path);
  if (!absl::IsNotFound(secret.status())) return secret;
  RETURN_IF_ERROR(CreateSecretFile(path));
  return ReadSecretFile(path);
}

}  // namespace cairn
