// Contributions pass through buffers that every rank has mapped; a counter per rank says how many
// it has published.
//
// Each rank has two buffers, used in turn. A rank that has seen everybody's contribution k+1 knows
// that everybody has read contribution k, because each publishes k+1 after it has read k. So it may
// fill the buffer of k again for k+2 without asking anybody.
//
// Waiting starts with a spin (if every rank can have a core), then gives the core away for a
// moment, then sleeps on the counter of the rank that is late.
#include "worker/shm_collective.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/cpu_quota.h"
#include "base/log.h"
#include "base/spin_budget.h"
#include "worker/deadline.h"
#include "worker/group_limits.h"

namespace cairn {
namespace {

constexpr absl::Duration kYieldTime = absl::Microseconds(200);
// A yield that takes longer has given the core to somebody else's work, which keeps it for some
// milliseconds; a sleeper is put back at once when its peer wakes it. So for some waits after that
// there is no yielding: under a foreign load this makes the slowest steps several times faster.
constexpr absl::Duration kContendedYield = absl::Microseconds(100);
constexpr int kWaitsAfterContention = 256;
// A sleeper looks this often whether its peers are alive.
constexpr absl::Duration kSleepSlice = absl::Milliseconds(100);
// Up to here all ranks add everything; beyond, each adds a part and the parts are gathered. Two
// ranks always do the former: it moves as many bytes and waits once instead of twice.
constexpr size_t kOneShotFloats = 16 << 10;
// Parts of a reduction start at cache lines.
constexpr size_t kPartAlignment = 16;

void FutexWait(std::atomic<uint32_t>* word, uint32_t expected, absl::Duration timeout) {
  const timespec relative = absl::ToTimespec(timeout);
  syscall(SYS_futex, word, FUTEX_WAIT, expected, &relative, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

// Rounds wrap around; two that are compared are never far apart.
bool IsAtLeast(uint32_t round, uint32_t least) { return static_cast<int32_t>(round - least) >= 0; }

bool HasReached(const ShmProgress& progress, uint32_t round) {
  return IsAtLeast(progress.round.load(std::memory_order_acquire), round);
}

class ShmCollective final : public Collective {
 public:
  // `segment` is null if the memory is shared by threads.
  ShmCollective(const ShmView& view, std::unique_ptr<ShmSegment> segment, int rank,
                absl::Duration timeout)
      : segment_(std::move(segment)),
        view_(view),
        rank_(rank),
        timeout_(timeout),
        spins_(ReadCpuLimits().usable >= view.size()),
        gather_(view.header().gather),
        reduce_(view.header().reduce),
        gather_round_(gather_[rank].round.load()),
        reduce_round_(reduce_[rank].round.load()) {}
  ~ShmCollective() override;

  int rank() const override { return rank_; }
  int size() const override { return view_.size(); }
  int64_t max_message_bytes() const override { return view_.max_message_bytes(); }
  std::byte* Outbox() override { return view_.GatherBuffer(rank_, gather_round_); }
  absl::Status AllGatherV(int64_t bytes) override;
  std::span<const std::byte> Inbox(int rank) const override;
  absl::Status AllReduceSum(std::span<float> x) override;
  void SetTimeout(absl::Duration timeout) override { timeout_ = timeout; }

 private:
  absl::Status StartCall();
  void Publish(ShmProgress* channel, uint32_t round);
  absl::Status WaitForAll(ShmProgress* channel, uint32_t round);
  absl::Status Wait(ShmProgress* channel, int peer, uint32_t round);
  absl::Status Sleep(ShmProgress* channel, int peer, uint32_t round);
  absl::Status CheckPeers(const ShmProgress* channel, int awaited, uint32_t round,
                          bool asks_kernel);
  absl::Status Fail(const absl::Status& cause);
  absl::Status ReduceBuffered(std::span<float> x);
  absl::Status ReduceInParts(std::span<float> x, std::span<const float* const> buffers,
                             float* sums);

  const std::unique_ptr<ShmSegment> segment_;
  const ShmView view_;
  const int rank_;
  absl::Duration timeout_;
  const bool spins_;
  SpinBudget spin_budget_;
  ShmProgress* const gather_;  // [size]
  ShmProgress* const reduce_;  // [size]

  uint32_t gather_round_;  // contributions published; the turn of the outbox
  uint32_t reduce_round_;
  uint32_t reduce_turn_ = 0;
  std::array<int64_t, kMaxGroupSize> inbox_bytes_{};
  // Of the call under way; set when it first has to wait for long.
  std::optional<Deadline> deadline_;
  int num_waits_without_yield_ = 0;
  absl::Status failure_;  // the group is unusable once this is set
};

ShmCollective::~ShmCollective() {
  view_.header().members[rank_].left.store(1);
  FutexWakeAll(&gather_[rank_].round);
  FutexWakeAll(&reduce_[rank_].round);
}

absl::Status ShmCollective::StartCall() {
  if (!failure_.ok()) return failure_;
  deadline_.reset();
  if (view_.header().broken.load(std::memory_order_relaxed) == 0) return absl::OkStatus();
  return Fail(view_.CheckUnbroken());
}

absl::Status ShmCollective::AllGatherV(int64_t bytes) {
  CHECK(bytes >= 0 && bytes <= max_message_bytes()) << bytes;
  RETURN_IF_ERROR(StartCall());
  const uint32_t turn = gather_round_ % 2;
  gather_[rank_].length[turn].store(bytes, std::memory_order_relaxed);
  Publish(gather_, ++gather_round_);
  RETURN_IF_ERROR(WaitForAll(gather_, gather_round_));
  for (int peer = 0; peer < size(); ++peer) {
    // Read once: another process may write it at any time.
    const int64_t length = gather_[peer].length[turn].load(std::memory_order_relaxed);
    if (length < 0 || length > max_message_bytes()) {
      return Fail(absl::UnavailableError(absl::StrCat(view_.Name(peer),
                                                      " contributes a wrong length: bytes=", length,
                                                      " limit=", max_message_bytes())));
    }
    inbox_bytes_[peer] = length;
  }
  return absl::OkStatus();
}

std::span<const std::byte> ShmCollective::Inbox(int rank) const {
  CHECK(rank >= 0 && rank < size()) << rank;
  return {view_.GatherBuffer(rank, gather_round_ - 1), static_cast<size_t>(inbox_bytes_[rank])};
}

absl::Status ShmCollective::AllReduceSum(std::span<float> x) {
  RETURN_IF_ERROR(StartCall());
  if (size() == 1) return absl::OkStatus();
  for (size_t begin = 0; begin < x.size(); begin += ShmView::kReduceFloats) {
    const size_t length = std::min<size_t>(x.size() - begin, ShmView::kReduceFloats);
    RETURN_IF_ERROR(ReduceBuffered(x.subspan(begin, length)));
  }
  return absl::OkStatus();
}

// Reduces what fits in the buffers of one turn.
absl::Status ShmCollective::ReduceBuffered(std::span<float> x) {
  const uint32_t turn = reduce_turn_++ % 2;
  std::array<const float*, kMaxGroupSize> all;
  for (int peer = 0; peer < size(); ++peer) all[peer] = view_.ReduceBuffer(peer, turn);
  const std::span<const float* const> buffers(all.data(), size());

  memcpy(view_.ReduceBuffer(rank_, turn), x.data(), x.size_bytes());
  const auto own_length = static_cast<int64_t>(x.size());
  reduce_[rank_].length[turn].store(own_length, std::memory_order_relaxed);
  Publish(reduce_, ++reduce_round_);
  RETURN_IF_ERROR(WaitForAll(reduce_, reduce_round_));
  for (int peer = 0; peer < size(); ++peer) {
    const int64_t length = reduce_[peer].length[turn].load(std::memory_order_relaxed);
    if (length != own_length) {
      return Fail(absl::UnavailableError(absl::StrCat(
          view_.Name(peer), " adds another length: own=", own_length, " found=", length)));
    }
  }
  if (size() > 2 && x.size() > kOneShotFloats) {
    return ReduceInParts(x, buffers, view_.ReduceBuffer(0, turn));
  }
  SumInRankOrder(buffers, x.size(), x.data());
  return absl::OkStatus();
}

// `sums` is rank 0's buffer: each rank adds its own part in place there, where no other rank
// touches it, and takes all parts from there.
absl::Status ShmCollective::ReduceInParts(std::span<float> x, std::span<const float* const> buffers,
                                          float* sums) {
  const auto part_begin = [&](size_t part) {
    return x.size() * part / buffers.size() / kPartAlignment * kPartAlignment;
  };
  const size_t begin = part_begin(rank_);
  const size_t end = rank_ + 1 == size() ? x.size() : part_begin(rank_ + 1);
  std::array<const float*, kMaxGroupSize> parts;
  for (int peer = 0; peer < size(); ++peer) parts[peer] = buffers[peer] + begin;
  SumInRankOrder({parts.data(), buffers.size()}, end - begin, sums + begin);
  Publish(reduce_, ++reduce_round_);
  RETURN_IF_ERROR(WaitForAll(reduce_, reduce_round_));
  memcpy(x.data(), sums, x.size_bytes());
  return absl::OkStatus();
}

void ShmCollective::Publish(ShmProgress* channel, uint32_t round) {
  ShmProgress& own = channel[rank_];
  // Both in one total order: either the sleeper sees the new round or we see the sleeper.
  own.round.store(round, std::memory_order_seq_cst);
  if (own.sleepers.load(std::memory_order_seq_cst) != 0) FutexWakeAll(&own.round);
}

absl::Status ShmCollective::WaitForAll(ShmProgress* channel, uint32_t round) {
  for (int peer = 0; peer < size(); ++peer) {
    if (HasReached(channel[peer], round)) continue;
    RETURN_IF_ERROR(Wait(channel, peer, round));
  }
  return absl::OkStatus();
}

absl::Status ShmCollective::Wait(ShmProgress* channel, int peer, uint32_t round) {
  if (spins_ && spin_budget_.SpinUntil([&] { return HasReached(channel[peer], round); }))
    return absl::OkStatus();
  if (!deadline_.has_value()) deadline_ = Deadline::After(timeout_);
  if (num_waits_without_yield_ > 0) {
    --num_waits_without_yield_;
    return Sleep(channel, peer, round);
  }
  const Deadline yield_end = Deadline::After(kYieldTime);
  while (!yield_end.Passed()) {
    const Deadline contended = Deadline::After(kContendedYield);
    sched_yield();
    if (contended.Passed()) num_waits_without_yield_ = kWaitsAfterContention;
    if (HasReached(channel[peer], round)) return absl::OkStatus();
  }
  return Sleep(channel, peer, round);
}

absl::Status ShmCollective::Sleep(ShmProgress* channel, int peer, uint32_t round) {
  ShmProgress& progress = channel[peer];
  Deadline slice_end = Deadline::After(kSleepSlice);
  while (!HasReached(progress, round)) {
    // Asking the kernel who lives costs more than a short wait.
    const bool asks_kernel = slice_end.Passed();
    if (asks_kernel) slice_end = Deadline::After(kSleepSlice);
    RETURN_IF_ERROR(CheckPeers(channel, peer, round, asks_kernel));
    progress.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = progress.round.load(std::memory_order_seq_cst);
    if (!IsAtLeast(seen, round)) {
      FutexWait(&progress.round, seen, std::min(slice_end.Remaining(), deadline_->Remaining()));
    }
    progress.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
  return absl::OkStatus();
}

// Fails if `awaited`, or any rank that is late, will not come.
absl::Status ShmCollective::CheckPeers(const ShmProgress* channel, int awaited, uint32_t round,
                                       bool asks_kernel) {
  for (int peer = 0; peer < size(); ++peer) {
    const bool left = view_.header().members[peer].left.load(std::memory_order_acquire) != 0;
    const bool dead = asks_kernel && segment_ != nullptr && !segment_->IsAlive(peer);
    // In this order: it may have published and then gone.
    if ((!left && !dead) || HasReached(channel[peer], round)) continue;
    return Fail(absl::UnavailableError(
        absl::StrCat(view_.Name(peer), left ? " has left the group" : " has died")));
  }
  if (const absl::Status broken = view_.CheckUnbroken(); !broken.ok()) return Fail(broken);
  if (!deadline_->Passed() || HasReached(channel[awaited], round)) return absl::OkStatus();
  return Fail(absl::UnavailableError(absl::StrCat(view_.Name(awaited), " has not arrived within ",
                                                  absl::FormatDuration(timeout_))));
}

// Makes the failure final, tells the others, and returns the first cause of the group.
absl::Status ShmCollective::Fail(const absl::Status& cause) {
  view_.Break({cause.message().data(), cause.message().size()});
  for (int peer = 0; peer < size(); ++peer) {
    FutexWakeAll(&gather_[peer].round);
    FutexWakeAll(&reduce_[peer].round);
  }
  failure_ = view_.CheckUnbroken();
  return failure_;
}

}  // namespace

std::unique_ptr<Collective> NewShmCollectiveInMemory(const ShmView& view, int rank,
                                                     absl::Duration timeout) {
  return std::make_unique<ShmCollective>(view, nullptr, rank, timeout);
}

absl::StatusOr<std::unique_ptr<Collective>> NewShmCollective(const ShmCollectiveOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<ShmSegment> segment, ShmSegment::Form(options));
  const ShmView view = segment->view();
  return std::unique_ptr<Collective>(
      new ShmCollective(view, std::move(segment), options.rank, options.timeout));
}

}  // namespace cairn
