#include "kernels/context.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/spin_budget.h"
#include "kernels/cpu_kernels.h"

namespace cairn {
namespace {

// On a machine with other work each yield can cost a whole time slice, a sleeper is woken at once:
// so few.
constexpr int kYields = 2;
// Where all processors are busy, threads are not to chase each other.
constexpr std::chrono::milliseconds kLeastStay(2);

// Moves the calling thread to another of the processors it may use, and lets it use all of them as
// before: the system may move it on.
void LeaveProcessor(int processor) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  cpu_set_t others = allowed;
  CPU_CLR(processor, &others);
  if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof(others), &others) != 0) return;
  if (sched_setaffinity(0, sizeof(allowed), &allowed) != 0)
    LOG(WARNING) << "team.stays_on_fewer_processors cause=" << strerror(errno);
}

// Lets `count` threads leave Wait together, again and again.
class Barrier {
 public:
  explicit Barrier(int count) : count_(count), places_(count) {}

  // Arrives for `parties` threads, of which the caller, `thread`, is one, and waits for the rest.
  void Wait(int thread, int parties = 1) {
    const uint32_t round = round_.load(std::memory_order_relaxed);
    places_[thread].processor.store(sched_getcpu(), std::memory_order_relaxed);
    places_[thread].rounds.store(round + 1, std::memory_order_relaxed);
    if (arrived_.fetch_add(parties, std::memory_order_acq_rel) + parties == count_) {
      arrived_.store(0, std::memory_order_relaxed);
      // In one order with the sleeper's count: either it sees the new round or we see the sleeper.
      round_.store(round + 1, std::memory_order_seq_cst);
      if (sleepers_.load(std::memory_order_seq_cst) > 0) Wake();
      return;
    }
    if (SpinWhile(thread, round)) return;
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (round_.load(std::memory_order_seq_cst) == round) SleepWhile(round);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  bool Left(uint32_t round) const { return round_.load(std::memory_order_acquire) != round; }

  bool SpinWhile(int thread, uint32_t round) {
    while (!spin_.SpinUntil([&] { return Left(round); })) {
      const int processor = sched_getcpu();
      if (!KeepsAnotherOut(thread, round, processor)) break;
      LeaveProcessor(processor);
    }
    for (int i = 0; i < kYields; ++i) {
      if (Left(round)) return true;
      sched_yield();
    }
    return Left(round);
  }

  // Whether a thread that the caller waits for was last seen on the caller's own processor: it
  // cannot run before the caller leaves. The system puts a woken thread there at times, and takes
  // many milliseconds to see that another processor has nothing to do.
  bool KeepsAnotherOut(int thread, uint32_t round, int processor) {
    for (int other = 0; other < count_; ++other) {
      if (other == thread || places_[other].rounds.load(std::memory_order_relaxed) == round + 1 ||
          places_[other].processor.load(std::memory_order_relaxed) != processor)
        continue;
      const auto now = std::chrono::steady_clock::now();
      if (now - places_[thread].moved < kLeastStay) return false;
      places_[thread].moved = now;
      return true;
    }
    return false;
  }

  // A futex rather than a condition variable: the waker pays nothing when nobody sleeps. Returns
  // at once if the round has changed; false wake-ups are the caller's loop's.
  void SleepWhile(uint32_t round) {
    syscall(SYS_futex, &round_, FUTEX_WAIT_PRIVATE, round, nullptr, nullptr, 0);
  }
  void Wake() { syscall(SYS_futex, &round_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }

  struct alignas(64) Place {  // of a thread
    std::atomic<int> processor{-1};
    std::atomic<uint32_t> rounds{0};              // it has arrived in
    std::chrono::steady_clock::time_point moved;  // the thread's own
  };

  const int count_;
  std::vector<Place> places_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> round_{0};
  static_assert(sizeof(round_) == sizeof(uint32_t));  // the kernel reads it as one
  std::atomic<int> sleepers_{0};
  SpinBudget spin_;
};

class CpuTeam : public ThreadTeam {
 public:
  explicit CpuTeam(const Options& options)
      : isa_(options.isa), num_threads_(options.num_threads), barrier_(options.num_threads) {}
  ~CpuTeam() override;

  absl::Status Start();
  void Run(absl::FunctionRef<void(const Context&)> work) override;
  int num_threads() const override { return num_threads_; }

 protected:
  void Sync(int thread) override {
    if (num_threads_ > 1) barrier_.Wait(thread);
  }

 private:
  struct Member {
    CpuTeam* team;
    int thread;
    pthread_t handle;
  };
  static void* Main(void* member);
  void Loop(int thread);

  const Isa isa_;
  const int num_threads_;
  Barrier barrier_;
  std::vector<Member> members_;  // threads 1 ..; never resized once the first runs
  // Written by the owner before a barrier, read by the others after it.
  const absl::FunctionRef<void(const Context&)>* work_ = nullptr;
  bool stop_ = false;
};

absl::Status CpuTeam::Start() {
  members_.reserve(num_threads_ - 1);
  for (int thread = 1; thread < num_threads_; ++thread) {
    members_.push_back({this, thread, {}});
    const int error = pthread_create(&members_.back().handle, nullptr, Main, &members_.back());
    if (error != 0) {
      members_.pop_back();
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot start a compute thread: ", strerror(error),
                       ": started=", members_.size(), " wanted=", num_threads_ - 1));
    }
    pthread_setname_np(members_.back().handle, absl::StrCat("cairn-cpu-", thread).c_str());
  }
  return absl::OkStatus();
}

