#include "worker/rank.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/log.h"
#include "kernels/kv_layout.h"
#include "worker/decoder.h"
#include "worker/shard_plan.h"
#include "worker/slot_table.h"
#include "worker/weights.h"

namespace cairn {
namespace {

// Rows whose logits exist at once; more are computed in turns.
constexpr int32_t kMaxLogitRows = 32;
// First byte of what the leader sends.
constexpr char kPlanTag = 'P', kStopTag = 'S';

// A row whose token every rank can find from the best of each rank's part of the vocabulary.
bool IsPlainGreedy(const SlotState& sequence) {
  const SamplingParams& sampling = sequence.sampling;
  return sampling.temperature == 0 && sampling.num_logprobs < 0 && sampling.logit_bias.empty() &&
         sequence.counts.empty() &&
         static_cast<int64_t>(sequence.tokens.size()) >= sequence.banned_before;
}

class RankImpl : public Rank {
 public:
  RankImpl(const ModelConfig& config, const ResolvedRankOptions& options,
           std::unique_ptr<ThreadTeam> team, std::unique_ptr<Decoder> decoder, int64_t weight_bytes,
           int64_t read_bytes)
      : config_(config),
        options_(options.options),
        team_(std::move(team)),
        decoder_(std::move(decoder)),
        weight_bytes_(weight_bytes),
        read_bytes_(read_bytes),
        table_(NewTable()) {}

  void JoinGroup(Collective* collective) override {
    collective_ = collective;
    decoder_->SetCollective(collective);
    table_ = NewTable();
  }
  void SetLogitsCapture(LogitsCapture capture) override { capture_ = std::move(capture); }

  absl::StatusOr<StepResult> Run(const StepPlan& plan) override {
    if (options_.size > 1) RETURN_IF_ERROR(Send(kPlanTag + EncodeStepPlan(plan)));
    return Compute(plan);
  }

  absl::Status Follow() override;
  absl::Status StopFollowers() override {
    if (options_.size == 1) return absl::OkStatus();
    return Send(std::string(1, kStopTag));
  }

  int64_t weight_bytes() const override { return weight_bytes_; }
  int64_t read_bytes() const override { return read_bytes_; }

 private:
  std::unique_ptr<SlotTable> NewTable() const;
  absl::Status Send(std::string message) { return Broadcast(*collective_, 0, &message); }
  absl::StatusOr<StepResult> Compute(const StepPlan& plan);
  absl::Status CaptureLogits();
  absl::Status SampleRows(StepResult* result);
  absl::Status SampleGroup(std::span<const StepRows::Sample> group, StepResult* result);
  absl::Status ChooseGreedy(std::span<const StepRows::Sample> group, StepToken* out);
  int32_t num_token_ids() const {
    return options_.num_token_ids > 0 ? std::min(options_.num_token_ids, config_.vocab_size)
                                      : config_.vocab_size;
  }

