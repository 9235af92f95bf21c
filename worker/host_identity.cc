#include "worker/host_identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/network_address.h"

namespace cairn {
namespace {

absl::StatusOr<std::string> IdentityOf(const char* path) {
  struct stat status {};
  if (stat(path, &status) != 0) return absl::InternalError(absl::StrCat("cannot stat ", path));
  return absl::StrFormat("%x:%x", status.st_dev, status.st_ino);
}

}  // namespace

absl::StatusOr<std::string> MemoryDomain() {
  ASSIGN_OR_RETURN(const std::string network, LoopbackDomain());
  ASSIGN_OR_RETURN(const std::string memory, IdentityOf("/dev/shm"));
  ASSIGN_OR_RETURN(const std::string processes, IdentityOf("/proc/self/ns/pid"));
  return absl::StrCat(network, "|", memory, "|", processes);
}

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

}  // namespace cairn
