// serve: a whole local cluster, until Ctrl-C.
#include <atomic>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/cpu_quota.h"
#include "base/signal_watch.h"
#include "cli/api_client.h"
#include "cli/local_cluster.h"
#include "cli/model_flags.h"
#include "cli/progress_line.h"
#include "cli/verbs.h"

namespace cairn {
namespace {

constexpr int32_t kMaxLocalWorkers = 256;  // processes

struct ServeFlags {
  EngineFlags engine;
  int32_t groups = 1;
  int32_t port = 7070;
  std::string host = "127.0.0.1";
  bool insecure = false;
  std::string state_directory;
  std::string collective = "auto";
  int32_t max_running = 64;
  bool no_prefix_cache = false;
  int32_t drain_seconds = 5;
};

void AddFlags(ServeFlags* serve, FlagTable* flags) {
  flags->Add("groups", &serve->groups, 1, 64, "groups of ranks, each with the whole model");
  flags->Add("port", &serve->port, 1, 65535, "where clients connect");
  flags->Add("host", &serve->host, "ADDRESS", "where to listen");
  flags->Add("insecure", &serve->insecure,
             "allow a host that is not loopback, unencrypted: only on a trusted network");
  flags->Add("state-dir", &serve->state_directory, "DIR",
             "secret and logs; by default ~/.local/state/cairn/serve-<port>");
  flags->AddChoice("collective", &serve->collective, {"auto", "shm", "tcp"},
                   "how ranks exchange data; auto is shared memory here");
  flags->Add("max-running", &serve->max_running, 1, 4096, "sequences computed at once");
  flags->Add("no-prefix-cache", &serve->no_prefix_cache, "never reuse KV between requests");
  flags->Add("drain-seconds", &serve->drain_seconds, 0, 86400,
             "how long running requests may take to finish after Ctrl-C or `cairn drain`");
  AddEngineFlags(&serve->engine, flags);
}

std::string Endpoint(const ServeFlags& serve) {
  const bool is_v6 = serve.host.find(':') != std::string::npos;
  return is_v6 ? absl::StrFormat("[%s]:%d", serve.host, serve.port)
               : absl::StrFormat("%s:%d", serve.host, serve.port);
}

std::vector<std::string> CoordinatorArguments(const ServeFlags& serve) {
  const EngineFlags& engine = serve.engine;
  std::vector<std::string> arguments = {absl::StrCat("--model=", engine.model),
                                        absl::StrCat("--listen=", Endpoint(serve)),
                                        absl::StrCat("--tp=", engine.tp),
                                        absl::StrCat("--groups=", serve.groups),
                                        absl::StrCat("--collective=", serve.collective),
                                        absl::StrCat("--numerics=", engine.numerics),
                                        absl::StrCat("--activations=", engine.activations),
                                        absl::StrCat("--kv-dtype=", engine.kv_dtype),
                                        absl::StrCat("--block-tokens=", engine.block_tokens),
                                        absl::StrCat("--context=", engine.context_tokens),
                                        absl::StrCat("--max-running=", serve.max_running),
                                        absl::StrCat("--drain-seconds=", serve.drain_seconds)};
  if (engine.chunk > 0) arguments.push_back(absl::StrCat("--chunk=", engine.chunk));
  if (engine.kv_memory_bytes > 0) {
    arguments.push_back(absl::StrCat("--kv-memory=", engine.kv_memory_bytes));
  }
  if (serve.insecure) arguments.push_back("--insecure");
  if (serve.no_prefix_cache) arguments.push_back("--no-prefix-cache");
  return arguments;
}

std::vector<std::string> WorkerArguments(const ServeFlags& serve, int32_t threads,
                                         const std::string& state_directory) {
  const bool anywhere = serve.host == "0.0.0.0" || serve.host == "::";
  const std::string coordinator =
      anywhere ? absl::StrFormat("127.0.0.1:%d", serve.port) : Endpoint(serve);
  return {absl::StrCat("--model=", serve.engine.model),
          absl::StrCat("--coordinator=", coordinator),
          absl::StrCat("--threads=", threads),
          absl::StrCat("--isa=", serve.engine.isa),
          absl::StrCat("--cache-dir=", state_directory),
          absl::StrCat("--drain-seconds=", serve.drain_seconds)};
}

std::string Banner(const ServeFlags& serve, const StatusView& status, int32_t threads) {
  const std::string endpoint = Endpoint(serve);
  const std::string at =
      endpoint == kDefaultEndpoint ? std::string() : absl::StrCat(" --endpoint ", endpoint);
  return absl::StrFormat(
      "%s is served at %s (%d %s, %d %s each)\n"
      "  ask:     cairn chat%s \"Why is the sky blue?\"\n"
      "  look:    cairn status%s\n"
      "  stop:    Ctrl-C",
      status.model, endpoint, serve.engine.tp * serve.groups,
      serve.engine.tp * serve.groups == 1 ? "rank" : "ranks", threads,
      threads == 1 ? "thread" : "threads", at, at);
}

bool HasOurRank(const LocalCluster& cluster, const StatusView& status) {
  for (const GroupView& group : status.groups) {
    for (const RankView& rank : group.ranks) {
      if (cluster.Owns(rank.pid)) return true;
    }
  }
  return false;
}

// Shows what the cluster does until a signal comes or it is drained. Errors: what ended it for
// good.
absl::Status WatchCluster(LocalCluster* cluster, const ServeFlags& serve, int32_t threads,
                          const std::atomic<int>& signals, ProgressLine* progress) {
  DrainProgress drain(progress);
  bool serving = false, answered = false;
  absl::Time next_look = absl::Now();
  while (signals.load() == 0 && !cluster->drained()) {
    RETURN_IF_ERROR(cluster->Watch());
    if (absl::Now() >= next_look) {
      // A connection a look: a coordinator that ends waits for those that are open and idle.
      absl::StatusOr<StatusView> status =
          ApiClient::Create(Endpoint(serve))->Status(absl::Seconds(1));
      next_look = absl::Now() + (serving ? absl::Seconds(1) : absl::Milliseconds(150));
      // On a port that is taken the other coordinator answers, until ours has said so and ended.
      if (status.ok() && !HasOurRank(*cluster, *status)) status = absl::UnavailableError("");
      if (status.ok() && status->serving && !serving) {
        progress->Say(Banner(serve, *status, threads));
      }
      if (status.ok() && status->draining) {
        drain.Show(status->requests_in_flight);
      } else if (status.ok() && !status->serving) {
        progress->Show(status->loading, status->waiting_for);
      }
      if (!status.ok() && !answered) progress->Show(0, "starting the coordinator");
      if (status.ok()) serving = status->serving;
      answered |= status.ok();
    }
    absl::SleepFor(absl::Milliseconds(50));
  }
  return absl::OkStatus();
}

absl::Status Serve(const ServeFlags& serve, const std::atomic<int>& signals) {
  LocalCluster::Options options;
  ASSIGN_OR_RETURN(options.program_directory, ProgramDirectory());
  options.state_directory = serve.state_directory;
  if (options.state_directory.empty()) {
    ASSIGN_OR_RETURN(options.state_directory,
                     DefaultStateDirectory(absl::StrCat("serve-", serve.port)));
  }
  options.num_workers = serve.engine.tp * serve.groups;
  if (options.num_workers > kMaxLocalWorkers) {
    return absl::InvalidArgumentError(
        absl::StrCat("groups x tp too many for one machine: ", options.num_workers, ", limit ",
                     kMaxLocalWorkers));
  }
  const int32_t threads = serve.engine.threads > 0
                              ? serve.engine.threads
                              : ReadCpuLimits().ThreadsPerRank(options.num_workers);
  options.coordinator_arguments = CoordinatorArguments(serve);
  options.worker_arguments = WorkerArguments(serve, threads, options.state_directory);
  options.drain_limit = absl::Seconds(serve.drain_seconds);

  ProgressLine progress(stdout);
  ASSIGN_OR_RETURN(LocalCluster cluster, LocalCluster::Start(options, [&](const std::string& line) {
                     progress.Say(line);
                   }));
  const absl::Status status = WatchCluster(&cluster, serve, threads, signals, &progress);
  if (status.ok()) {
    progress.Say(cluster.drained() ? "drained: ending"
                                   : "ending: running requests may finish; Ctrl-C again kills");
  }
  const int seen = signals.load();
  cluster.Stop([&] { return signals.load() > seen; });
  return status;
}

}  // namespace

int RunServe(const Arguments& arguments) {
  ServeFlags serve;
  FlagTable flags;
  AddFlags(&serve, &flags);
  const ParsedVerb parsed = ParseVerb(
      "usage: cairn serve --model PATH [--tp N] [--groups G] [--port P] [flags]\n"
      "Starts a coordinator and N x G workers on this machine and serves the model until Ctrl-C,\n"
      "or until `cairn drain`.\n"
      "A process that dies is started again; streams that were running end with an error.",
      &flags, arguments, 0);
  if (parsed.done) return parsed.exit_status;
  if (serve.engine.model.empty()) return ReportUsage("--model is missing: see cairn serve --help");
  std::atomic<int> signals{0};
  const SignalWatch watch([&](int) { signals.fetch_add(1); });
  const absl::Status status = Serve(serve, signals);
  return status.ok() ? 0 : ReportRefusal(status);
}

}  // namespace cairn