  const ModelConfig config_;
  const RankOptions options_;
  const std::unique_ptr<ThreadTeam> team_;
  const std::unique_ptr<Decoder> decoder_;
  const int64_t weight_bytes_, read_bytes_;
  Collective* collective_ = nullptr;
  LogitsCapture capture_;
  std::unique_ptr<SlotTable> table_;
  StepRows rows_;
  std::vector<int32_t> logit_rows_;
};

std::unique_ptr<SlotTable> RankImpl::NewTable() const {
  return std::make_unique<SlotTable>(SlotLimits{.max_slots = options_.max_running,
                                                .max_rows = options_.max_step_tokens,
                                                .num_blocks = options_.num_blocks,
                                                .block_tokens = options_.block_tokens,
                                                .num_tables = MakeKvTables(config_).num_tables(),
                                                .context_length = options_.context_length,
                                                .vocab_size = config_.vocab_size});
}

absl::Status RankImpl::Follow() {
  for (;;) {
    std::string message;
    RETURN_IF_ERROR(Broadcast(*collective_, 0, &message));
    if (message.empty()) return absl::InvalidArgumentError("empty message from the group's leader");
    if (message[0] == kStopTag) return absl::OkStatus();
    if (message[0] != kPlanTag) {
      return absl::InvalidArgumentError(
          absl::StrFormat("unknown message from the group's leader: tag=%d", message[0]));
    }
    ASSIGN_OR_RETURN(const StepPlan plan, DecodeStepPlan(message.substr(1)));
    RETURN_IF_ERROR(Compute(plan).status());
  }
}

absl::StatusOr<StepResult> RankImpl::Compute(const StepPlan& plan) {
  RETURN_IF_ERROR(table_->Apply(plan, &rows_));
  for (const BlockCopy& copy : plan.copies) decoder_->CopyBlock(copy.from, copy.to);
  StepResult result = {.step = plan.step, .tokens = {}};
  if (rows_.tokens.empty()) return result;
  RETURN_IF_ERROR(decoder_->Forward({rows_.tokens, rows_.positions, rows_.tables}));
  table_->Advance(plan);
  RETURN_IF_ERROR(CaptureLogits());
  RETURN_IF_ERROR(SampleRows(&result));
  return result;
}

// All ranks take part, rank 0 hands the rows out.
absl::Status RankImpl::CaptureLogits() {
  const std::span<const StepRows::Capture> all = rows_.captures;
  for (size_t first = 0; first < all.size(); first += kMaxLogitRows) {
    const auto group = all.subspan(first, std::min<size_t>(kMaxLogitRows, all.size() - first));
    logit_rows_.clear();
    for (const StepRows::Capture& capture : group) logit_rows_.push_back(capture.row);
    RETURN_IF_ERROR(decoder_->ComputeLogits(logit_rows_, true));
    if (options_.rank != 0 || capture_ == nullptr) continue;
    for (size_t i = 0; i < group.size(); ++i)
      capture_(
          group[i].slot, group[i].position,
          {decoder_->logits(static_cast<int64_t>(i)), static_cast<size_t>(config_.vocab_size)});
  }
  return absl::OkStatus();
}

absl::Status RankImpl::SampleRows(StepResult* result) {
  const std::span<const StepRows::Sample> all = rows_.samples;
  for (size_t first = 0; first < all.size(); first += kMaxLogitRows)
    RETURN_IF_ERROR(SampleGroup(
        all.subspan(first, std::min<size_t>(kMaxLogitRows, all.size() - first)), result));
  for (const StepToken& token : result->tokens)
    if (token.sampled.token != kNoToken) table_->Append(token.slot, token.sampled.token);
  return absl::OkStatus();
}

absl::Status RankImpl::SampleGroup(std::span<const StepRows::Sample> group, StepResult* result) {
  bool all_greedy = true;
  logit_rows_.clear();
  for (const StepRows::Sample& sample : group) {
    all_greedy = all_greedy && IsPlainGreedy(table_->state(sample.slot));
    logit_rows_.push_back(sample.row);
  }
  RETURN_IF_ERROR(decoder_->ComputeLogits(logit_rows_, !all_greedy));
  const size_t first = result->tokens.size();
  result->tokens.resize(first + group.size());
  StepToken* out = &result->tokens[first];
  for (size_t i = 0; i < group.size(); ++i) out[i].slot = group[i].slot;
  if (all_greedy) return ChooseGreedy(group, out);
  team_->Run([&](const Context& context) {
    const Range mine = context.Share(static_cast<int64_t>(group.size()));
    for (int64_t i = mine.begin; i < mine.end; ++i) {
      const SlotState& sequence = table_->state(group[i].slot);
      const auto position = static_cast<int32_t>(sequence.tokens.size());
      SampleArgs args = {.logits = decoder_->logits(i),
                         .vocab = num_token_ids(),
                         .params = &sequence.sampling,
                         .counts = sequence.counts,
                         .banned = {},
                         .position = static_cast<uint32_t>(position)};
      if (position < sequence.banned_before) args.banned = sequence.banned_ids;
      out[i].sampled = SampleToken(context.cpu(), args);
    }
  });
  return absl::OkStatus();
}

// Each rank finds the best of its part; the best of those, the lowest id of equals, is the token.
absl::Status RankImpl::ChooseGreedy(std::span<const StepRows::Sample> group, StepToken* out) {
  struct Best {
    float logit;
    int32_t token;
  };
  std::vector<Best> best(group.size());
  const Range own = decoder_->own_vocabulary();
  const int64_t end = std::min<int64_t>(own.end, num_token_ids());
  team_->Run([&](const Context& context) {
    const Range mine = context.Share(static_cast<int64_t>(group.size()));
    for (int64_t i = mine.begin; i < mine.end; ++i) {
      best[i] = {-std::numeric_limits<float>::infinity(), std::numeric_limits<int32_t>::max()};
      if (end <= own.begin) continue;
      const float* logits = decoder_->logits(i) + own.begin;
      const int32_t index = Argmax(context.cpu(), logits, end - own.begin);
      best[i] = {logits[index], static_cast<int32_t>(own.begin) + index};
    }
  });
  if (options_.size > 1) {
    const auto bytes = static_cast<int64_t>(best.size() * sizeof(Best));
    std::memcpy(collective_->Outbox(), best.data(), bytes);
    RETURN_IF_ERROR(collective_->AllGatherV(bytes));
    for (int rank = 0; rank < options_.size; ++rank) {
      const auto* other = reinterpret_cast<const Best*>(collective_->Inbox(rank).data());
      for (size_t i = 0; i < best.size(); ++i) {
        if (other[i].logit > best[i].logit ||
            (other[i].logit == best[i].logit && other[i].token < best[i].token))
          best[i] = other[i];
      }
    }
  }
  for (size_t i = 0; i < best.size(); ++i)
    out[i].sampled.token = std::isfinite(best[i].logit) ? best[i].token : kNoToken;
  return absl::OkStatus();
}

absl::StatusOr<ActivationFormat> PickActivations(const std::string& value, bool quantised,
                                                 const ModelConfig& config) {
  if (value == "f32" || (value == "auto" && !quantised)) return ActivationFormat::kF32;
  if (value == "int16" || (value == "auto" && config.wide_activations))
    return ActivationFormat::kInt16;
  if (value == "int8" || value == "auto") return ActivationFormat::kInt8;
  return absl::InvalidArgumentError(
      absl::StrFormat("unknown value: activations=%s, known: f32, int16, int8, auto", value));
}

absl::StatusOr<DType> PickKvDtype(const std::string& value, bool quantised) {
  if (value == "auto") return quantised ? DType::kF16 : DType::kF32;
  if (value == "f32") return DType::kF32;
  if (value == "f16") return DType::kF16;
  if (value == "bf16") return DType::kBF16;
  return absl::InvalidArgumentError(
      absl::StrFormat("unknown value: kv-dtype=%s, known: f32, f16, bf16, auto", value));
}

absl::Status CheckOption(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("option out of range: %s=%d, limits=%d..%d", name, value, low, high));
}

bool AnyQuantised(const Checkpoint& checkpoint) {
  return std::any_of(checkpoint.tensors().begin(), checkpoint.tensors().end(),
                     [](const Tensor& t) { return t.dtype && Info(*t.dtype).quantised; });
}

}  // namespace

