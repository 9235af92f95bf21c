#include "proto/control.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "cairn/v1/internal.pb.h"

namespace cairn {
namespace {

constexpr int32_t kMaxPromptTokens = 1 << 20;  // of a frame: its size is the real limit
constexpr int32_t kMaxListEntries = 4096;      // biases, stop ids, top logprobs

// ---- checks

absl::Status CheckRange(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "control message: %s out of range: %d, allowed %d..%d", field, value, low, high));
}

absl::Status CheckCount(const char* field, int64_t value) {
  return CheckRange(field, value, 0, std::numeric_limits<int64_t>::max());
}

absl::Status CheckSeconds(const char* field, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("control message: %s is no duration: %g", field, value));
}

absl::Status CheckText(const char* field, const std::string& text, int64_t limit) {
  if (static_cast<int64_t>(text.size()) <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "control message: %s too long: %d bytes, limit %d", field, text.size(), limit));
}

absl::Status CheckPlace(int32_t group, int32_t rank, int32_t size) {
  RETURN_IF_ERROR(CheckRange("size", size, 1, kMaxGroupSize));
  RETURN_IF_ERROR(CheckRange("group", group, 0, kMaxGroups - 1));
  return CheckRange("rank", rank, 0, size - 1);
}

template <typename Tokens, typename Values>
absl::StatusOr<std::vector<std::pair<int32_t, float>>> ReadPairs(const char* field,
                                                                 const Tokens& tokens,
                                                                 const Values& values) {
  RETURN_IF_ERROR(CheckRange(field, tokens.size(), 0, kMaxListEntries));
  if (tokens.size() != values.size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "control message: %s: %d tokens but %d values", field, tokens.size(), values.size()));
  }
  std::vector<std::pair<int32_t, float>> pairs;
  pairs.reserve(tokens.size());
  for (int i = 0; i < tokens.size(); ++i) pairs.emplace_back(tokens[i], values[i]);
  return pairs;
}

// ---- worker to coordinator: Put fills the wire message, Read checks it

void Put(const RegisterMessage& from, v1::WorkerMessage* to) {
  v1::Register* wire = to->mutable_register_();
  wire->set_worker(from.worker);
  wire->set_host(from.host);
  wire->set_address(from.address);
  wire->set_loopback_domain(from.loopback_domain);
  wire->set_memory_domain(from.memory_domain);
  wire->set_pid(from.pid);
  wire->set_instance(from.instance);
  wire->set_model_digest(from.model_digest);
  wire->set_threads(from.threads);
  wire->set_group(from.group);
  wire->set_rank(from.rank);
  wire->set_size(from.size);
  wire->set_version(from.version);
}

absl::StatusOr<WorkerMessage> Read(const v1::Register& wire) {
  for (const auto& [field, text] :
       {std::pair<const char*, const std::string&>{"worker", wire.worker()},
        {"host", wire.host()},
        {"address", wire.address()},
        {"loopback_domain", wire.loopback_domain()},
        {"memory_domain", wire.memory_domain()},
        {"instance", wire.instance()},
        {"model_digest", wire.model_digest()}}) {
    RETURN_IF_ERROR(CheckText(field, text, kMaxControlNameBytes));
  }
  RETURN_IF_ERROR(CheckCount("pid", wire.pid()));
  RETURN_IF_ERROR(CheckRange("threads", wire.threads(), 0, 4096));
  if (wire.size() != 0) RETURN_IF_ERROR(CheckPlace(wire.group(), wire.rank(), wire.size()));
  return RegisterMessage{.worker = wire.worker(),
                         .host = wire.host(),
                         .address = wire.address(),
                         .loopback_domain = wire.loopback_domain(),
                         .memory_domain = wire.memory_domain(),
                         .pid = wire.pid(),
                         .instance = wire.instance(),
                         .model_digest = wire.model_digest(),
                         .threads = wire.threads(),
                         .group = wire.group(),
                         .rank = wire.rank(),
                         .size = wire.size(),
                         .version = wire.version()};
}

void Put(const LoadingMessage& from, v1::WorkerMessage* to) {
  to->mutable_loading()->set_bytes_done(from.bytes_done);
  to->mutable_loading()->set_bytes_total(from.bytes_total);
}

