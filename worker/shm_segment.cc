#include "worker/shm_segment.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"

namespace cairn {
namespace {

constexpr uint64_t kMagic = 0x6d68736e72696163;  // "cairnshm"
constexpr uint32_t kVersion = 1;
constexpr int64_t kPageBytes = 4096;
// How often a rank looks for the others while the group forms.
constexpr absl::Duration kFormationPoll = absl::Milliseconds(1);

int64_t RoundUpToPage(int64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

constexpr int64_t kReduceBytes = ShmView::kReduceFloats * static_cast<int64_t>(sizeof(float));

// Open-file-description locks: they belong to the descriptor, not to the process.
struct flock ByteLock(int rank) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

bool TryLock(int fd, int rank) {
  struct flock lock = ByteLock(rank);
  return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

// Whether another descriptor holds the byte. A file system without such locks says yes: then the
// timeout alone tells of deaths.
bool LockedByOther(int fd, int rank) {
  struct flock lock = ByteLock(rank);
  return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

absl::Status SystemError(std::string_view what, const std::string& name, int error) {
  const std::string message =
      absl::StrCat(std::string(what), ": name=", name, " reason=", strerror(error));
  switch (error) {
    case ENOSPC:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(message);
    case EACCES:
    case EPERM:
      return absl::FailedPreconditionError(message);
    default:
      return absl::UnavailableError(message);
  }
}

absl::Status CheckName(const std::string& name) {
  const bool valid = name.size() >= 2 && name.size() <= NAME_MAX && name[0] == '/' &&
                     name.find('/', 1) == std::string::npos && name.find('\0') == std::string::npos;
  if (valid) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("segment name must be a slash and 1 to ",
                                                 NAME_MAX - 1, " other characters: name=", name));
}

// Takes the name from a segment whose creator is dead.
// Errors: FailedPrecondition if the creator lives.
absl::Status RemoveAbandoned(const std::string& name) {
  const UniqueFd fd(shm_open(name.c_str(), O_RDWR, 0));
  if (!fd.valid() && errno == ENOENT) return absl::OkStatus();
  if (!fd.valid()) return SystemError("cannot open existing segment", name, errno);
  if (LockedByOther(fd.get(), 0)) {
    return absl::FailedPreconditionError(
        absl::StrCat("another group forms under the name of this segment: name=", name));
  }
  LOG(INFO) << "shm_segment event=abandoned_segment_removed name=" << name;
  shm_unlink(name.c_str());
  return absl::OkStatus();
}

absl::Status Mismatch(std::string_view field, uint64_t own, uint64_t found,
                      const std::string& name) {
  return absl::FailedPreconditionError(
      absl::StrCat("segment of another group: ", std::string(field), " own=", own, " found=", found,
                   " name=", name));
}

}  // namespace

ShmView::ShmView(std::byte* memory, int size, int64_t max_message_bytes)
    : memory_(memory), size_(size), max_message_bytes_(max_message_bytes) {}

int64_t ShmView::TotalBytes(int size, int64_t max_message_bytes) {
  return RoundUpToPage(sizeof(ShmHeader)) +
         size * 2 * (RoundUpToPage(max_message_bytes) + kReduceBytes);
}

std::byte* ShmView::GatherBuffer(int rank, uint32_t turn) const {
  const int64_t index = rank * 2 + turn % 2;
  return memory_ + RoundUpToPage(sizeof(ShmHeader)) + index * RoundUpToPage(max_message_bytes_);
}

float* ShmView::ReduceBuffer(int rank, uint32_t turn) const {
  const int64_t index = rank * 2 + turn % 2;
  return reinterpret_cast<float*>(GatherBuffer(size_, 0) + index * kReduceBytes);
}

void ShmView::Initialise(uint64_t epoch) const {
  auto* header = new (memory_) ShmHeader{};
  header->identity.version = kVersion;
  header->identity.size = size_;
  header->identity.epoch = epoch;
  header->identity.max_message_bytes = max_message_bytes_;
  header->identity.magic.store(kMagic, std::memory_order_release);
}

void ShmView::Break(std::string_view reason) const {
  ShmHeader& shared = header();
  uint32_t whole = 0;
  if (!shared.broken.compare_exchange_strong(whole, 1)) return;
  const size_t length = std::min(reason.size(), kMaxReasonBytes - 1);
  memcpy(shared.reason, reason.data(), length);
  shared.reason[length] = '\0';
  shared.broken.store(2, std::memory_order_release);
}

absl::Status ShmView::CheckUnbroken() const {
  const ShmHeader& shared = header();
  uint32_t broken = shared.broken.load(std::memory_order_acquire);
  if (broken == 0) return absl::OkStatus();
  // The reason is there in a moment, unless its writer dies now.
  for (int tries = 0; broken == 1 && tries < 1000; ++tries) {
    sched_yield();
    broken = shared.broken.load(std::memory_order_acquire);
  }
  if (broken != 2) return absl::UnavailableError("another rank of the group has failed");
  return absl::UnavailableError(CleanReason({shared.reason, kMaxReasonBytes}));
}

std::string ShmView::Name(int rank) const {
  return absl::StrCat("rank ", rank, " (process ",
                      header().members[rank].process_id.load(std::memory_order_relaxed), ")");
}

absl::StatusOr<std::unique_ptr<ShmSegment>> ShmSegment::Form(const ShmCollectiveOptions& options) {
  RETURN_IF_ERROR(CheckGroup(options.rank, options.size, options.max_message_bytes));
  RETURN_IF_ERROR(CheckName(options.name));
  const Deadline deadline = Deadline::After(options.timeout);
  auto segment = std::unique_ptr<ShmSegment>(new ShmSegment(options));
  RETURN_IF_ERROR(options.rank == 0 ? segment->Create(deadline) : segment->Join(deadline));
  return segment;
}

ShmSegment::~ShmSegment() {
  if (memory_ != nullptr) {
    munmap(memory_, ShmView::TotalBytes(options_.size, options_.max_message_bytes));
  }
}

ShmView ShmSegment::view() const {
  return ShmView(memory_, options_.size, options_.max_message_bytes);
}

bool ShmSegment::IsAlive(int rank) const {
  return rank == options_.rank || LockedByOther(fd_.get(), rank);
}

absl::Status ShmSegment::CheckWanted() const {
  if (!options_.is_abandoned || !options_.is_abandoned()) return absl::OkStatus();
  return absl::CancelledError("the formation of the group was given up");
}

absl::Status ShmSegment::Create(const Deadline& deadline) {
  RETURN_IF_ERROR(CreateFile());
  absl::Status status = Map();
  if (status.ok()) {
    view().Initialise(options_.epoch);
    ShmMember& self = view().header().members[0];
    self.process_id.store(getpid(), std::memory_order_relaxed);
    self.joined.store(1, std::memory_order_release);
    status = WaitForAll(deadline);
    // Those that came are told why they wait in vain.
    if (!status.ok()) view().Break({status.message().data(), status.message().size()});
  }
  shm_unlink(options_.name.c_str());
  return status;
}

absl::Status ShmSegment::CreateFile() {
  const int flags = O_RDWR | O_CREAT | O_EXCL;
  fd_.Reset(shm_open(options_.name.c_str(), flags, 0600));
  if (!fd_.valid() && errno == EEXIST) {
    RETURN_IF_ERROR(RemoveAbandoned(options_.name));
    fd_.Reset(shm_open(options_.name.c_str(), flags, 0600));
  }
  if (!fd_.valid()) return SystemError("cannot create segment", options_.name, errno);
  // Pages are taken now: a full file system would otherwise kill whoever writes the page it lacks.
  const int64_t bytes = ShmView::TotalBytes(options_.size, options_.max_message_bytes);
  int error = TryLock(fd_.get(), 0) ? 0 : EBUSY;
  while (error == 0) {
    error = posix_fallocate(fd_.get(), 0, bytes);
    if (error == 0) return absl::OkStatus();
    if (error == EINTR) error = 0;
  }
  shm_unlink(options_.name.c_str());
  return Annotate(SystemError("cannot allocate segment", options_.name, error),
                  absl::StrCat("shared memory of ", bytes, " bytes"));
}

absl::Status ShmSegment::Map() {
  const int64_t bytes = ShmView::TotalBytes(options_.size, options_.max_message_bytes);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (memory == MAP_FAILED) return SystemError("cannot map segment", options_.name, errno);
  memory_ = static_cast<std::byte*>(memory);
  return absl::OkStatus();
}

absl::Status ShmSegment::WaitForAll(const Deadline& deadline) {
  ShmHeader& header = view().header();
  while (true) {
    int missing = -1;
    for (int rank = options_.size - 1; rank > 0; --rank) {
      if (header.members[rank].joined.load(std::memory_order_acquire) == 0) {
        missing = rank;
      } else if (!IsAlive(rank)) {
        return absl::UnavailableError(
            absl::StrCat(view().Name(rank), " died while the group formed"));
      }
    }
    if (missing < 0) break;
    RETURN_IF_ERROR(CheckWanted());
    if (deadline.Passed()) return Timeout(missing);
    absl::SleepFor(kFormationPoll);
  }
  header.formed.store(1, std::memory_order_release);
  return absl::OkStatus();
}

absl::Status ShmSegment::Join(const Deadline& deadline) {
  while (true) {
    ASSIGN_OR_RETURN(const bool is_there, OpenFile());
    if (is_there) break;
    const absl::Status wanted = CheckWanted();
    if (!wanted.ok() || deadline.Passed()) {
      // What a dead creator has left behind under our name would stay for ever.
      RemoveAbandoned(options_.name).IgnoreError();
      return wanted.ok() ? Timeout(0) : wanted;
    }
    absl::SleepFor(kFormationPoll);
  }
  if (!TryLock(fd_.get(), options_.rank)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "another process has joined as this rank: rank=", options_.rank, " name=", options_.name));
  }
  RETURN_IF_ERROR(Map());
  ShmMember& self = view().header().members[options_.rank];
  self.process_id.store(getpid(), std::memory_order_relaxed);
  self.joined.store(1, std::memory_order_release);
  return WaitUntilFormed(deadline);
}

// Opens the segment if it is there, complete, and its creator alive; false if it is not (yet).
absl::StatusOr<bool> ShmSegment::OpenFile() {
  fd_.Reset(shm_open(options_.name.c_str(), O_RDWR, 0));
  if (!fd_.valid() && errno == ENOENT) return false;
  if (!fd_.valid()) return SystemError("cannot open segment", options_.name, errno);
  if (!LockedByOther(fd_.get(), 0)) return false;
  uint64_t magic = 0;
  if (pread(fd_.get(), &magic, sizeof magic, 0) != sizeof magic || magic == 0) return false;
  RETURN_IF_ERROR(CheckHeader());
  return true;
}

// Trusts nothing of the file before it is mapped: its owner, its length, its first fields.
absl::Status ShmSegment::CheckHeader() const {
  struct stat info;
  if (fstat(fd_.get(), &info) != 0) {
    return SystemError("cannot examine segment", options_.name, errno);
  }
  if (info.st_uid != geteuid()) {
    return Mismatch("user", geteuid(), info.st_uid, options_.name);
  }
  ShmIdentity found = {};
  if (pread(fd_.get(), &found, sizeof found, 0) != sizeof found) {
    return Mismatch("bytes", sizeof found, info.st_size, options_.name);
  }
  const uint64_t magic = found.magic.load(std::memory_order_relaxed);
  if (magic != kMagic) return Mismatch("magic", kMagic, magic, options_.name);
  if (found.version != kVersion) {
    return Mismatch("version", kVersion, found.version, options_.name);
  }
  if (found.epoch != options_.epoch) {
    return Mismatch("epoch", options_.epoch, found.epoch, options_.name);
  }
  if (found.size != options_.size) {
    return Mismatch("size", options_.size, found.size, options_.name);
  }
  if (found.max_message_bytes != options_.max_message_bytes) {
    return Mismatch("max_message_bytes", options_.max_message_bytes, found.max_message_bytes,
                    options_.name);
  }
  const int64_t bytes_needed = ShmView::TotalBytes(options_.size, options_.max_message_bytes);
  if (info.st_size != bytes_needed) {
    return Mismatch("bytes", bytes_needed, info.st_size, options_.name);
  }
  return absl::OkStatus();
}

absl::Status ShmSegment::WaitUntilFormed(const Deadline& deadline) {
  const ShmHeader& header = view().header();
  while (header.formed.load(std::memory_order_acquire) == 0) {
    RETURN_IF_ERROR(view().CheckUnbroken());
    const bool creator_lives = IsAlive(0);
    if (!creator_lives && header.formed.load(std::memory_order_acquire) == 0) {
      RETURN_IF_ERROR(view().CheckUnbroken());
      RemoveAbandoned(options_.name).IgnoreError();
      return absl::UnavailableError(absl::StrCat(view().Name(0), " died while the group formed"));
    }
    RETURN_IF_ERROR(CheckWanted());
    if (deadline.Passed()) {
      int missing = 0;
      for (int rank = options_.size - 1; rank > 0; --rank) {
        if (header.members[rank].joined.load(std::memory_order_relaxed) == 0) missing = rank;
      }
      return Timeout(missing);
    }
    absl::SleepFor(kFormationPoll);
  }
  return absl::OkStatus();
}

absl::Status ShmSegment::Timeout(int missing_rank) const {
  return absl::UnavailableError(
      absl::StrCat("rank has not come to form the group: rank=", missing_rank,
                   " timeout=", absl::FormatDuration(options_.timeout), " name=", options_.name));
}

}  // namespace cairn
