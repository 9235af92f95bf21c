#include "worker/step.h"

#include <bit>
#include <limits>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "worker/request_check.h"

// A plan on the wire: a version byte, then the fields in the order of the structs. Integers are
// LEB128 varints, lists are a count and their elements, floats and seeds have fixed width.

namespace cairn {
namespace {

constexpr char kPlanVersion = 1;

class Writer {
 public:
  explicit Writer(std::string* out) : out_(*out) {}

  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<char>(value | 0x80));
    out_.push_back(static_cast<char>(value));
  }
  // Negative numbers take the longest form; only ids of the vocabulary and -1 occur.
  void Int(int32_t value) { Varint(static_cast<uint32_t>(value)); }
  void Bool(bool value) { out_.push_back(value ? 1 : 0); }
  void Float(float value) { Fixed(std::bit_cast<uint32_t>(value)); }
  template <typename Unsigned>
  void Fixed(Unsigned value) {
    for (size_t i = 0; i < sizeof value; ++i) out_.push_back(static_cast<char>(value >> (8 * i)));
  }
  void Ints(const std::vector<int32_t>& values) {
    Varint(values.size());
    for (const int32_t value : values) Int(value);
  }

 private:
  std::string& out_;
};

// Reads what Writer wrote. The first error sticks: later reads give zeros and empty lists.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  const absl::Status& status() const { return status_; }
  bool at_end() const { return rest_.empty(); }

  void Fail(const char* field, std::string_view what) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        absl::StrCat("step plan: ", field, " ", absl::string_view(what.data(), what.size())));
    rest_ = {};
  }

  uint64_t Varint(const char* field) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) break;
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      if (shift == 63 && byte > 1) break;
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    Fail(field, "is cut off or too long");
    return 0;
  }

  // A number in 'least' .. INT32_MAX.
  int32_t Int(const char* field, int32_t least) {
    const uint64_t wide = Varint(field);
    if (wide > std::numeric_limits<uint32_t>::max()) {
      Fail(field, absl::StrCat("is out of range: value=", wide));
      return least;
    }
    const auto value = static_cast<int32_t>(static_cast<uint32_t>(wide));
    if (value < least) Fail(field, absl::StrCat("is out of range: value=", value));
    return status_.ok() ? value : least;
  }

  bool Bool(const char* field) {
    const uint8_t byte = Byte(field);
    if (byte > 1) Fail(field, "is neither true nor false");
    return byte == 1;
  }
  float Float(const char* field) { return std::bit_cast<float>(Fixed<uint32_t>(field)); }

  template <typename Unsigned>
  Unsigned Fixed(const char* field) {
    Unsigned value = 0;
    for (size_t i = 0; i < sizeof value; ++i) value |= Unsigned{Byte(field)} << (8 * i);
    return value;
  }

  // The length of a list whose elements take at least `element_bytes` each: no more than the rest
  // can hold, so that a few bytes never ask for much memory.
  size_t Count(const char* field, size_t element_bytes) {
    const uint64_t count = Varint(field);
    if (count > rest_.size() / element_bytes) {
      Fail(field, absl::StrCat("is longer than the message: count=", count));
      return 0;
    }
    return count;
  }

  std::vector<int32_t> Ints(const char* field) {
    std::vector<int32_t> values(Count(field, 1));
    for (int32_t& value : values) value = Int(field, 0);
    return values;
  }

 private:
  uint8_t Byte(const char* field) {
    if (rest_.empty()) {
      Fail(field, "is cut off");
      return 0;
    }
    const auto byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return byte;
  }

  std::string_view rest_;
  absl::Status status_;
};

void WriteSampling(const SamplingParams& params, Writer* out) {
  out->Float(params.temperature);
  out->Int(params.top_k);
  out->Float(params.top_p);
  out->Float(params.min_p);
  out->Float(params.repetition_penalty);
  out->Float(params.presence_penalty);
  out->Float(params.frequency_penalty);
  out->Fixed(params.seed);
  out->Int(static_cast<int32_t>(params.choice));
  out->Int(params.num_logprobs);
  out->Varint(params.logit_bias.size());
  for (const auto& [id, bias] : params.logit_bias) {
    out->Int(id);
    out->Float(bias);
  }
}

SamplingParams ReadSampling(Reader* in) {
  SamplingParams params;
  params.temperature = in->Float("temperature");
  params.top_k = in->Int("top_k", 0);
  params.top_p = in->Float("top_p");
  params.min_p = in->Float("min_p");
  params.repetition_penalty = in->Float("repetition_penalty");
  params.presence_penalty = in->Float("presence_penalty");
  params.frequency_penalty = in->Float("frequency_penalty");
  params.seed = in->Fixed<uint64_t>("seed");
  params.choice = static_cast<uint32_t>(in->Int("choice", 0));
  params.num_logprobs = in->Int("num_logprobs", -1);
  params.logit_bias.resize(in->Count("logit_bias", 1 + sizeof(float)));
  for (auto& [id, bias] : params.logit_bias) {
    id = in->Int("logit_bias", 0);
    bias = in->Float("logit_bias");
  }
  return params;
}

