#include "coordinator/cairn_service.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <utility>

#include "base/log.h"
#include "cairn/v1/cairn.grpc.pb.h"
#include "coordinator/wire_service.h"
#include "model/detokenizer.h"
#include "proto/rpc.h"
#include "proto/stream_queue.h"

namespace cairn {
namespace {

uint64_t RandomSeed() {
  const Nonce nonce = MakeNonce();
  uint64_t seed = 0;
  // Small enough to be exact in every JSON reader.
  for (int i = 0; i < 6; ++i) seed = seed << 8 | nonce[i];
  return seed;
}

// The stream of one answer. It keeps itself alive until gRPC is done with it; others may hold it
// longer.
class AnswerReactor final : public grpc::ServerWriteReactor<v1::GenerateResponse>,
                            public AnswerStream,
                            public std::enable_shared_from_this<AnswerReactor> {
 public:
  using Queue = StreamQueue<v1::GenerateResponse>;

  static std::shared_ptr<AnswerReactor> Create(ClusterLoop* loop) {
    std::shared_ptr<AnswerReactor> reactor(new AnswerReactor(loop));
    reactor->self_ = reactor;
    return reactor;
  }
  RequestId id() const { return id_; }

  bool Write(AnswerEvent event) override {
    const Queue::Next next = queue_.Add(EncodeEvent(event));
    if (next.act == Queue::Act::kFull || next.act == Queue::Act::kEnded) return false;
    Do(next);
    return true;
  }
  void Finish(const absl::Status& status) override {
    // A reader too slow to take its deltas is not waited for.
    if (status.code() == absl::StatusCode::kResourceExhausted)
      return Do(queue_.Abort(ToGrpc(status)));
    Do(queue_.End(ToGrpc(status)));
  }
  bool cancelled() const override { return cancelled_.load(); }

  void OnWriteDone(bool ok) override { Do(queue_.WriteDone(ok)); }
  void OnCancel() override {
    cancelled_.store(true);
    loop_->Cancel(id_);
    Do(queue_.Abort(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled")));
  }
  void OnDone() override { self_.reset(); }

 private:
  explicit AnswerReactor(ClusterLoop* loop) : loop_(loop), id_(loop->NewRequestId()) {}

  void Do(const Queue::Next& next) {
    if (next.act == Queue::Act::kWrite) StartWrite(next.message);
    if (next.act == Queue::Act::kFinish) {
      grpc::ServerWriteReactor<v1::GenerateResponse>::Finish(next.status);
    }
  }

  ClusterLoop* const loop_;
  const RequestId id_;
  std::atomic<bool> cancelled_{false};
  Queue queue_{kMaxQueuedDeltas};
  std::shared_ptr<AnswerReactor> self_;
};

class CairnService final : public v1::Cairn::CallbackService {
 public:
  explicit CairnService(const FrontDoor& door) : door_(door) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext*, const v1::GenerateRequest* request) override {
    return Start(DecodeGenerate(*request), request->ByteSizeLong());
  }

  grpc::ServerWriteReactor<v1::GenerateResponse>* Chat(grpc::CallbackServerContext*,
                                                       const v1::ChatRequest* request) override {
    return Start(DecodeChat(*request), request->ByteSizeLong());
  }

  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override {
    return OnTextWorker(
        context, request->ByteSizeLong(), [this, request, response]() -> absl::Status {
          RETURN_IF_ERROR(CheckText(request->text()));
          RETURN_IF_ERROR(door_.model->CheckName(request->model()));
          ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                           door_.model->tokenizer().Encode(
                               request->text(), {.parse_special = request->parse_special(),
                                                 .add_special = request->add_special()}));
          response->mutable_ids()->Add(ids.begin(), ids.end());
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override {
    return OnTextWorker(
        context, request->ByteSizeLong(), [this, request, response]() -> absl::Status {
          RETURN_IF_ERROR(door_.model->CheckName(request->model()));
          const std::vector<int32_t> ids(request->ids().begin(), request->ids().end());
          RETURN_IF_ERROR(CheckTextIds(ids, door_.model->tokenizer().vocab_size()));
          response->set_text(
              DecodeTokens(door_.model->tokenizer(), ids,
                           {.skip_special_tokens = !request->keep_special(), .begins_text = true}));
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* Render(grpc::CallbackServerContext* context,
                                   const v1::RenderRequest* request,
                                   v1::RenderResponse* response) override {
    return OnTextWorker(context, request->ByteSizeLong(),
                        [this, request, response]() -> absl::Status {
                          ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                                           RenderIds(*request, response->mutable_text()));
                          response->mutable_ids()->Add(ids.begin(), ids.end());
                          return absl::OkStatus();
                        });
  }

  grpc::ServerUnaryReactor* CountTokens(grpc::CallbackServerContext* context,
                                        const v1::RenderRequest* request,
                                        v1::CountTokensResponse* response) override {
    return OnTextWorker(
        context, request->ByteSizeLong(), [this, request, response]() -> absl::Status {
          ASSIGN_OR_RETURN(const std::vector<int32_t> ids, RenderIds(*request, nullptr));
          response->set_prompt_tokens(static_cast<int32_t>(ids.size()));
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest*,
                                       v1::ListModelsResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    v1::Model* model = response->add_models();
    EncodeModel(*door_.model, model);
    const absl::Status asked =
        door_.loop->AskStatus([reactor, model](const CoordinatorStatus& status) {
          model->set_serving(status.cluster.serving);
          reactor->Finish(grpc::Status::OK);
        });
    if (!asked.ok()) reactor->Finish(ToGrpc(asked));
    return reactor;
  }

 private:
  grpc::ServerWriteReactor<v1::GenerateResponse>* Start(GenerateCall call, size_t bytes) {
    const std::shared_ptr<AnswerReactor> stream = AnswerReactor::Create(door_.loop);
    absl::Status status = CheckCall(call);
    if (status.ok()) {
      status = door_.text->Add(
          [this, stream, call = std::move(call)]() mutable { Prepare(stream, std::move(call)); },
          static_cast<int64_t>(bytes));
    }
    if (!status.ok()) stream->Finish(status);
    return stream.get();
  }

  void Prepare(const std::shared_ptr<AnswerReactor>& stream, GenerateCall call) {
    if (stream->cancelled()) return stream->Finish(absl::CancelledError("the client is gone"));
    absl::StatusOr<PreparedRequest> request =
        PrepareRequest(*door_.model, std::move(call), RandomSeed());
    if (!request.ok()) return stream->Finish(request.status());
    const absl::Status submitted = door_.loop->Submit(stream->id(), *std::move(request), stream);
    if (!submitted.ok()) stream->Finish(submitted);
  }

  absl::StatusOr<std::vector<int32_t>> RenderIds(const v1::RenderRequest& request,
                                                 std::string* text) {
    RETURN_IF_ERROR(door_.model->CheckName(request.model()));
    const ConversationInput conversation = DecodeConversation(request.conversation());
    RETURN_IF_ERROR(CheckConversation(conversation));
    return RenderConversation(*door_.model, conversation, text);
  }

  grpc::ServerUnaryReactor* OnTextWorker(grpc::CallbackServerContext* context, size_t bytes,
                                         std::function<absl::Status()> work) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const absl::Status added = door_.text->Add(
        [context, reactor, work = std::move(work)] {
          const bool gone = context->IsCancelled();
          reactor->Finish(ToGrpc(gone ? absl::CancelledError("the client is gone") : work()));
        },
        static_cast<int64_t>(bytes));
    if (!added.ok()) reactor->Finish(ToGrpc(added));
    return reactor;
  }

  const FrontDoor door_;
};

class AdminService final : public v1::Admin::CallbackService {
 public:
  explicit AdminService(const FrontDoor& door) : door_(door) {}

  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context, const v1::StatusRequest*,
                                   v1::StatusResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    response->set_model(door_.model->name());
    const absl::Status asked =
        door_.loop->AskStatus([reactor, response](const CoordinatorStatus& status) {
          EncodeStatus(status, response);
          reactor->Finish(grpc::Status::OK);
        });
    if (!asked.ok()) reactor->Finish(ToGrpc(asked));
    return reactor;
  }

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const Hello hello{.purpose = "drain " + door_.loop->run_id()};
    if (!door_.secret->Verify(HelloRole::kClient, hello, request->proof())) {
      reactor->Finish(grpc::Status(grpc::StatusCode::PERMISSION_DENIED,
                                   "draining needs this cluster's secret"));
      return reactor;
    }
    const absl::Status asked =
        door_.loop->AskStatus([reactor, response](const CoordinatorStatus& status) {
          response->set_requests_in_flight(status.requests_in_flight);
          reactor->Finish(grpc::Status::OK);
        });
    if (!asked.ok()) reactor->Finish(ToGrpc(asked));
    door_.drain();
    return reactor;
  }

 private:
  const FrontDoor door_;
};

}  // namespace

ServiceHandle NewCairnService(const FrontDoor& door) {
  return ServiceHandle(new CairnService(door));
}

ServiceHandle NewAdminService(const FrontDoor& door) {
  return ServiceHandle(new AdminService(door));
}

}  // namespace cairn
