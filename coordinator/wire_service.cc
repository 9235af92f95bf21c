#include "coordinator/wire_service.h"

#include "cairn/v1/cairn.pb.h"

namespace cairn {
namespace {

SamplingCall DecodeSampling(const v1::Sampling& wire) {
  SamplingCall call;
  if (wire.has_temperature()) call.temperature = wire.temperature();
  if (wire.has_top_k()) call.top_k = wire.top_k();
  if (wire.has_top_p()) call.top_p = wire.top_p();
  if (wire.has_min_p()) call.min_p = wire.min_p();
  if (wire.has_repetition_penalty()) call.repetition_penalty = wire.repetition_penalty();
  if (wire.has_presence_penalty()) call.presence_penalty = wire.presence_penalty();
  if (wire.has_frequency_penalty()) call.frequency_penalty = wire.frequency_penalty();
  for (const v1::LogitBias& bias : wire.logit_bias()) {
    call.logit_bias.emplace_back(bias.token(), bias.bias());
  }
  if (wire.has_seed()) call.seed = wire.seed();
  if (wire.has_max_tokens()) call.max_tokens = wire.max_tokens();
  if (wire.has_min_tokens()) call.min_tokens = wire.min_tokens();
  call.stop.assign(wire.stop().begin(), wire.stop().end());
  call.stop_ids.assign(wire.stop_ids().begin(), wire.stop_ids().end());
  call.ignore_eos = wire.ignore_eos();
  if (wire.has_n()) call.n = wire.n();
  if (wire.has_logprobs()) call.logprobs = wire.logprobs();
  return call;
}

void Encode(const AnswerStarted& event, v1::GenerateResponse* response) {
  v1::Started* wire = response->mutable_started();
  wire->set_request_id(event.request_id);
  wire->set_client_id(event.client_id);
  wire->set_model(event.model);
  wire->set_seed(event.seed);
  wire->set_prompt_tokens(event.prompt_tokens);
  wire->mutable_prompt_ids()->Add(event.prompt_ids.begin(), event.prompt_ids.end());
}

void Encode(const AnswerDelta& event, v1::GenerateResponse* response) {
  v1::Delta* wire = response->mutable_delta();
  wire->set_choice(event.choice);
  wire->set_text(event.text);
  wire->mutable_ids()->Add(event.ids.begin(), event.ids.end());
  for (const TokenLogprobs& logprobs : event.logprobs) {
    v1::TokenLogprobs* entry = wire->add_logprobs();
    entry->set_token(logprobs.token);
    entry->set_logprob(logprobs.logprob);
    for (const auto& [token, logprob] : logprobs.top) {
      v1::TopLogprob* top = entry->add_top();
      top->set_token(token);
      top->set_logprob(logprob);
    }
  }
}

void Encode(const AnswerEnded& event, v1::GenerateResponse* response) {
  v1::Ended* wire = response->mutable_ended();
  wire->set_choice(event.choice);
  wire->set_finish_reason(event.reason == AnswerReason::kStop ? v1::FINISH_REASON_STOP
                                                              : v1::FINISH_REASON_LENGTH);
  wire->set_stop(event.stop);
  wire->mutable_usage()->set_prompt_tokens(event.prompt_tokens);
  wire->mutable_usage()->set_cached_tokens(event.cached_tokens);
  wire->mutable_usage()->set_completion_tokens(event.completion_tokens);
  wire->mutable_usage()->set_num_preemptions(event.num_preemptions);
}

v1::RankState EncodeState(const RankStatus& rank) {
  if (rank.missing) return v1::RANK_STATE_MISSING;
  switch (rank.state) {
    case MemberState::kAttached:
      return v1::RANK_STATE_ATTACHED;
    case MemberState::kLoading:
      return v1::RANK_STATE_LOADING;
    case MemberState::kLoaded:
      return v1::RANK_STATE_LOADED;
    case MemberState::kForming:
      return v1::RANK_STATE_FORMING;
    case MemberState::kReady:
      return v1::RANK_STATE_READY;
    case MemberState::kLeaving:
      return v1::RANK_STATE_LEAVING;
  }
  return v1::RANK_STATE_UNSPECIFIED;
}

void EncodeRank(const RankStatus& rank, v1::StatusResponse::Rank* wire) {
  wire->set_rank(rank.rank);
  wire->set_state(EncodeState(rank));
  wire->set_worker(rank.worker);
  wire->set_host(rank.host);
  wire->set_address(rank.address);
  wire->set_pid(rank.pid);
  wire->set_threads(rank.threads);
  wire->set_loading(rank.loading);
  wire->set_heard_seconds_ago(absl::ToDoubleSeconds(rank.heard_ago));
  wire->set_weight_bytes(rank.weight_bytes);
  wire->set_read_bytes(rank.read_bytes);
  wire->set_kv_bytes(rank.kv_bytes);
}

void EncodeEngine(const GroupStatus& group, v1::EngineStats* wire) {
  const HeartbeatMessage& engine = group.engine;
  wire->set_waiting(engine.num_waiting);
  wire->set_running(engine.num_running);
  wire->set_blocks(engine.num_blocks);
  wire->set_free_blocks(engine.num_free_blocks);
  wire->set_cached_blocks(engine.num_cached_blocks);
  wire->set_steps(engine.num_steps);
  wire->set_preemptions(engine.num_preemptions);
  wire->set_prompt_tokens(engine.prompt_tokens);
  wire->set_cached_tokens(engine.cached_tokens);
  wire->set_computed_tokens(engine.computed_tokens);
  wire->set_generated_tokens(engine.generated_tokens);
  wire->set_last_step_seconds(engine.last_step_seconds);
  wire->set_longest_step_seconds(engine.longest_step_seconds);
  wire->set_max_request_tokens(group.max_request_tokens);
}

}  // namespace

ConversationInput DecodeConversation(const v1::Conversation& wire) {
  ConversationInput conversation;
  for (const v1::Message& message : wire.messages()) {
    MessageInput& to = conversation.messages.emplace_back();
    to.role = message.role();
    to.content = message.content();
    to.name = message.name();
    to.tool_call_id = message.tool_call_id();
    for (const v1::ToolCall& call : message.tool_calls()) {
      to.tool_calls.push_back({call.id(), call.name(), call.arguments_json()});
    }
  }
  conversation.tools_json = wire.tools_json();
  conversation.template_variables_json = wire.template_variables_json();
  if (wire.has_add_generation_prompt()) {
    conversation.add_generation_prompt = wire.add_generation_prompt();
  }
  return conversation;
}

GenerateCall DecodeGenerate(const v1::GenerateRequest& wire) {
  GenerateCall call;
  call.model = wire.model();
  if (wire.has_text()) call.text = wire.text();
  if (wire.has_ids()) call.ids.emplace(wire.ids().ids().begin(), wire.ids().ids().end());
  call.parse_special = wire.parse_special();
  call.sampling = DecodeSampling(wire.sampling());
  call.client_id = wire.client_id();
  call.cache_salt = wire.cache_salt();
  call.no_prefix_cache = wire.no_prefix_cache();
  call.return_prompt_ids = wire.return_prompt_ids();
  return call;
}

GenerateCall DecodeChat(const v1::ChatRequest& wire) {
  GenerateCall call;
  call.model = wire.model();
  call.conversation = DecodeConversation(wire.conversation());
  call.sampling = DecodeSampling(wire.sampling());
  call.client_id = wire.client_id();
  call.cache_salt = wire.cache_salt();
  call.no_prefix_cache = wire.no_prefix_cache();
  call.return_prompt_ids = wire.return_prompt_ids();
  return call;
}

v1::GenerateResponse EncodeEvent(const AnswerEvent& event) {
  v1::GenerateResponse response;
  std::visit([&](const auto& e) { Encode(e, &response); }, event);
  return response;
}

void EncodeModel(const ServedModel& model, v1::Model* wire) {
  wire->set_name(model.name());
  wire->set_architecture(model.config().architecture);
  wire->set_context_tokens(model.context_tokens());
  wire->set_vocabulary(model.vocab_size());
  wire->set_has_chat_template(model.chat().ok());
}

void EncodeStatus(const CoordinatorStatus& status, v1::StatusResponse* wire) {
  const ClusterStatus& cluster = status.cluster;
  wire->set_version(CAIRN_VERSION);
  wire->set_run_id(status.run_id);
  wire->set_serving(cluster.serving);
  wire->set_draining(cluster.draining);
  wire->set_waiting_for(cluster.waiting_for);
  wire->set_loading(cluster.loading);
  for (const GroupStatus& group : cluster.groups) {
    v1::StatusResponse::Group* to = wire->add_groups();
    to->set_group(group.group);
    to->set_serving(group.serving);
    to->set_epoch(group.epoch);
    to->set_collective(group.collective);
    for (const RankStatus& rank : group.ranks) EncodeRank(rank, to->add_ranks());
    to->set_last_failure(group.last_failure);
    to->set_jobs(group.num_jobs);
    EncodeEngine(group, to->mutable_engine());
  }
  for (const RankStatus& rank : cluster.spares) EncodeRank(rank, wire->add_spares());
  wire->set_requests_in_flight(status.requests_in_flight);
  wire->set_requests_total(status.requests_total);
  wire->set_uptime_seconds(absl::ToDoubleSeconds(status.uptime));
}

}  // namespace cairn