absl::StatusOr<WorkerMessage> Read(const v1::LoadProgress& wire) {
  RETURN_IF_ERROR(CheckCount("bytes_total", wire.bytes_total()));
  RETURN_IF_ERROR(CheckRange("bytes_done", wire.bytes_done(), 0, wire.bytes_total()));
  return LoadingMessage{.bytes_done = wire.bytes_done(), .bytes_total = wire.bytes_total()};
}

void Put(const LoadedMessage& from, v1::WorkerMessage* to) {
  to->mutable_loaded()->set_weight_bytes(from.weight_bytes);
  to->mutable_loaded()->set_read_bytes(from.read_bytes);
  to->mutable_loaded()->set_kv_bytes(from.kv_bytes);
  to->mutable_loaded()->set_threads(from.threads);
  to->mutable_loaded()->set_max_request_tokens(from.max_request_tokens);
  to->mutable_loaded()->set_identity(from.identity);
}

absl::StatusOr<WorkerMessage> Read(const v1::Loaded& wire) {
  RETURN_IF_ERROR(CheckCount("weight_bytes", wire.weight_bytes()));
  RETURN_IF_ERROR(CheckCount("read_bytes", wire.read_bytes()));
  RETURN_IF_ERROR(CheckCount("kv_bytes", wire.kv_bytes()));
  RETURN_IF_ERROR(CheckRange("threads", wire.threads(), 1, 4096));
  RETURN_IF_ERROR(CheckRange("max_request_tokens", wire.max_request_tokens(), 1,
                             std::numeric_limits<int32_t>::max()));
  RETURN_IF_ERROR(CheckText("identity", wire.identity(), kMaxControlNameBytes));
  return LoadedMessage{.weight_bytes = wire.weight_bytes(),
                       .read_bytes = wire.read_bytes(),
                       .kv_bytes = wire.kv_bytes(),
                       .threads = wire.threads(),
                       .max_request_tokens = wire.max_request_tokens(),
                       .identity = wire.identity()};
}

void Put(const RefusedMessage& from, v1::WorkerMessage* to) {
  to->mutable_refused()->set_cause(from.cause.substr(0, kMaxControlCauseBytes));
}

absl::StatusOr<WorkerMessage> Read(const v1::Refused& wire) {
  RETURN_IF_ERROR(CheckText("cause", wire.cause(), kMaxControlCauseBytes));
  return RefusedMessage{.cause = wire.cause()};
}

void Put(const ListeningMessage& from, v1::WorkerMessage* to) {
  to->mutable_listening()->set_epoch(from.epoch);
  to->mutable_listening()->set_address(from.address);
}

absl::StatusOr<WorkerMessage> Read(const v1::Listening& wire) {
  RETURN_IF_ERROR(CheckText("address", wire.address(), kMaxControlNameBytes));
  return ListeningMessage{.epoch = wire.epoch(), .address = wire.address()};
}

void Put(const ReadyMessage& from, v1::WorkerMessage* to) {
  to->mutable_ready()->set_epoch(from.epoch);
}

absl::StatusOr<WorkerMessage> Read(const v1::Ready& wire) {
  return ReadyMessage{.epoch = wire.epoch()};
}

void Put(const LeftMessage& from, v1::WorkerMessage* to) {
  to->mutable_left()->set_epoch(from.epoch);
  to->mutable_left()->set_cause(from.cause.substr(0, kMaxControlCauseBytes));
}

absl::StatusOr<WorkerMessage> Read(const v1::Left& wire) {
  RETURN_IF_ERROR(CheckText("cause", wire.cause(), kMaxControlCauseBytes));
  return LeftMessage{.epoch = wire.epoch(), .cause = wire.cause()};
}

void PutEvent(const JobEvent& from, v1::JobEvent* wire) {
  wire->set_job(from.job);
  wire->set_has_token(from.has_token);
  wire->set_token(from.token);
  wire->set_logprob(from.logprob);
  for (const auto& [token, logprob] : from.top_logprobs) {
    wire->add_top_tokens(token);
    wire->add_top_logprobs(logprob);
  }
  wire->set_finish_reason(static_cast<int32_t>(from.end));
  wire->set_error_code(static_cast<int32_t>(from.error_code));
  wire->set_error(from.error.substr(0, kMaxControlCauseBytes));
  wire->set_prompt_tokens(from.prompt_tokens);
  wire->set_cached_tokens(from.cached_tokens);
  wire->set_completion_tokens(from.completion_tokens);
  wire->set_num_preemptions(from.num_preemptions);
}

