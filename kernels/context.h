// Where CPU kernels run: a team of threads in step, and the instruction set chosen at start.
//
// All threads of a team run the same code. An op computes only the calling thread's fixed share of
// its output; what other threads computed may be read after Context::Sync(). Shares are contiguous
// and the same for the life of the process, so that each thread's weights stay in one stream.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "base/status.h"

namespace cairn {

struct CpuKernels;  // the functions compiled per instruction set: kernels/cpu_kernels.h

enum class Isa { kAvx2, kAvx512 };

// `name`: "auto" (the widest this processor has), "avx2" or "avx512" (F, BW, VL, DQ and VNNI).
// Errors: InvalidArgument for another name; FailedPrecondition if the processor lacks it, also
// when it lacks the floor (AVX2, FMA, F16C).
absl::StatusOr<Isa> ChooseIsa(std::string_view name);
std::string_view IsaName(Isa isa);
// The functions of an instruction set that ChooseIsa has found on this processor.
const CpuKernels& CpuKernelsFor(Isa isa);

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Part `index` of n things among `parts`: contiguous, sizes differ by at most one.
constexpr Range Split(int64_t n, int64_t parts, int64_t index) {
  return {n * index / parts, n * (index + 1) / parts};
}

class ThreadTeam;

// One thread's place in its team. Thread: the one it was handed to.
class Context {
 public:
  int thread() const { return thread_; }
  int num_threads() const { return num_threads_; }
  const CpuKernels& cpu() const { return *cpu_; }
  // This thread's share of n things.
  Range Share(int64_t n) const { return Split(n, num_threads_, thread_); }
  // Waits until every thread of the team has called it. Spins as long as that pays, then yields,
  // then sleeps: on a busy machine the others may not be running. A thread that keeps another from
  // its processor moves to one of the others that it may use.
  void Sync() const;

 private:
  friend class ThreadTeam;
  int thread_ = 0, num_threads_ = 1;
  const CpuKernels* cpu_ = nullptr;
  ThreadTeam* team_ = nullptr;
};

// A fixed set of threads. Thread: Run is called by one thread at a time, the team's owner, which
// takes part as thread 0.
class ThreadTeam {
 public:
  struct Options {
    int num_threads = 1;  // at least 1
    Isa isa = Isa::kAvx2;
  };
  // Errors: InvalidArgument for num_threads outside 1..kMaxThreads; ResourceExhausted if the system
  // gives no thread.
  static absl::StatusOr<std::unique_ptr<ThreadTeam>> Create(const Options& options);
  virtual ~ThreadTeam() = default;

  // Runs `work` on every thread at once and returns when all have finished.
  virtual void Run(absl::FunctionRef<void(const Context&)> work) = 0;
  virtual int num_threads() const = 0;

  static constexpr int kMaxThreads = 256;

 protected:
  friend class Context;
  virtual void Sync(int thread) = 0;
  static Context MakeContext(int thread, int num_threads, Isa isa, ThreadTeam* team);
};

}  // namespace cairn