absl::StatusOr<ResolvedRankOptions> ResolveRankOptions(const Checkpoint& checkpoint,
                                                       const ModelConfig& config,
                                                       const RankOptions& options) {
  constexpr int64_t kMaxBlocks = int64_t{1} << 26;
  constexpr int64_t kMaxStepTokens = 16384, kMaxSlots = 4096;
  RETURN_IF_ERROR(CheckOption("threads", options.num_threads, 1, ThreadTeam::kMaxThreads));
  RETURN_IF_ERROR(CheckOption("num-blocks", options.num_blocks, 1, kMaxBlocks));
  RETURN_IF_ERROR(CheckOption("max-step-tokens", options.max_step_tokens, 1, kMaxStepTokens));
  RETURN_IF_ERROR(CheckOption("max-running", options.max_running, 1, kMaxSlots));
  RETURN_IF_ERROR(CheckOption("context-length", options.context_length, 0, config.context_length));
  const int32_t block = options.block_tokens;
  if (block < 16 || block > kAttentionTile || (block & (block - 1)) != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "option out of range: block-tokens=%d, known: 16, 32, 64, 128, 256", block));
  }
  ResolvedRankOptions resolved = {.options = options};
  if (options.context_length == 0) resolved.options.context_length = config.context_length;
  const bool quantised = AnyQuantised(checkpoint);
  ASSIGN_OR_RETURN(resolved.activations,
                   PickActivations(options.numerics.activations, quantised, config));
  ASSIGN_OR_RETURN(resolved.kv_dtype, PickKvDtype(options.numerics.kv_dtype, quantised));
  ASSIGN_OR_RETURN(const ShardPlan plan, MakeShardPlan(config, options.size));
  RETURN_IF_ERROR(CheckOption("rank", options.rank, 0, options.size - 1));
  for (const RankShard& shard : plan.ranks)
    resolved.kv_bytes_per_block =
        std::max(resolved.kv_bytes_per_block,
                 KvBytesPerBlock(config, shard, resolved.kv_dtype, options.block_tokens));
  resolved.kv_groups = MakeKvTables(config).groups;
  resolved.max_message_bytes =
      MaxMessageBytes(config, plan, options.max_step_tokens, kMaxLogitRows);
  return resolved;
}

absl::StatusOr<std::unique_ptr<Rank>> Rank::Load(
    const Checkpoint& checkpoint, const ModelConfig& config, const ResolvedRankOptions& resolved,
    std::function<void(const LoadProgress&)> on_progress) {
  const RankOptions& options = resolved.options;
  RETURN_IF_ERROR(ValidateWeights(checkpoint, config).status());
  ASSIGN_OR_RETURN(const ShardPlan plan, MakeShardPlan(config, options.size));
  ASSIGN_OR_RETURN(std::unique_ptr<ThreadTeam> team,
                   ThreadTeam::Create({.num_threads = options.num_threads, .isa = options.isa}));
  const auto report = [&](int64_t done, int64_t total) {
    if (on_progress != nullptr) on_progress({done, total});
  };
  ASSIGN_OR_RETURN(RankWeights weights,
                   LoadRankWeights(checkpoint, config, plan.ranks[options.rank], *team, report,
                                   !options.numerics.exact));
  const int64_t weight_bytes = weights.packed_bytes, read_bytes = weights.read_bytes;
  ASSIGN_OR_RETURN(std::unique_ptr<Decoder> decoder,
                   Decoder::Create(config, plan, std::move(weights), *team,
                                   {.rank = options.rank,
                                    .exact = options.numerics.exact,
                                    .activations = resolved.activations,
                                    .kv_dtype = resolved.kv_dtype,
                                    .block_tokens = options.block_tokens,
                                    .num_blocks = options.num_blocks,
                                    .max_rows = options.max_step_tokens,
                                    .max_sequences = options.max_running,
                                    .max_logit_rows = kMaxLogitRows,
                                    .context_length = options.context_length}));
  return std::make_unique<RankImpl>(config, resolved, std::move(team), std::move(decoder),
                                    weight_bytes, read_bytes);
}

}  // namespace cairn