absl::StatusOr<JobEvent> ReadEvent(const v1::JobEvent& wire) {
  RETURN_IF_ERROR(
      CheckRange("finish_reason", wire.finish_reason(), 0, static_cast<int64_t>(JobEnd::kError)));
  RETURN_IF_ERROR(CheckRange("error_code", wire.error_code(), 0,
                             static_cast<int64_t>(absl::StatusCode::kUnauthenticated)));
  RETURN_IF_ERROR(CheckText("error", wire.error(), kMaxControlCauseBytes));
  RETURN_IF_ERROR(CheckCount("token", wire.token()));
  for (const int32_t count : {wire.prompt_tokens(), wire.cached_tokens(), wire.completion_tokens(),
                              wire.num_preemptions()}) {
    RETURN_IF_ERROR(CheckCount("usage", count));
  }
  JobEvent event{.job = wire.job(),
                 .has_token = wire.has_token(),
                 .token = wire.token(),
                 .logprob = wire.logprob(),
                 .end = static_cast<JobEnd>(wire.finish_reason()),
                 .error_code = static_cast<absl::StatusCode>(wire.error_code()),
                 .error = wire.error(),
                 .prompt_tokens = wire.prompt_tokens(),
                 .cached_tokens = wire.cached_tokens(),
                 .completion_tokens = wire.completion_tokens(),
                 .num_preemptions = wire.num_preemptions()};
  ASSIGN_OR_RETURN(event.top_logprobs,
                   ReadPairs("top_logprobs", wire.top_tokens(), wire.top_logprobs()));
  return event;
}

void Put(const TokensMessage& from, v1::WorkerMessage* to) {
  v1::TokenBatch* wire = to->mutable_tokens();
  for (const JobEvent& event : from.events) PutEvent(event, wire->add_events());
}

absl::StatusOr<WorkerMessage> Read(const v1::TokenBatch& wire) {
  TokensMessage message;
  message.events.reserve(wire.events_size());
  for (const v1::JobEvent& entry : wire.events()) {
    ASSIGN_OR_RETURN(JobEvent event, ReadEvent(entry));
    message.events.push_back(std::move(event));
  }
  return message;
}

void Put(const HeartbeatMessage& from, v1::WorkerMessage* to) {
  v1::Heartbeat* wire = to->mutable_heartbeat();
  wire->set_epoch(from.epoch);
  wire->set_waiting(from.num_waiting);
  wire->set_running(from.num_running);
  wire->set_blocks(from.num_blocks);
  wire->set_free_blocks(from.num_free_blocks);
  wire->set_cached_blocks(from.num_cached_blocks);
  wire->set_steps(from.num_steps);
  wire->set_preemptions(from.num_preemptions);
  wire->set_prompt_tokens(from.prompt_tokens);
  wire->set_cached_tokens(from.cached_tokens);
  wire->set_computed_tokens(from.computed_tokens);
  wire->set_generated_tokens(from.generated_tokens);
  wire->set_last_step_seconds(from.last_step_seconds);
  wire->set_longest_step_seconds(from.longest_step_seconds);
}

absl::StatusOr<WorkerMessage> Read(const v1::Heartbeat& wire) {
  for (const int64_t count :
       {int64_t{wire.waiting()}, int64_t{wire.running()}, int64_t{wire.blocks()},
        int64_t{wire.free_blocks()}, int64_t{wire.cached_blocks()}, int64_t{wire.steps()},
        int64_t{wire.preemptions()}, int64_t{wire.prompt_tokens()}, int64_t{wire.cached_tokens()},
        int64_t{wire.computed_tokens()}, int64_t{wire.generated_tokens()}}) {
    RETURN_IF_ERROR(CheckCount("heartbeat", count));
  }
  RETURN_IF_ERROR(CheckSeconds("last_step_seconds", wire.last_step_seconds()));
  RETURN_IF_ERROR(CheckSeconds("longest_step_seconds", wire.longest_step_seconds()));
  return HeartbeatMessage{.epoch = wire.epoch(),
                          .num_waiting = wire.waiting(),
                          .num_running = wire.running(),
                          .num_blocks = wire.blocks(),
                          .num_free_blocks = wire.free_blocks(),
                          .num_cached_blocks = wire.cached_blocks(),
                          .num_steps = wire.steps(),
                          .num_preemptions = wire.preemptions(),
                          .prompt_tokens = wire.prompt_tokens(),
                          .cached_tokens = wire.cached_tokens(),
                          .computed_tokens = wire.computed_tokens(),
                          .generated_tokens = wire.generated_tokens(),
                          .last_step_seconds = wire.last_step_seconds(),
                          .longest_step_seconds = wire.longest_step_seconds()};
}

