#include "proto/control_hello.h"

#include <algorithm>

#include "base/sha256.h"

namespace cairn {
namespace {

constexpr std::string_view kMagic = "CAIRNc01";
constexpr size_t kNonceBytes = std::tuple_size_v<Nonce>;
constexpr size_t kProofBytes = std::tuple_size_v<Sha256Digest>;
constexpr char kPurpose[] = "control";

std::string_view NonceBytes(const Nonce& nonce) {
  return {reinterpret_cast<const char*>(nonce.data()), nonce.size()};
}

void ReadNonce(std::string_view bytes, Nonce* nonce) {
  std::copy_n(bytes.begin(), kNonceBytes, nonce->begin());
}

}  // namespace

ControlDialer::ControlDialer(const ClusterSecret* secret) : secret_(secret) {
  hello_.purpose = kPurpose;
  hello_.client_nonce = MakeNonce();
}

std::string ControlDialer::Open() const {
  std::string bytes(kMagic);
  bytes += NonceBytes(hello_.client_nonce);
  return bytes;
}

absl::StatusOr<std::string> ControlDialer::Answer(std::string_view challenge) {
  if (challenge.size() != kNonceBytes + kProofBytes) {
    return absl::PermissionDeniedError("the coordinator's hello has the wrong size");
  }
  ReadNonce(challenge, &hello_.server_nonce);
  if (!secret_->Verify(HelloRole::kServer, hello_, challenge.substr(kNonceBytes))) {
    return absl::PermissionDeniedError(
        "the coordinator does not know this cluster's secret: compare the secret files");
  }
  return std::string(AsBytes(secret_->Prove(HelloRole::kClient, hello_)));
}

ControlListener::ControlListener(const ClusterSecret* secret) : secret_(secret) {
  hello_.purpose = kPurpose;
  hello_.server_nonce = MakeNonce();
}

absl::StatusOr<std::string> ControlListener::Challenge(std::string_view opening) {
  if (opening.size() != kMagic.size() + kNonceBytes || opening.substr(0, kMagic.size()) != kMagic) {
    return absl::PermissionDeniedError("not a hello of this version");
  }
  ReadNonce(opening.substr(kMagic.size()), &hello_.client_nonce);
  std::string bytes(NonceBytes(hello_.server_nonce));
  bytes += AsBytes(secret_->Prove(HelloRole::kServer, hello_));
  return bytes;
}

absl::Status ControlListener::Check(std::string_view proof) const {
  if (!secret_->Verify(HelloRole::kClient, hello_, proof)) {
    return absl::PermissionDeniedError("the peer does not know this cluster's secret");
  }
  return absl::OkStatus();
}

}  // namespace cairn