CpuTeam::~CpuTeam() {
  stop_ = true;
  // Arrives for itself and for threads that never started.
  if (!members_.empty()) barrier_.Wait(0, num_threads_ - static_cast<int>(members_.size()));
  for (const Member& member : members_) pthread_join(member.handle, nullptr);
}

void* CpuTeam::Main(void* member) {
  const auto* self = static_cast<const Member*>(member);
  self->team->Loop(self->thread);
  return nullptr;
}

void CpuTeam::Loop(int thread) {
  const Context context = MakeContext(thread, num_threads_, isa_, this);
  for (;;) {
    barrier_.Wait(thread);
    if (stop_) return;
    (*work_)(context);
    barrier_.Wait(thread);
  }
}

void CpuTeam::Run(absl::FunctionRef<void(const Context&)> work) {
  work_ = &work;
  Sync(0);
  work(MakeContext(0, num_threads_, isa_, this));
  Sync(0);
  work_ = nullptr;
}

bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool HasAvx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

}  // namespace

absl::StatusOr<Isa> ChooseIsa(std::string_view name) {
  if (name != "auto" && name != "avx2" && name != "avx512") {
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown instruction set: isa=", std::string(name), " known=auto, avx2, avx512"));
  }
  if (!HasAvx2()) {
    return absl::FailedPreconditionError(
        "this processor is too old: AVX2, FMA and F16C are needed (x86-64-v3, 2013 or later)");
  }
  if (name == "avx2" || (name == "auto" && !HasAvx512())) return Isa::kAvx2;
  if (HasAvx512()) return Isa::kAvx512;
  return absl::FailedPreconditionError(
      "this processor lacks AVX-512 F, BW, VL, DQ or VNNI: isa=avx512");
}

std::string_view IsaName(Isa isa) { return isa == Isa::kAvx512 ? "avx512" : "avx2"; }

const CpuKernels& CpuKernelsFor(Isa isa) {
  return isa == Isa::kAvx512 ? avx512::Kernels() : avx2::Kernels();
}

void Context::Sync() const { team_->Sync(thread_); }

absl::StatusOr<std::unique_ptr<ThreadTeam>> ThreadTeam::Create(const Options& options) {
  if (options.num_threads < 1 || options.num_threads > kMaxThreads) {
    return absl::InvalidArgumentError(absl::StrCat(
        "number of threads out of range: threads=", options.num_threads, " max=", kMaxThreads));
  }
  auto team = std::make_unique<CpuTeam>(options);
  RETURN_IF_ERROR(team->Start());
  return team;
}

Context ThreadTeam::MakeContext(int thread, int num_threads, Isa isa, ThreadTeam* team) {
  Context context;
  context.thread_ = thread;
  context.num_threads_ = num_threads;
  context.cpu_ = &CpuKernelsFor(isa);
  context.team_ = team;
  return context;
}

}  // namespace cairn