void Put(const LeavingMessage&, v1::WorkerMessage* to) { to->mutable_leaving(); }

// ---- coordinator to worker

void Put(const AssignMessage& from, v1::CoordinatorMessage* to) {
  v1::Assign* wire = to->mutable_assign();
  wire->set_group(from.group);
  wire->set_rank(from.rank);
  wire->set_size(from.size);
  wire->set_ranks_on_host(from.ranks_on_host);
  v1::Settings* settings = wire->mutable_settings();
  settings->set_exact(from.settings.exact);
  settings->set_activations(from.settings.activations);
  settings->set_kv_dtype(from.settings.kv_dtype);
  settings->set_block_tokens(from.settings.block_tokens);
  settings->set_max_step_tokens(from.settings.max_step_tokens);
  settings->set_max_running(from.settings.max_running);
  settings->set_max_waiting(from.settings.max_waiting);
  settings->set_context_tokens(from.settings.context_tokens);
  settings->set_kv_memory_bytes(from.settings.kv_memory_bytes);
  settings->set_prefix_cache(from.settings.prefix_cache);
}

absl::StatusOr<CoordinatorMessage> Read(const v1::Assign& wire) {
  RETURN_IF_ERROR(CheckPlace(wire.group(), wire.rank(), wire.size()));
  RETURN_IF_ERROR(CheckRange("ranks_on_host", wire.ranks_on_host(), 1, 1 << 16));
  const v1::Settings& settings = wire.settings();
  RETURN_IF_ERROR(CheckText("activations", settings.activations(), kMaxControlNameBytes));
  RETURN_IF_ERROR(CheckText("kv_dtype", settings.kv_dtype(), kMaxControlNameBytes));
  RETURN_IF_ERROR(CheckRange("block_tokens", settings.block_tokens(), 1, 1 << 16));
  RETURN_IF_ERROR(CheckRange("max_step_tokens", settings.max_step_tokens(), 1, 1 << 20));
  RETURN_IF_ERROR(CheckRange("max_running", settings.max_running(), 1, 1 << 16));
  RETURN_IF_ERROR(CheckRange("max_waiting", settings.max_waiting(), 1, 1 << 20));
  RETURN_IF_ERROR(CheckCount("context_tokens", settings.context_tokens()));
  RETURN_IF_ERROR(CheckRange("kv_memory_bytes", settings.kv_memory_bytes(), 1, int64_t{1} << 50));
  return AssignMessage{.group = wire.group(),
                       .rank = wire.rank(),
                       .size = wire.size(),
                       .ranks_on_host = wire.ranks_on_host(),
                       .settings = {.exact = settings.exact(),
                                    .activations = settings.activations(),
                                    .kv_dtype = settings.kv_dtype(),
                                    .block_tokens = settings.block_tokens(),
                                    .max_step_tokens = settings.max_step_tokens(),
                                    .max_running = settings.max_running(),
                                    .max_waiting = settings.max_waiting(),
                                    .context_tokens = settings.context_tokens(),
                                    .kv_memory_bytes = settings.kv_memory_bytes(),
                                    .prefix_cache = settings.prefix_cache()}};
}

void Put(const ListenMessage& from, v1::CoordinatorMessage* to) {
  to->mutable_listen()->set_epoch(from.epoch);
}

absl::StatusOr<CoordinatorMessage> Read(const v1::Listen& wire) {
  return ListenMessage{.epoch = wire.epoch()};
}

