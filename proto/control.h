// What workers and the coordinator tell each other on the control stream, as plain values.
//
// Encode* makes the payload of one frame; Decode* checks everything that came: lengths, enum
// values, ranges, parallel arrays. Both programs work on these structs; the wire form stays in
// here. Thread: any; plain values. Errors of Decode: InvalidArgument naming the field, value and
// limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace cairn {

using JobId = uint64_t;  // one choice of one request

inline constexpr int64_t kMaxControlFrameBytes = int64_t{4} << 20;
inline constexpr int32_t kMaxGroups = 1024;
inline constexpr int32_t kMaxGroupSize = 64;
inline constexpr int64_t kMaxControlNameBytes = 512;  // names, addresses, ids
inline constexpr int64_t kMaxControlCauseBytes = 4096;
inline constexpr int32_t kControlVersion = 1;

// ---- worker to coordinator

struct RegisterMessage {
  std::string worker{};  // for logs: "host:pid"
  std::string host{};
  std::string address{};          // numeric, without port: where other ranks reach this one
  std::string loopback_domain{};  // equal for processes that loopback connects
  std::string memory_domain{};    // equal for processes that can share memory
  int64_t pid = 0;
  std::string instance{};      // random, of this process
  std::string model_digest{};  // of the model's configuration, 32 bytes
  int32_t threads = 0;         // asked for by flag; 0: as assigned
  // What is loaded from an assignment before; size 0: nothing.
  int32_t group = 0, rank = 0, size = 0;
  int32_t version = kControlVersion;
};

struct LoadingMessage {
  int64_t bytes_done = 0, bytes_total = 0;
};

struct LoadedMessage {
  int64_t weight_bytes = 0;  // repacked, in memory
  int64_t read_bytes = 0;    // of the model's files
  int64_t kv_bytes = 0;      // of the block pool
  int32_t threads = 0;
  int32_t max_request_tokens = 0;
  std::string identity{};  // root of the KV identity: weights and settings; equal on every rank
};

// The assignment cannot be served by this worker, which then ends.
struct RefusedMessage {
  std::string cause{};
};

struct ListeningMessage {
  uint64_t epoch = 0;
  std::string address{};  // "host:port"
};

struct ReadyMessage {
  uint64_t epoch = 0;
};

struct LeftMessage {
  uint64_t epoch = 0;
  std::string cause{};  // why, if it was not asked to
};

enum class JobEnd : uint8_t { kNone = 0, kStop = 1, kLength = 2, kCancelled = 3, kError = 4 };

struct JobEvent {
  JobId job = 0;
  bool has_token = false;
  int32_t token = 0;
  float logprob = 0;
  std::vector<std::pair<int32_t, float>> top_logprobs{};
  JobEnd end = JobEnd::kNone;
  absl::StatusCode error_code = absl::StatusCode::kOk;  // of kError
  std::string error{};
  int32_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0, num_preemptions = 0;
};

struct TokensMessage {
  std::vector<JobEvent> events{};
};

struct HeartbeatMessage {
  uint64_t epoch = 0;  // 0: in no group
  // Of the leader's engine; zeros on other ranks.
  int32_t num_waiting = 0, num_running = 0;
  int32_t num_blocks = 0, num_free_blocks = 0, num_cached_blocks = 0;
  int64_t num_steps = 0, num_preemptions = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, computed_tokens = 0, generated_tokens = 0;
  double last_step_seconds = 0, longest_step_seconds = 0;
};

// The worker was asked to end: its group gets no more work, and Release follows.
struct LeavingMessage {};

using WorkerMessage =
    std::variant<RegisterMessage, LoadingMessage, LoadedMessage, RefusedMessage, ListeningMessage,
                 ReadyMessage, LeftMessage, TokensMessage, HeartbeatMessage, LeavingMessage>;

std::string EncodeWorkerMessage(const WorkerMessage& message);
absl::StatusOr<WorkerMessage> DecodeWorkerMessage(std::string_view bytes);

// ---- coordinator to worker

// How the model is computed; equal on every rank.
struct EngineSettings {
  bool exact = true;
  std::string activations = "auto";
  std::string kv_dtype = "auto";
  int32_t block_tokens = 16;
  int32_t max_step_tokens = 512;
  int32_t max_running = 64;
  int32_t max_waiting = 1024;
  int32_t context_tokens = 0;  // 0: the model's
  int64_t kv_memory_bytes = int64_t{1} << 30;
  bool prefix_cache = true;

  bool operator==(const EngineSettings&) const = default;
};

struct AssignMessage {
  int32_t group = 0, rank = 0, size = 1;
  int32_t ranks_on_host = 1;  // workers that share the CPUs of this host
  EngineSettings settings;
};

struct ListenMessage {
  uint64_t epoch = 0;
};

// Meet the other ranks. Of shm_name and addresses one is given; a rank alone needs neither. The key
// of a TCP group is derived from the cluster secret and the epoch on both ends.
struct FormMessage {
  uint64_t epoch = 0;
  std::string shm_name{};
  std::vector<std::string> addresses{};
};

struct DisbandMessage {
  uint64_t epoch = 0;
  std::string cause{};
};

struct SubmitMessage {
  JobId job = 0;
  uint64_t epoch = 0;
  std::string id{};  // for logs
  std::vector<int32_t> prompt{};
  float temperature = 1;
  int32_t top_k = 0;
  float top_p = 1, min_p = 0;
  float repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  uint64_t seed = 0;
  uint32_t choice = 0;
  int32_t num_logprobs = -1;
  std::vector<std::pair<int32_t, float>> logit_bias{};
  int32_t max_tokens = 0, min_tokens = 0;
  std::vector<int32_t> stop_ids{};
  std::string cache_salt{};
  bool use_prefix_cache = true;
};

struct CancelMessage {
  JobId job = 0;
};

struct PingMessage {};

struct ReleaseMessage {
  std::string cause{};  // why; empty: as the worker asked
};

using CoordinatorMessage = std::variant<AssignMessage, ListenMessage, FormMessage, DisbandMessage,
                                        SubmitMessage, CancelMessage, PingMessage, ReleaseMessage>;

std::string EncodeCoordinatorMessage(const CoordinatorMessage& message);
absl::StatusOr<CoordinatorMessage> DecodeCoordinatorMessage(std::string_view bytes);

}  // namespace cairn
