// cairn-coordinator: front door, membership and text of one cluster that serves one model.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/bounded_queue.h"
#include "base/flag_table.h"
#include "base/log.h"
#include "base/process_start.h"
#include "base/secret.h"
#include "base/signal_watch.h"
#include "coordinator/cairn_service.h"
#include "coordinator/cluster_loop.h"
#include "coordinator/control_service.h"
#include "coordinator/grpc_server.h"
#include "coordinator/served_model.h"
#include "coordinator/text_workers.h"
#include "model/checkpoint.h"
#include "model/model_config.h"
#include "model/model_digest.h"

namespace cairn {
namespace {

constexpr int kMaxQueuedPrompts = 1024;

struct CoordinatorOptions {
  std::string model;                      // path
  std::string listen = "127.0.0.1:7070";  // host:port
  bool insecure = false;
  std::string secret_file;
  int32_t tp = 1, groups = 1;
  std::string collective = "auto";
  std::string numerics = "exact";
  EngineSettings settings;
  bool no_prefix_cache = false;
  int32_t text_threads = 2;
  int32_t drain_seconds = 30;
  int32_t heartbeat_timeout_seconds = 5;
};

void AddFlags(CoordinatorOptions* options, FlagTable* flags) {
  EngineSettings& settings = options->settings;
  flags->Add("model", &options->model, "PATH", "GGUF file, safetensors file or model folder");
  flags->Add("listen", &options->listen, "HOST:PORT", "where clients and workers connect");
  flags->Add("insecure", &options->insecure,
             "allow an address that is not loopback, unencrypted: only on a trusted network");
  flags->Add("secret-file", &options->secret_file, "PATH",
             "cluster secret, made if it is not there; workers need the same one");
  flags->Add("tp", &options->tp, 1, kMaxGroupSize, "ranks of a group");
  flags->Add("groups", &options->groups, 1, kMaxGroups, "groups, each with the whole model");
  flags->AddChoice("collective", &options->collective, {"auto", "shm", "tcp"},
                   "how ranks exchange data; auto is shared memory on one host, else TCP");
  flags->Section("How the model is computed");
  flags->AddChoice("numerics", &options->numerics, {"exact", "fast"},
                   "exact: the same bits whatever the batch, chunk, cache state, ranks or threads");
  flags->AddChoice("activations", &settings.activations, {"f32", "int16", "int8", "auto"},
                   "auto is int8 where weights are quantised, int16 in models that need it");
  flags->AddChoice("kv-dtype", &settings.kv_dtype, {"f32", "f16", "bf16", "auto"},
                   "auto is f16 where weights are quantised, else f32");
  flags->AddChoice("block-tokens", &settings.block_tokens, {16, 32, 64, 128, 256},
                   "tokens of a KV block");
  flags->Add("chunk", &settings.max_step_tokens, 1, 16384, "rows of a step at most");
  flags->Add("max-running", &settings.max_running, 1, 4096, "sequences computed at once");
  flags->Add("max-waiting", &settings.max_waiting, 1, 1 << 16, "requests that may wait");
  flags->Add("context", &settings.context_tokens, 0, kMaxContextLength,
             "longest sequence in tokens; 0 is the model's");
  flags->AddBytes("kv-memory", &settings.kv_memory_bytes, "block pool per rank (default 1GiB)");
  flags->Add("no-prefix-cache", &options->no_prefix_cache, "never reuse KV between requests");
  flags->Section("Limits");
  flags->Add("text-threads", &options->text_threads, 1, 256,
             "threads for rendering and tokenizing");
  flags->Add("drain-seconds", &options->drain_seconds, 0, 86400,
             "how long running requests may take to finish at the end");
  flags->Add("heartbeat-timeout", &options->heartbeat_timeout_seconds, 2, 3600,
             "seconds of silence after which a worker is lost");
}

absl::StatusOr<ClusterLoop::Options> LoopOptions(const CoordinatorOptions& options,
                                                 const ServedModel& model, std::string digest) {
  ClusterLoop::Options loop;
  ClusterOptions& cluster = loop.cluster;
  const Nonce nonce = MakeNonce();
  cluster.model = model.name();
  cluster.model_digest = std::move(digest);
  cluster.run_id = ToHex(std::string_view(reinterpret_cast<const char*>(nonce.data()), 6));
  cluster.num_groups = options.groups;
  cluster.group_size = options.tp;
  cluster.settings = options.settings;
  cluster.heartbeat_timeout = absl::Seconds(options.heartbeat_timeout_seconds);
  cluster.settings.exact = options.numerics == "exact";
  cluster.settings.prefix_cache = !options.no_prefix_cache;
  cluster.settings.context_tokens = model.context_tokens();
  if (options.collective == "shm") cluster.collective = CollectiveChoice::kShm;
  if (options.collective == "tcp") cluster.collective = CollectiveChoice::kTcp;
  // Larger than any epoch of a coordinator that ran before: milliseconds leave room for 65,536
  // formations each.
  cluster.first_epoch = static_cast<uint64_t>(absl::ToUnixMillis(absl::Now())) << 16;
  if (options.groups * options.tp > cluster.max_members) {
    return absl::InvalidArgumentError(absl::StrCat(
        "groups x tp too many: ", options.groups * options.tp, ", limit ", cluster.max_members));
  }
  return loop;
}

// What the main thread is woken for.
enum class Wake : uint8_t { kSignal, kDrainAsked, kServes, kServesNot, kDrained };

void Push(BoundedQueue<Wake>* wakes, Wake wake) {
  if (!wakes->TryPush(std::move(wake))) LOG(ERROR) << "main.wake_lost";
}

// Until requests are drained after a first signal or when asked to, or a second signal comes.
void ServeUntilDrained(BoundedQueue<Wake>* wakes, GrpcServer* server, ClusterLoop* loop,
                       absl::Duration drain_limit) {
  bool draining = false, signalled = false;
  while (true) {
    const std::optional<Wake> wake = wakes->Pop(absl::Seconds(3600));
    if (!wake.has_value()) continue;
    if (*wake == Wake::kDrained || (*wake == Wake::kSignal && signalled)) return;
    signalled |= *wake == Wake::kSignal;
    if (!draining && (*wake == Wake::kSignal || *wake == Wake::kDrainAsked)) {
      LOG(INFO) << "coordinator.drains";
      draining = true;
      loop->Drain(drain_limit);
    }
    server->SetServing(*wake == Wake::kServes && !draining);
  }
}

absl::Status Run(const CoordinatorOptions& options) {
  if (options.model.empty()) return absl::InvalidArgumentError("--model is missing: see --help");
  if (options.secret_file.empty()) {
    return absl::InvalidArgumentError("--secret-file is missing: see --help");
  }
  BoundedQueue<Wake> wakes(1024);
  const SignalWatch signals([&](int) { Push(&wakes, Wake::kSignal); });
  ASSIGN_OR_RETURN(const ClusterSecret secret, ReadOrCreateSecretFile(options.secret_file));
  ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(options.model));
  ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(*checkpoint));
  ASSIGN_OR_RETURN(const std::unique_ptr<ServedModel> model,
                   ServedModel::Load(*checkpoint, config, options.settings.context_tokens));
  ASSIGN_OR_RETURN(const ClusterLoop::Options loop_options,
                   LoopOptions(options, *model, ModelDigest(*checkpoint, config)));
  const absl::Duration drain_limit = absl::Seconds(options.drain_seconds);

