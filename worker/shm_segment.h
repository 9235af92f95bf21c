// The memory that the ranks of one host share: its layout, how ranks meet in it, and who is alive.
//
// A segment is a POSIX shared-memory object that has a name only while the group forms. Each rank
// holds a lock on one byte of it, through its own descriptor, for as long as it lives: the kernel
// gives the lock back however the rank ends, so that a lock that is free tells of a death without
// process ids, which are reused and differ between containers. The descriptor is closed on exec; a
// child that is forked and does not exec would keep its parent alive in the others' eyes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/unique_handle.h"
#include "worker/collective.h"
#include "worker/deadline.h"
#include "worker/group_limits.h"

namespace cairn {

// How far one rank has come in one kind of exchange. Written by that rank alone but for `sleepers`.
struct alignas(64) ShmProgress {
  std::atomic<uint32_t> round;     // contributions published; a futex
  std::atomic<uint32_t> sleepers;  // ranks that sleep until `round` moves
  std::atomic<int64_t> length[2];  // of the contributions of even and odd turns
};

struct alignas(64) ShmMember {
  std::atomic<uint32_t> joined;
  std::atomic<uint32_t> left;
  std::atomic<int32_t> process_id;  // for messages only
};

// Which group a segment belongs to; checked by each rank before it maps the rest.
struct ShmIdentity {
  std::atomic<uint64_t> magic;  // written last: what follows is then complete
  uint32_t version;
  int32_t size;
  uint64_t epoch;
  int64_t max_message_bytes;
};

struct ShmHeader {
  ShmIdentity identity;

  alignas(64) std::atomic<uint32_t> formed;
  std::atomic<uint32_t> broken;  // 0 no, 1 the reason is being written, 2 it is there
  char reason[kMaxReasonBytes];  // the first cause

  ShmMember members[kMaxGroupSize];
  ShmProgress gather[kMaxGroupSize];
  ShmProgress reduce[kMaxGroupSize];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

// Where things are in a segment: the header, then for each rank two buffers for gathering and two
// for reducing, used in turn. Owns nothing.
// Thread: any.
class ShmView {
 public:
  // Floats of a reduction that pass through the segment at once.
  static constexpr int64_t kReduceFloats = 128 << 10;

  ShmView(std::byte* memory, int size, int64_t max_message_bytes);

  static int64_t TotalBytes(int size, int64_t max_message_bytes);

  int size() const { return size_; }
  int64_t max_message_bytes() const { return max_message_bytes_; }
  ShmHeader& header() const { return *reinterpret_cast<ShmHeader*>(memory_); }
  std::byte* GatherBuffer(int rank, uint32_t turn) const;
  float* ReduceBuffer(int rank, uint32_t turn) const;

  // Makes an empty header in zeroed memory.
  void Initialise(uint64_t epoch) const;
  // Keeps `reason` for all ranks unless there is a cause already.
  void Break(std::string_view reason) const;
  // OK, or Unavailable with the first cause.
  absl::Status CheckUnbroken() const;
  // "rank 2 (process 4711)".
  std::string Name(int rank) const;

 private:
  std::byte* memory_;
  int size_;
  int64_t max_message_bytes_;
};

// One rank's hold on a segment.
// Thread: any.
class ShmSegment {
 public:
  // Meets the other ranks as NewShmCollective says. Afterwards the segment has no name.
  // Errors: as NewShmCollective.
  static absl::StatusOr<std::unique_ptr<ShmSegment>> Form(const ShmCollectiveOptions& options);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  ShmView view() const;
  // Whether `rank`, which has joined, still holds the segment.
  bool IsAlive(int rank) const;

 private:
  explicit ShmSegment(const ShmCollectiveOptions& options) : options_(options) {}

  absl::Status Create(const Deadline& deadline);
  absl::Status CreateFile();
  absl::Status WaitForAll(const Deadline& deadline);
  absl::Status Join(const Deadline& deadline);
  absl::StatusOr<bool> OpenFile();
  absl::Status CheckHeader() const;
  absl::Status WaitUntilFormed(const Deadline& deadline);
  // Errors: Cancelled if the group is given up.
  absl::Status CheckWanted() const;
  absl::Status Map();
  absl::Status Timeout(int missing_rank) const;

  const ShmCollectiveOptions options_;
  UniqueFd fd_;
  std::byte* memory_ = nullptr;
};

}  // namespace cairn
