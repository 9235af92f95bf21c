// The hello of the control stream: both sides prove that they know the cluster secret before either
// parses anything but these three byte strings of fixed size.
//
// Thread: one at a time.
#pragma once

#include <string>
#include <string_view>

#include "base/secret.h"
#include "base/status.h"

namespace cairn {

inline constexpr int64_t kMaxHelloBytes = 64;

// The worker's side. Open() is sent; the answer goes into Answer, whose result is sent.
class ControlDialer {
 public:
  explicit ControlDialer(const ClusterSecret* secret);  // must outlive this
  std::string Open() const;
  // Errors: PermissionDenied if the other side does not know the secret.
  absl::StatusOr<std::string> Answer(std::string_view challenge);

 private:
  const ClusterSecret* const secret_;
  Hello hello_;
};

// The coordinator's side. Challenge takes what Open() made, and its result is sent; Check takes
// what Answer made.
class ControlListener {
 public:
  explicit ControlListener(const ClusterSecret* secret);  // must outlive this
  // Errors: PermissionDenied unless `opening` is a hello of this version.
  absl::StatusOr<std::string> Challenge(std::string_view opening);
  // Errors: PermissionDenied if the other side does not know the secret.
  absl::Status Check(std::string_view proof) const;

 private:
  const ClusterSecret* const secret_;
  Hello hello_;
};

}  // namespace cairn
