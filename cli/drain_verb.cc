// drain: ends the service without breaking an answer.
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/network_address.h"
#include "base/secret.h"
#include "cli/api_client.h"
#include "cli/local_cluster.h"
#include "cli/progress_line.h"
#include "cli/verbs.h"

namespace cairn {
namespace {

constexpr absl::Duration kAnswerTimeout = absl::Seconds(5);
constexpr absl::Duration kPollInterval = absl::Milliseconds(100);

struct DrainFlags {
  std::string endpoint = kDefaultEndpoint;
  std::string secret_file;
  int32_t wait_seconds = 3600;
};

absl::StatusOr<ClusterSecret> FindSecret(const DrainFlags& flags) {
  if (!flags.secret_file.empty()) return ReadSecretFile(flags.secret_file);
  ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(flags.endpoint));
  ASSIGN_OR_RETURN(const std::string folder,
                   DefaultStateDirectory(absl::StrCat("serve-", address.port)));
  absl::StatusOr<ClusterSecret> secret = ReadSecretFile(absl::StrCat(folder, "/secret"));
  if (secret.ok()) return secret;
  return Annotate(secret.status(), "give --secret-file");
}

// Until the coordinator of `run_id` has ended.
absl::Status WaitForEnd(ApiClient* client, const std::string& run_id, int32_t requests,
                        absl::Duration limit) {
  const absl::Time deadline = absl::Now() + limit;
  ProgressLine line(stdout);
  DrainProgress progress(&line);
  if (requests > 0) progress.Show(requests);
  while (absl::Now() < deadline) {
    const absl::StatusOr<StatusView> status = client->Status(kAnswerTimeout);
    if (absl::IsUnavailable(status.status()) || (status.ok() && status->run_id != run_id)) {
      line.Say("drained");
      return absl::OkStatus();
    }
    if (status.ok()) progress.Show(status->requests_in_flight);
    absl::SleepFor(kPollInterval);
  }
  return absl::DeadlineExceededError(
      absl::StrCat("still draining after ", absl::FormatDuration(limit)));
}

absl::Status Drain(const DrainFlags& flags) {
  ASSIGN_OR_RETURN(const ClusterSecret secret, FindSecret(flags));
  const std::unique_ptr<ApiClient> client = ApiClient::Create(flags.endpoint);
  ASSIGN_OR_RETURN(const StatusView status, client->Status(kAnswerTimeout));
  ASSIGN_OR_RETURN(const int32_t requests, client->Drain(secret, status.run_id, kAnswerTimeout));
  if (flags.wait_seconds > 0) {
    return WaitForEnd(client.get(), status.run_id, requests, absl::Seconds(flags.wait_seconds));
  }
  std::printf("%s\n", DrainText(requests).c_str());
  return absl::OkStatus();
}

}  // namespace

int RunDrain(const Arguments& arguments) {
  DrainFlags drain;
  FlagTable flags;
  flags.AddHostPort("endpoint", &drain.endpoint, "the coordinator");
  flags.Add(
      "secret-file", &drain.secret_file, "PATH",
      "the cluster's secret; by default that of the `cairn serve` on this port, if it was given "
      "no --state-dir");
  flags.Add("wait", &drain.wait_seconds, 0, 1 << 20,
            "seconds to wait until it has ended; 0: only ask; exit status 1 if it has not");
  const ParsedVerb parsed = ParseVerb(
      "usage: cairn drain [flags]\n"
      "Refuses new requests, lets running ones finish, and ends the coordinator; `cairn serve` "
      "ends\n"
      "with it. What still runs after the coordinator's --drain-seconds ends with an error.",
      &flags, arguments, 0);
  if (parsed.done) return parsed.exit_status;
  const absl::Status status = Drain(drain);
  return status.ok() ? 0 : ReportRefusal(status);
}

}  // namespace cairn