  ClusterLoop loop(
      loop_options, model.get(),
      [&](bool serves) { Push(&wakes, serves ? Wake::kServes : Wake::kServesNot); },
      [&] { Push(&wakes, Wake::kDrained); });
  ServiceHandle services[3];
  // The text workers hold calls of the services: they end first.
  TextWorkers text(options.text_threads, kMaxQueuedPrompts);
  const FrontDoor door{
      .model = model.get(), .loop = &loop, .text = &text, .secret = &secret, .drain = [&] {
        Push(&wakes, Wake::kDrainAsked);
      }};
  services[0] = NewCairnService(door);
  services[1] = NewAdminService(door);
  services[2] = NewControlService(&loop, &secret);
  ASSIGN_OR_RETURN(const std::unique_ptr<GrpcServer> server,
                   GrpcServer::Start({.address = options.listen, .insecure = options.insecure},
                                     {services[0].get(), services[1].get(), services[2].get()}));
  LOG(INFO) << "coordinator.listens address=" << options.listen << " port=" << server->port()
            << " model=" << model->name() << " run=" << loop_options.cluster.run_id
            << " groups=" << options.groups << " tp=" << options.tp;
  ServeUntilDrained(&wakes, server.get(), &loop, drain_limit);
  // What is written is still delivered; workers' streams end here.
  server->Shutdown(absl::Seconds(1));
  LOG(INFO) << "coordinator.ends";
  return absl::OkStatus();
}

int Main(const std::vector<std::string>& args) {
  CoordinatorOptions options;
  FlagTable flags;
  AddFlags(&options, &flags);
  const absl::StatusOr<CommandLine> line = ReadCommandLine(
      "usage: cairn-coordinator --model PATH --secret-file PATH [flags]\n"
      "Front door, membership and text of a cluster; workers dial it. `cairn serve` starts "
      "both.",
      &flags, args, 0);
  if (line.ok() && line->done) return 0;
  absl::Status status = line.status();
  SetLogTag("coordinator");
  if (status.ok()) status = Run(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "cairn-coordinator: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  cairn::StartProcess("cairn-coordinator");
  return cairn::Main({argv + 1, argv + argc});
}
