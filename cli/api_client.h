// The coordinator's public interface as seen from the command line.
//
// Thread: one call at a time; Cancel from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "cli/offline.h"

namespace cairn {

class ClusterSecret;

struct ChatTurn {
  std::string role, content;
};

struct TokenUsage {
  int32_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0, num_preemptions = 0;
};

struct TokenChances {
  int32_t token = 0;
  float logprob = 0;
  std::vector<std::pair<int32_t, float>> top{};
};

// What a stream brings. Only set callbacks are called.
struct AnswerCallbacks {
  std::function<void(uint64_t seed)> on_started;
  std::function<void(int32_t choice, const std::string& text, const std::vector<int32_t>& ids,
                     const std::vector<TokenChances>& chances)>
      on_delta;
  std::function<void(int32_t choice, const std::string& finish_reason, const TokenUsage& usage)>
      on_ended;
};

struct RankView {
  int32_t rank = 0;
  std::string state{}, worker{}, host{}, address{};
  int64_t pid = 0, weight_bytes = 0, read_bytes = 0, kv_bytes = 0;
  int32_t threads = 0;
  double loading = 0, heard_seconds_ago = 0;
};

struct EngineView {
  int32_t waiting = 0, running = 0, blocks = 0, free_blocks = 0, cached_blocks = 0;
  int64_t steps = 0, preemptions = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, computed_tokens = 0, generated_tokens = 0;
  double last_step_seconds = 0, longest_step_seconds = 0;
  int32_t max_request_tokens = 0;
};

struct GroupView {
  int32_t group = 0;
  bool serving = false;
  uint64_t epoch = 0;
  std::string collective{};
  std::vector<RankView> ranks{};
  std::string last_failure{};
  int32_t jobs = 0;
  EngineView engine{};
};

struct StatusView {
  std::string version{}, run_id{}, model{};
  bool serving = false, draining = false;
  std::string waiting_for{};
  double loading = 0;
  std::vector<GroupView> groups{};
  std::vector<RankView> spares{};
  int32_t requests_in_flight = 0;
  int64_t requests_total = 0;
  double uptime_seconds = 0;
};

class ApiClient {
 public:
  // Does not connect yet.
  static std::unique_ptr<ApiClient> Create(const std::string& endpoint);
  virtual ~ApiClient() = default;

  // Every call connects if need be; done before, its first answer does not wait for that. Errors:
  // Unavailable if nobody answers within `limit`.
  virtual absl::Status Connect(absl::Duration limit) = 0;
  // Errors: Unavailable if nobody answers within `limit`, or soon if the port refuses.
  virtual absl::StatusOr<StatusView> Status(absl::Duration limit) = 0;
  // Ends the service: nothing more is admitted, and when what runs has finished the coordinator of
  // `run_id` ends. Gives the number of requests that run. Errors: the server's; PermissionDenied
  // under another secret or run.
  virtual absl::StatusOr<int32_t> Drain(const ClusterSecret& secret, const std::string& run_id,
                                        absl::Duration limit) = 0;
  // Both return when the answer has ended. Errors: the server's; Cancelled after Cancel.
  virtual absl::Status Generate(const GenerateFlags& flags, const AnswerCallbacks& callbacks) = 0;
  virtual absl::Status Chat(const std::vector<ChatTurn>& turns, const SamplingFlags& sampling,
                            int32_t max_tokens, const AnswerCallbacks& callbacks) = 0;
  // Ends the call that is running, if one is.
  virtual void Cancel() = 0;
};

}  // namespace cairn
