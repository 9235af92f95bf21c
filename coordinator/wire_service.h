// The public messages as the coordinator's own values, and back. For the services only.
// Thread: any; pure functions.
#pragma once

#include "coordinator/answer.h"
#include "coordinator/cluster_loop.h"
#include "coordinator/request.h"
#include "coordinator/served_model.h"

namespace cairn {

namespace v1 {
class ChatRequest;
class Conversation;
class GenerateRequest;
class GenerateResponse;
class Model;
class StatusResponse;
}  // namespace v1

GenerateCall DecodeGenerate(const v1::GenerateRequest& wire);
GenerateCall DecodeChat(const v1::ChatRequest& wire);
ConversationInput DecodeConversation(const v1::Conversation& wire);

v1::GenerateResponse EncodeEvent(const AnswerEvent& event);
void EncodeModel(const ServedModel& model, v1::Model* wire);
void EncodeStatus(const CoordinatorStatus& status, v1::StatusResponse* wire);

}  // namespace cairn