void Put(const FormMessage& from, v1::CoordinatorMessage* to) {
  v1::Form* wire = to->mutable_form();
  wire->set_epoch(from.epoch);
  if (!from.shm_name.empty()) wire->set_shm_name(from.shm_name);
  for (const std::string& address : from.addresses) wire->mutable_tcp()->add_addresses(address);
}

absl::StatusOr<CoordinatorMessage> Read(const v1::Form& wire) {
  RETURN_IF_ERROR(CheckText("shm_name", wire.shm_name(), 200));
  RETURN_IF_ERROR(CheckRange("addresses", wire.tcp().addresses_size(), 0, kMaxGroupSize));
  FormMessage message{.epoch = wire.epoch(), .shm_name = wire.shm_name()};
  for (const std::string& address : wire.tcp().addresses()) {
    RETURN_IF_ERROR(CheckText("address", address, kMaxControlNameBytes));
    message.addresses.push_back(address);
  }
  return message;
}

void Put(const DisbandMessage& from, v1::CoordinatorMessage* to) {
  to->mutable_disband()->set_epoch(from.epoch);
  to->mutable_disband()->set_cause(from.cause.substr(0, kMaxControlCauseBytes));
}

absl::StatusOr<CoordinatorMessage> Read(const v1::Disband& wire) {
  RETURN_IF_ERROR(CheckText("cause", wire.cause(), kMaxControlCauseBytes));
  return DisbandMessage{.epoch = wire.epoch(), .cause = wire.cause()};
}

void Put(const SubmitMessage& from, v1::CoordinatorMessage* to) {
  v1::Submit* wire = to->mutable_submit();
  wire->set_job(from.job);
  wire->set_epoch(from.epoch);
  wire->set_id(from.id);
  wire->mutable_prompt()->Add(from.prompt.begin(), from.prompt.end());
  wire->set_temperature(from.temperature);
  wire->set_top_k(from.top_k);
  wire->set_top_p(from.top_p);
  wire->set_min_p(from.min_p);
  wire->set_repetition_penalty(from.repetition_penalty);
  wire->set_presence_penalty(from.presence_penalty);
  wire->set_frequency_penalty(from.frequency_penalty);
  wire->set_seed(from.seed);
  wire->set_choice(from.choice);
  wire->set_num_logprobs(from.num_logprobs);
  for (const auto& [token, bias] : from.logit_bias) {
    wire->add_bias_tokens(token);
    wire->add_biases(bias);
  }
  wire->set_max_tokens(from.max_tokens);
  wire->set_min_tokens(from.min_tokens);
  wire->mutable_stop_ids()->Add(from.stop_ids.begin(), from.stop_ids.end());
  wire->set_cache_salt(from.cache_salt);
  wire->set_use_prefix_cache(from.use_prefix_cache);
}

// What numbers mean is checked by the scheduler; here only that sizes are bounded.
absl::StatusOr<CoordinatorMessage> Read(const v1::Submit& wire) {
  RETURN_IF_ERROR(CheckText("id", wire.id(), kMaxControlNameBytes));
  RETURN_IF_ERROR(CheckText("cache_salt", wire.cache_salt(), kMaxControlNameBytes));
  RETURN_IF_ERROR(CheckRange("prompt", wire.prompt_size(), 1, kMaxPromptTokens));
  RETURN_IF_ERROR(CheckRange("stop_ids", wire.stop_ids_size(), 0, kMaxListEntries));
  RETURN_IF_ERROR(
      CheckRange("max_tokens", wire.max_tokens(), 1, std::numeric_limits<int32_t>::max()));
  RETURN_IF_ERROR(CheckRange("min_tokens", wire.min_tokens(), 0, wire.max_tokens()));
  SubmitMessage message{.job = wire.job(),
                        .epoch = wire.epoch(),
                        .id = wire.id(),
                        .prompt = {wire.prompt().begin(), wire.prompt().end()},
                        .temperature = wire.temperature(),
                        .top_k = wire.top_k(),
                        .top_p = wire.top_p(),
                        .min_p = wire.min_p(),
                        .repetition_penalty = wire.repetition_penalty(),
                        .presence_penalty = wire.presence_penalty(),
                        .frequency_penalty = wire.frequency_penalty(),
                        .seed = wire.seed(),
                        .choice = wire.choice(),
                        .num_logprobs = wire.num_logprobs(),
                        .max_tokens = wire.max_tokens(),
                        .min_tokens = wire.min_tokens(),
                        .stop_ids = {wire.stop_ids().begin(), wire.stop_ids().end()},
                        .cache_salt = wire.cache_salt(),
                        .use_prefix_cache = wire.use_prefix_cache()};
  ASSIGN_OR_RETURN(message.logit_bias, ReadPairs("logit_bias", wire.bias_tokens(), wire.biases()));
  return message;
}