void WriteStart(const SequenceStart& start, Writer* out) {
  out->Int(start.slot);
  out->Ints(start.tokens);
  out->Int(start.num_prompt_tokens);
  out->Int(start.num_cached_tokens);
  out->Varint(start.tables.size());
  for (const TableStart& table : start.tables) {
    out->Int(table.first_block);
    out->Ints(table.blocks);
  }
  WriteSampling(start.sampling, out);
  out->Ints(start.banned_ids);
  out->Int(start.banned_before);
}

SequenceStart ReadStart(Reader* in) {
  SequenceStart start;
  start.slot = in->Int("starts.slot", 0);
  start.tokens = in->Ints("starts.tokens");
  start.num_prompt_tokens = in->Int("starts.num_prompt_tokens", 1);
  start.num_cached_tokens = in->Int("starts.num_cached_tokens", 0);
  start.tables.resize(in->Count("starts.tables", 2));
  for (TableStart& table : start.tables) {
    table.first_block = in->Int("starts.tables.first_block", 0);
    table.blocks = in->Ints("starts.tables.blocks");
  }
  start.sampling = ReadSampling(in);
  start.banned_ids = in->Ints("starts.banned_ids");
  start.banned_before = in->Int("starts.banned_before", 0);
  if (!in->status().ok()) return start;
  const auto num_tokens = static_cast<int64_t>(start.tokens.size());
  if (start.num_prompt_tokens > num_tokens) {
    in->Fail("starts.num_prompt_tokens", "is larger than the number of tokens");
  }
  if (start.num_cached_tokens >= num_tokens) {
    in->Fail("starts.num_cached_tokens", "leaves no token to compute");
  }
  const absl::Status sampling =
      CheckSamplingParams(start.sampling, std::numeric_limits<int32_t>::max());
  if (!sampling.ok()) {
    const absl::string_view message = sampling.message();
    in->Fail("starts.sampling:", std::string_view(message.data(), message.size()));
  }
  return start;
}

void WriteLists(const StepPlan& plan, Writer* out) {
  out->Varint(plan.appends.size());
  for (const BlockAppend& append : plan.appends) {
    out->Int(append.slot);
    out->Int(append.table);
    out->Int(append.block);
  }
  out->Varint(plan.copies.size());
  for (const BlockCopy& copy : plan.copies) {
    out->Int(copy.from);
    out->Int(copy.to);
    out->Int(copy.num_tokens);
  }
  out->Varint(plan.segments.size());
  for (const StepSegment& segment : plan.segments) {
    out->Int(segment.slot);
    out->Int(segment.num_tokens);
    out->Bool(segment.sample);
    out->Bool(segment.capture_logits);
  }
}

void ReadLists(Reader* in, StepPlan* plan) {
  plan->appends.resize(in->Count("appends", 3));
  for (BlockAppend& append : plan->appends) {
    append.slot = in->Int("appends.slot", 0);
    append.table = in->Int("appends.table", 0);
    append.block = in->Int("appends.block", 0);
  }
  plan->copies.resize(in->Count("copies", 3));
  for (BlockCopy& copy : plan->copies) {
    copy.from = in->Int("copies.from", 0);
    copy.to = in->Int("copies.to", 0);
    copy.num_tokens = in->Int("copies.num_tokens", 1);
    if (in->status().ok() && copy.from == copy.to) in->Fail("copies.to", "equals copies.from");
  }
  plan->segments.resize(in->Count("segments", 4));
  for (StepSegment& segment : plan->segments) {
    segment.slot = in->Int("segments.slot", 0);
    segment.num_tokens = in->Int("segments.num_tokens", 1);
    segment.sample = in->Bool("segments.sample");
    segment.capture_logits = in->Bool("segments.capture_logits");
  }
}

}  // namespace

std::string EncodeStepPlan(const StepPlan& plan) {
  std::string bytes(1, kPlanVersion);
  Writer out(&bytes);
  out.Varint(plan.step);
  out.Ints(plan.finished);
  out.Varint(plan.starts.size());
  for (const SequenceStart& start : plan.starts) WriteStart(start, &out);
  WriteLists(plan, &out);
  return bytes;
}

absl::StatusOr<StepPlan> DecodeStepPlan(const std::string& bytes) {
  // The least a start can take: seven fixed-width floats and the seed among its fields.
  constexpr size_t kMinStartBytes = 42;
  if (static_cast<int64_t>(bytes.size()) > kMaxStepPlanBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("step plan is too long: bytes=", bytes.size(), " most=", kMaxStepPlanBytes));
  }
  if (bytes.empty() || bytes[0] != kPlanVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("step plan: version is unknown: expected=", int{kPlanVersion}));
  }
  Reader in(std::string_view(bytes).substr(1));
  StepPlan plan;
  plan.step = in.Varint("step");
  plan.finished = in.Ints("finished");
  const size_t num_starts = in.Count("starts", kMinStartBytes);
  for (size_t i = 0; i < num_starts && in.status().ok(); ++i) plan.starts.push_back(ReadStart(&in));
  ReadLists(&in, &plan);
  RETURN_IF_ERROR(in.status());
  if (!in.at_end()) return absl::InvalidArgumentError("step plan: bytes are left after the end");
  return plan;
}

}  // namespace cairn
