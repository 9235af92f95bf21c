// The cluster secret, and the proof by which two programs of a cluster know each other before
// either parses anything but a fixed-size hello.
//
// The client sends its nonce; the server answers with a nonce and Prove(kServer); the client checks
// it and sends Prove(kClient). Both proofs cover both nonces and the purpose of the connection, so
// that none can be replayed, reflected or used on another port.
//
// Thread: any.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/sha256.h"
#include "base/status.h"

namespace cairn {

using Nonce = std::array<uint8_t, 32>;

// Fresh random bytes from the kernel. Errors: none; a kernel without randomness ends the process.
Nonce MakeNonce();

enum class HelloRole : uint8_t { kClient = 1, kServer = 2 };

struct Hello {
  std::string purpose;  // which port and for what: "collective epoch 7"
  Nonce client_nonce{};
  Nonce server_nonce{};
};

// Never printed, never logged.
class ClusterSecret {
 public:
  static constexpr int kBytes = 32;

  explicit ClusterSecret(const std::array<uint8_t, kBytes>& bytes);
  // A new one, for a cluster that lives in one process tree.
  static ClusterSecret Random();

  Sha256Digest Prove(HelloRole role, const Hello& hello) const;
  // Whether `proof` is what the other side, in that role, must have sent. Takes constant time.
  bool Verify(HelloRole role, const Hello& hello, std::string_view proof) const;

  // A key that shows nothing of this secret or of other purposes' keys ("collective epoch 7").
  ClusterSecret Derive(std::string_view purpose) const;

  // For a file of mode 0600, or a message on a connection that is already proven.
  std::string ToHexText() const;
  // Errors: InvalidArgument (which does not repeat the text) unless 64 hexadecimal digits.
  static absl::StatusOr<ClusterSecret> FromHexText(std::string_view text);

 private:
  std::array<uint8_t, kBytes> bytes_;
};

// Reads the secret in `path`: 64 hexadecimal digits and a newline.
// Errors: NotFound; PermissionDenied unless it is a regular file of ours (or root's) that nobody
// else may read or write; InvalidArgument for other contents.
absl::StatusOr<ClusterSecret> ReadSecretFile(const std::string& path);

// The same, making the file with a random secret first if there is none. Of several processes that
// do so at once all get the same secret.
// Errors: as ReadSecretFile; Internal if it cannot be written.
absl::StatusOr<ClusterSecret> ReadOrCreateSecretFile(const std::string& path);

}  // namespace cairn
