// status: who serves what, and what is waited for.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "cli/api_client.h"
#include "cli/progress_line.h"
#include "cli/verbs.h"

namespace cairn {
namespace {

using nlohmann::json;

json RankJson(const RankView& rank) {
  return {{"rank", rank.rank},
          {"state", rank.state},
          {"worker", rank.worker},
          {"host", rank.host},
          {"address", rank.address},
          {"pid", rank.pid},
          {"threads", rank.threads},
          {"loading", rank.loading},
          {"heard_seconds_ago", rank.heard_seconds_ago},
          {"weight_bytes", rank.weight_bytes},
          {"read_bytes", rank.read_bytes},
          {"kv_bytes", rank.kv_bytes}};
}

json EngineJson(const EngineView& engine) {
  return {{"waiting", engine.waiting},
          {"running", engine.running},
          {"blocks", engine.blocks},
          {"free_blocks", engine.free_blocks},
          {"cached_blocks", engine.cached_blocks},
          {"steps", engine.steps},
          {"preemptions", engine.preemptions},
          {"prompt_tokens", engine.prompt_tokens},
          {"cached_tokens", engine.cached_tokens},
          {"computed_tokens", engine.computed_tokens},
          {"generated_tokens", engine.generated_tokens},
          {"last_step_seconds", engine.last_step_seconds},
          {"longest_step_seconds", engine.longest_step_seconds},
          {"max_request_tokens", engine.max_request_tokens}};
}

json StatusJson(const StatusView& status) {
  json out = {{"version", status.version},
              {"run_id", status.run_id},
              {"model", status.model},
              {"serving", status.serving},
              {"draining", status.draining},
              {"waiting_for", status.waiting_for},
              {"loading", status.loading},
              {"requests_in_flight", status.requests_in_flight},
              {"requests_total", status.requests_total},
              {"uptime_seconds", status.uptime_seconds},
              {"groups", json::array()},
              {"spares", json::array()}};
  for (const GroupView& group : status.groups) {
    json ranks = json::array();
    for (const RankView& rank : group.ranks) ranks.push_back(RankJson(rank));
    out["groups"].push_back({{"group", group.group},
                             {"serving", group.serving},
                             {"epoch", group.epoch},
                             {"collective", group.collective},
                             {"ranks", ranks},
                             {"last_failure", group.last_failure},
                             {"jobs", group.jobs},
                             {"engine", EngineJson(group.engine)}});
  }
  for (const RankView& rank : status.spares) out["spares"].push_back(RankJson(rank));
  return out;
}

void PrintRank(const RankView& rank) {
  if (rank.state == "missing") {
    std::printf("  rank %d  missing\n", rank.rank);
    return;
  }
  const std::string loading =
      rank.state == "loading" ? absl::StrFormat(" %.0f %%", 100 * rank.loading) : std::string();
  constexpr double kMiB = 1 << 20;
  std::printf("  rank %d  %s%s  %s  address %s  threads %d\n", rank.rank, rank.state.c_str(),
              loading.c_str(), rank.worker.c_str(), rank.address.c_str(), rank.threads);
  std::printf("          %.1f MiB of weights, from %.1f MiB of the files; block pool %.1f MiB\n",
              rank.weight_bytes / kMiB, rank.read_bytes / kMiB, rank.kv_bytes / kMiB);
}

void PrintStatus(const StatusView& status) {
  std::printf("model %s: %s%s\n", status.model.c_str(), status.serving ? "serving" : "not serving",
              status.draining ? ", draining" : "");
  if (!status.waiting_for.empty()) std::printf("%s\n", status.waiting_for.c_str());
  std::printf("requests: %d in flight, %d since the start\n", status.requests_in_flight,
              static_cast<int>(status.requests_total));
  for (const GroupView& group : status.groups) {
    std::printf("group %d  %s  %s\n", group.group, group.serving ? "serving" : "not serving",
                group.collective.c_str());
    for (const RankView& rank : group.ranks) PrintRank(rank);
    if (group.engine.blocks > 0) {
      std::printf("  %d running, %d waiting; blocks: %d, %d free, %d cached; longest step %.3f s\n",
                  group.engine.running, group.engine.waiting, group.engine.blocks,
                  group.engine.free_blocks, group.engine.cached_blocks,
                  group.engine.longest_step_seconds);
    }
    if (!group.last_failure.empty()) {
      std::printf("  last failure: %s\n", group.last_failure.c_str());
    }
  }
  for (const RankView& rank : status.spares) std::printf("spare  %s\n", rank.worker.c_str());
}

}  // namespace

int RunStatus(const Arguments& arguments) {
  std::string endpoint = kDefaultEndpoint;
  bool as_json = false;
  int32_t wait_seconds = 0;
  FlagTable flags;
  flags.AddHostPort("endpoint", &endpoint, "the coordinator");
  flags.Add("json", &as_json, "one JSON object");
  flags.Add("wait", &wait_seconds, 0, 1 << 20,
            "seconds to wait until it serves; exit status 1 if it does not");
  const ParsedVerb parsed = ParseVerb(
      "usage: cairn status [flags]\n"
      "Who serves what, and what is waited for.",
      &flags, arguments, 0);
  if (parsed.done) return parsed.exit_status;
  const std::unique_ptr<ApiClient> client = ApiClient::Create(endpoint);
  const absl::Time deadline = absl::Now() + absl::Seconds(wait_seconds);
  ProgressLine progress(stderr);
  while (true) {
    const absl::Duration left = std::max(deadline - absl::Now(), absl::Seconds(2));
    const absl::StatusOr<StatusView> status = client->Status(std::min(left, absl::Seconds(5)));
    const bool serves = status.ok() && status->serving;
    if (wait_seconds == 0 || serves || absl::Now() >= deadline) {
      progress.Clear();
      if (!status.ok()) return ReportRefusal(status.status());
      if (as_json) std::printf("%s\n", StatusJson(*status).dump().c_str());
      if (!as_json) PrintStatus(*status);
      return wait_seconds == 0 || serves ? 0 : kExitRefused;
    }
    if (status.ok()) progress.Show(status->loading, status->waiting_for);
    if (!status.ok()) progress.Show(0, std::string(status.status().message()));
    absl::SleepFor(absl::Milliseconds(200));
  }
}

}  // namespace cairn
