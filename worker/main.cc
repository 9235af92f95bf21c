// cairn-worker: one rank of one group. It dials the coordinator and does what it is told.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/flag_table.h"
#include "base/log.h"
#include "base/network_address.h"
#include "base/process_start.h"
#include "base/secret.h"
#include "base/signal_watch.h"
#include "model/checkpoint.h"
#include "model/model_config.h"
#include "model/model_digest.h"
#include "model/tokenizer.h"
#include "worker/control_client.h"
#include "worker/group_member.h"
#include "worker/host_identity.h"
#include "worker/rank_loader.h"

namespace cairn {
namespace {

// Exit statuses: whoever restarts workers need not restart one that will never fit.
constexpr int kExitFailed = 1, kExitRefused = 2;

struct WorkerOptions {
  std::string model;
  std::string coordinator = "127.0.0.1:7070";
  std::string secret_file;
  std::string advertise;
  std::string cache_directory;
  std::string isa = "auto";
  int32_t threads = 0, local_ranks = 0;
  int32_t drain_seconds = 30;
  int32_t collective_timeout_seconds = 10;
};

void AddFlags(WorkerOptions* options, FlagTable* flags) {
  flags->Add("model", &options->model, "PATH", "GGUF file, safetensors file or model folder");
  flags->AddHostPort("coordinator", &options->coordinator, "whom to dial");
  flags->Add("secret-file", &options->secret_file, "PATH", "the coordinator's cluster secret");
  flags->Add("advertise", &options->advertise, "ADDRESS|interface:NAME|subnet:NET",
             "where other ranks reach this one; by default the address from which the route to "
             "the coordinator leaves");
  flags->Add("threads", &options->threads, 0, 256,
             "0: the CPUs that affinity and control-group quota allow, divided among the ranks of "
             "this host");
  flags->Add("local-ranks", &options->local_ranks, 0, kMaxGroupSize * kMaxGroups,
             "how many workers share this host's CPUs; 0: as the coordinator counts");
  flags->AddChoice("isa", &options->isa, {"avx2", "avx512", "auto"},
                   "instruction set of the kernels");
  flags->Add("cache-dir", &options->cache_directory, "DIR",
             "keeps content hashes of weights between starts");
  flags->Add("drain-seconds", &options->drain_seconds, 0, 86400,
             "how long running requests may take to finish at the end");
  flags->Add("collective-timeout", &options->collective_timeout_seconds, 1, 3600,
             "seconds a rank waits for another one before it is lost");
}

GroupMember::Options MemberOptions(const WorkerOptions& options, std::string digest,
                                   const std::string& coordinator_host,
                                   const std::string& loopback_domain,
                                   const std::string& memory_domain) {
  GroupMember::Options member;
  RegisterMessage& registration = member.registration;
  registration.host = HostName();
  registration.worker = absl::StrCat(registration.host, ":", getpid());
  registration.loopback_domain = loopback_domain;
  registration.memory_domain = memory_domain;
  registration.pid = getpid();
  const Nonce nonce = MakeNonce();
  registration.instance = ToHex(std::string_view(reinterpret_cast<const char*>(nonce.data()), 16));
  registration.model_digest = std::move(digest);
  registration.threads = options.threads;
  member.choose_address = [choice = options.advertise,
                           coordinator_host]() -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(const NetworkView network, ReadNetwork());
    return ChooseAdvertisedAddress(choice, coordinator_host, network);
  };
  member.drain_timeout = absl::Seconds(options.drain_seconds);
  member.host.collective_timeout = absl::Seconds(options.collective_timeout_seconds);
  return member;
}

// Errors: before the member runs.
absl::StatusOr<int> Run(const WorkerOptions& options) {
  if (options.model.empty()) return absl::InvalidArgumentError("--model is missing: see --help");
  if (options.secret_file.empty()) {
    return absl::InvalidArgumentError("--secret-file is missing: see --help");
  }
  ASSIGN_OR_RETURN(const HostPort coordinator, ParseHostPort(options.coordinator));
  ASSIGN_OR_RETURN(const Isa isa, ChooseIsa(options.isa));
  ASSIGN_OR_RETURN(const ClusterSecret secret, ReadSecretFile(options.secret_file));
  ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(options.model));
  ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(*checkpoint));
  RETURN_IF_ERROR(ValidateWeights(*checkpoint, config).status());
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                   Tokenizer::FromCheckpoint(*checkpoint));
  ASSIGN_OR_RETURN(const std::string loopback_domain, LoopbackDomain());
  ASSIGN_OR_RETURN(const std::string memory_domain, MemoryDomain());

  // Signals reach the member, which is made after the threads' signal mask is set.
  std::atomic<GroupMember*> target{nullptr};
  const SignalWatch signals([&](int) {
    if (GroupMember* member = target.load()) member->RequestEnd();
  });
  GroupMember member(MemberOptions(options, ModelDigest(*checkpoint, config), coordinator.host,
                                   loopback_domain, memory_domain),
                     &secret,
                     NewRankLoader(checkpoint.get(), &config, tokenizer.get(),
                                   {.threads = options.threads,
                                    .local_ranks = options.local_ranks,
                                    .isa = isa,
                                    .cache_directory = options.cache_directory}));
  target.store(&member);
  LOG(INFO) << "worker.starts model=" << options.model << " coordinator=" << options.coordinator
            << " isa=" << IsaName(isa);
  std::unique_ptr<ControlClient> client =
      ControlClient::Start({.coordinator = options.coordinator}, &secret, member.callbacks());
  std::string why;
  const MemberEnd end = member.Run(&why);
  target.store(nullptr);
  client.reset();
  LOG(INFO) << "worker.ends cause=" << (why.empty() ? "asked to" : why);
  if (end == MemberEnd::kDone) return 0;
  std::fprintf(stderr, "cairn-worker: %s\n", why.c_str());
  return kExitRefused;
}

int Main(const std::vector<std::string>& args) {
  WorkerOptions options;
  FlagTable flags;
  AddFlags(&options, &flags);
  const absl::StatusOr<CommandLine> line = ReadCommandLine(
      "usage: cairn-worker --model PATH --coordinator HOST:PORT --secret-file PATH [flags]\n"
      "One rank of a cluster; the coordinator says which. `cairn serve` starts both.",
      &flags, args, 0);
  if (line.ok() && line->done) return 0;
  absl::Status status = line.status();
  SetLogTag("worker");
  if (status.ok()) {
    const absl::StatusOr<int> exit_status = Run(options);
    if (exit_status.ok()) return *exit_status;
    status = exit_status.status();
  }
  std::fprintf(stderr, "cairn-worker: %s\n", std::string(status.message()).c_str());
  return absl::IsUnavailable(status) ? kExitFailed : kExitRefused;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  cairn::StartProcess("cairn-worker");
  return cairn::Main({argv + 1, argv + argc});
}