void Put(const CancelMessage& from, v1::CoordinatorMessage* to) {
  to->mutable_cancel()->set_job(from.job);
}

absl::StatusOr<CoordinatorMessage> Read(const v1::Cancel& wire) {
  return CancelMessage{.job = wire.job()};
}

void Put(const PingMessage&, v1::CoordinatorMessage* to) { to->mutable_ping(); }

void Put(const ReleaseMessage& from, v1::CoordinatorMessage* to) {
  to->mutable_release()->set_cause(from.cause.substr(0, kMaxControlCauseBytes));
}

absl::StatusOr<CoordinatorMessage> Read(const v1::Release& wire) {
  RETURN_IF_ERROR(CheckText("cause", wire.cause(), kMaxControlCauseBytes));
  return ReleaseMessage{.cause = wire.cause()};
}

template <typename Wire, typename Message>
std::string Encode(const Message& message) {
  Wire wire;
  std::visit([&](const auto& from) { Put(from, &wire); }, message);
  return wire.SerializeAsString();
}

template <typename Wire>
absl::Status Parse(std::string_view bytes, Wire* wire) {
  if (static_cast<int64_t>(bytes.size()) > kMaxControlFrameBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "control message too long: %d bytes, limit %d", bytes.size(), kMaxControlFrameBytes));
  }
  if (!wire->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("control message: not decodable");
  }
  return absl::OkStatus();
}

}  // namespace

std::string EncodeWorkerMessage(const WorkerMessage& message) {
  return Encode<v1::WorkerMessage>(message);
}

std::string EncodeCoordinatorMessage(const CoordinatorMessage& message) {
  return Encode<v1::CoordinatorMessage>(message);
}

absl::StatusOr<WorkerMessage> DecodeWorkerMessage(std::string_view bytes) {
  v1::WorkerMessage wire;
  RETURN_IF_ERROR(Parse(bytes, &wire));
  switch (wire.message_case()) {
    case v1::WorkerMessage::kRegister:
      return Read(wire.register_());
    case v1::WorkerMessage::kLoading:
      return Read(wire.loading());
    case v1::WorkerMessage::kLoaded:
      return Read(wire.loaded());
    case v1::WorkerMessage::kListening:
      return Read(wire.listening());
    case v1::WorkerMessage::kReady:
      return Read(wire.ready());
    case v1::WorkerMessage::kLeft:
      return Read(wire.left());
    case v1::WorkerMessage::kTokens:
      return Read(wire.tokens());
    case v1::WorkerMessage::kHeartbeat:
      return Read(wire.heartbeat());
    case v1::WorkerMessage::kLeaving:
      return LeavingMessage{};
    case v1::WorkerMessage::kRefused:
      return Read(wire.refused());
    case v1::WorkerMessage::MESSAGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("control message of an unknown kind");
}

absl::StatusOr<CoordinatorMessage> DecodeCoordinatorMessage(std::string_view bytes) {
  v1::CoordinatorMessage wire;
  RETURN_IF_ERROR(Parse(bytes, &wire));
  switch (wire.message_case()) {
    case v1::CoordinatorMessage::kAssign:
      return Read(wire.assign());
    case v1::CoordinatorMessage::kListen:
      return Read(wire.listen());
    case v1::CoordinatorMessage::kForm:
      return Read(wire.form());
    case v1::CoordinatorMessage::kDisband:
      return Read(wire.disband());
    case v1::CoordinatorMessage::kSubmit:
      return Read(wire.submit());
    case v1::CoordinatorMessage::kCancel:
      return Read(wire.cancel());
    case v1::CoordinatorMessage::kPing:
      return PingMessage{};
    case v1::CoordinatorMessage::kRelease:
      return Read(wire.release());
    case v1::CoordinatorMessage::MESSAGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("control message of an unknown kind");
}

}  // namespace cairn
