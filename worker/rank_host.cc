#include "worker/rank_host.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace cairn {
namespace {

constexpr int kMaxQueuedWork = 256;

// Lets the engine run a rank that outlives it.
class RankExecutor final : public StepExecutor {
 public:
  explicit RankExecutor(Rank* rank) : rank_(rank) {}
  absl::StatusOr<StepResult> Run(const StepPlan& plan) override { return rank_->Run(plan); }

 private:
  Rank* const rank_;
};

bool SameShare(const AssignMessage& a, const AssignMessage& b) {
  return a.rank == b.rank && a.size == b.size && a.settings == b.settings;
}

}  // namespace

RankHost::RankHost(const Options& options, const ClusterSecret* secret, RankLoader loader,
                   Callbacks callbacks)
    : options_(options),
      secret_(secret),
      loader_(std::move(loader)),
      callbacks_(std::move(callbacks)),
      work_(kMaxQueuedWork),
      thread_([this] {
        while (!work_.drained()) {
          if (auto work = work_.Pop(absl::Seconds(1))) (*work)();
        }
        DoLeave(epoch_, absl::CancelledError("the worker ends"));
      }) {}

RankHost::~RankHost() {
  ending_.store(true);
  work_.Close();
  thread_.join();
}

void RankHost::Enqueue(std::function<void()> work) {
  // The coordinator asks for one thing at a time: a full queue is a bug of ours.
  CHECK(work_.TryPush(std::move(work))) << "rank host: " << work_.size() << " calls wait";
}

void RankHost::Load(const AssignMessage& assignment, uint64_t load) {
  Enqueue([this, assignment, load] { DoLoad(assignment, load); });
}

void RankHost::Form(const FormMessage& form, int listener) {
  Enqueue([this, form, listener] { DoForm(form, listener); });
}

void RankHost::Leave(uint64_t epoch, const absl::Status& cause) {
  left_epoch_.store(epoch);
  Enqueue([this, epoch, cause] { DoLeave(epoch, cause); });
}

void RankHost::DoLoad(const AssignMessage& assignment, uint64_t load) {
  CHECK_EQ(epoch_, 0u);
  if (loaded_.rank == nullptr || !SameShare(assignment, assignment_)) {
    loaded_ = LoadedRank();
    absl::StatusOr<LoadedRank> loaded =
        loader_(assignment, [this, load](const Rank::LoadProgress& progress) {
          callbacks_.on_loading(load, progress);
        });
    if (!loaded.ok()) {
      callbacks_.on_loaded(load, loaded.status());
      return;
    }
    loaded_ = *std::move(loaded);
  }
  assignment_ = assignment;
  callbacks_.on_loaded(load, LoadedMessage{.weight_bytes = loaded_.rank->weight_bytes(),
                                           .read_bytes = loaded_.rank->read_bytes(),
                                           .kv_bytes = loaded_.kv_bytes,
                                           .threads = loaded_.num_threads,
                                           .max_request_tokens = loaded_.max_request_tokens,
                                           .identity = loaded_.identity});
}

absl::StatusOr<std::unique_ptr<Collective>> RankHost::Meet(const FormMessage& form, int listener) {
  const int rank = assignment_.rank, size = assignment_.size;
  if (size == 1) return NewSoloCollective(loaded_.max_message_bytes);
  // Whoever ends the epoch does not wait until those who still meet give up by themselves.
  const auto is_abandoned = [this, epoch = form.epoch] {
    return left_epoch_.load() == epoch || ending_.load();
  };
  if (!form.shm_name.empty()) {
    ShmCollectiveOptions options;
    options.name = form.shm_name;
    options.rank = rank;
    options.size = size;
    options.epoch = form.epoch;
    options.max_message_bytes = loaded_.max_message_bytes;
    options.timeout = options_.collective_timeout;
    options.is_abandoned = is_abandoned;
    return NewShmCollective(options);
  }
  if (static_cast<int>(form.addresses.size()) != size || listener < 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot form a group of ", size, " ranks: ", form.addresses.size(), " addresses"));
  }
  TcpCollectiveOptions options;
  options.rank = rank;
  options.size = size;
  options.addresses = form.addresses;
  options.listen_fd = listener;
  options.key = secret_->Derive(absl::StrCat("collective epoch ", form.epoch)).ToHexText();
  options.epoch = form.epoch;
  options.max_message_bytes = loaded_.max_message_bytes;
  options.timeout = options_.collective_timeout;
  options.is_abandoned = is_abandoned;
  return NewTcpCollective(std::move(options));
}

absl::Status RankHost::StartEngine(uint64_t epoch) {
  Engine::Options options;
  options.scheduler = loaded_.scheduler;
  options.idle_steps = assignment_.size > 1;
  options.on_delivered = callbacks_.on_delivered;
  engine_failed_.store(false);
  ASSIGN_OR_RETURN(engine_,
                   Engine::Start(options, std::make_unique<RankExecutor>(loaded_.rank.get()),
                                 [this, epoch](const absl::Status& cause) {
                                   engine_failed_.store(true);
                                   callbacks_.on_failed(epoch, cause);
                                 }));
  return absl::OkStatus();
}

void RankHost::DoForm(const FormMessage& form, int listener) {
  CHECK_EQ(epoch_, 0u);
  CHECK(loaded_.rank != nullptr);
  absl::StatusOr<std::unique_ptr<Collective>> collective = Meet(form, listener);
  if (!collective.ok()) {
    callbacks_.on_left(form.epoch, collective.status());
    return;
  }
  collective_ = *std::move(collective);
  loaded_.rank->JoinGroup(collective_.get());
  if (assignment_.rank == 0) {
    const absl::Status started = StartEngine(form.epoch);
    if (!started.ok()) {
      collective_.reset();
      callbacks_.on_left(form.epoch, started);
      return;
    }
    epoch_ = form.epoch;
    callbacks_.on_ready(form.epoch, engine_.get());
    return;
  }
  callbacks_.on_ready(form.epoch, nullptr);
  const absl::Status ended = loaded_.rank->Follow();
  collective_.reset();
  callbacks_.on_left(form.epoch,
                     ended.ok() ? absl::CancelledError("the leader ended the group") : ended);
}

void RankHost::DoLeave(uint64_t epoch, const absl::Status& cause) {
  if (epoch == 0 || epoch_ != epoch) return;
  epoch_ = 0;
  engine_.reset();
  if (assignment_.size > 1 && !engine_failed_.load()) {
    const absl::Status stopped = loaded_.rank->StopFollowers();
    if (!stopped.ok()) LOG(INFO) << "group.followers_not_stopped cause=" << stopped.message();
  }
  collective_.reset();
  callbacks_.on_left(epoch, cause);
}

}  // namespace cairn
