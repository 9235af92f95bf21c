// `cairn logits`: the logits of given tokens, through the real engine, as a safetensors file.

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "base/unique_handle.h"
#include "cli/answer_json.h"
#include "cli/offline.h"
#include "cli/offline_engine.h"
#include "cli/verbs.h"
#include "model/json_text.h"
#include "model/utf8.h"

namespace cairn {
namespace {

struct Prompt {
  std::vector<int32_t> ids;
  std::vector<int32_t> positions;  // rows to write; all if empty
};

absl::StatusOr<Prompt> ReadPrompt(const std::string& line) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(line, {}));
  Prompt prompt;
  if (!json.is_object()) {
    ASSIGN_OR_RETURN(prompt.ids, ReadIds(json));
    return prompt;
  }
  for (const auto& [key, value] : json.items()) {
    if (key == "ids" || key == "positions") continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("unknown field: %s, known: ids, positions", Printable(key)));
  }
  const auto ids = json.find("ids");
  if (ids == json.end()) return absl::InvalidArgumentError("missing field: ids");
  ASSIGN_OR_RETURN(prompt.ids, ReadIds(*ids));
  if (const auto positions = json.find("positions"); positions != json.end()) {
    absl::StatusOr<std::vector<int32_t>> read = ReadIds(*positions);
    if (!read.ok()) return Annotate(read.status(), "positions");
    prompt.positions = *std::move(read);
  }
  for (const int32_t position : prompt.positions) {
    if (position >= static_cast<int64_t>(prompt.ids.size())) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "position beyond the prompt: positions=%d tokens=%d", position, prompt.ids.size()));
    }
  }
  return prompt;
}

absl::StatusOr<std::vector<Prompt>> ReadPrompts() {
  std::vector<Prompt> prompts;
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty()) continue;
    absl::StatusOr<Prompt> prompt = ReadPrompt(line);
    if (!prompt.ok())
      return Annotate(prompt.status(), absl::StrFormat("stdin line %d", prompts.size() + 1));
    prompts.push_back(*std::move(prompt));
  }
  return prompts;
}

// Rows of one prompt, in the order they were asked for.
class Rows {
 public:
  Rows(const Prompt& prompt, int64_t vocab) : vocab_(vocab) {
    std::vector<int32_t> wanted = prompt.positions;
    if (wanted.empty())
      for (size_t i = 0; i < prompt.ids.size(); ++i) wanted.push_back(static_cast<int32_t>(i));
    rows_at_.resize(prompt.ids.size());
    for (size_t i = 0; i < wanted.size(); ++i) rows_at_[wanted[i]].push_back(i);
    num_rows_ = static_cast<int64_t>(wanted.size());
    values_.resize(num_rows_ * vocab);
  }
  void Take(int32_t position, std::span<const float> logits) {
    if (position >= static_cast<int64_t>(rows_at_.size())) return;
    for (const size_t row : rows_at_[position])
      std::copy(logits.begin(), logits.end(), values_.begin() + row * vocab_);
  }
  int64_t num_rows() const { return num_rows_; }
  const std::vector<float>& values() const { return values_; }

 private:
  int64_t vocab_, num_rows_ = 0;
  std::vector<std::vector<size_t>> rows_at_;  // [position]
  std::vector<float> values_;
};

absl::Status WriteSafetensors(const std::string& path, const std::vector<Rows>& all,
                              int64_t vocab) {
  nlohmann::json header = nlohmann::json::object();
  int64_t offset = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto bytes = static_cast<int64_t>(all[i].values().size() * sizeof(float));
    header[absl::StrFormat("logits.%d", i)] = {{"dtype", "F32"},
                                               {"shape", {all[i].num_rows(), vocab}},
                                               {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string head = header.dump();
  head.resize((head.size() + 7) / 8 * 8, ' ');
  const uint64_t head_bytes = head.size();
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr)
    return absl::PermissionDeniedError(absl::StrFormat("cannot write: out=%s", path));
  bool ok = std::fwrite(&head_bytes, sizeof head_bytes, 1, file) == 1 &&
            std::fwrite(head.data(), 1, head.size(), file) == head.size();
  for (const Rows& rows : all)
    ok = ok && std::fwrite(rows.values().data(), sizeof(float), rows.values().size(), file) ==
                   rows.values().size();
  ok = std::fclose(file) == 0 && ok;
  if (!ok) return absl::ResourceExhaustedError(absl::StrFormat("cannot write: out=%s", path));
  return absl::OkStatus();
}

absl::Status Run(const LogitsFlags& flags) {
  ASSIGN_OR_RETURN(const std::vector<Prompt> prompts, ReadPrompts());
  ASSIGN_OR_RETURN(std::unique_ptr<OfflineEngine> offline, OfflineEngine::Open(flags.engine.model));
  const int64_t vocab = offline->config().vocab_size;
  size_t longest = 1;
  for (const Prompt& prompt : prompts) longest = std::max(longest, prompt.ids.size());
  if (longest >= static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    return absl::InvalidArgumentError("prompt too long");
  RETURN_IF_ERROR(
      offline->StartEngine(flags.engine, {.max_running = 1,
                                          .tokens_per_sequence = static_cast<int32_t>(longest) + 1,
                                          .prefix_cache = false}));
  std::vector<Rows> all;
  all.reserve(prompts.size());
  for (const Prompt& prompt : prompts) {
    all.emplace_back(prompt, vocab);
    GenerateRequest request;
    request.id = absl::StrFormat("prompt-%d", all.size() - 1);
    request.prompt = prompt.ids;
    request.sampling.temperature = 0;
    request.max_tokens = 1;
    request.use_prefix_cache = false;
    request.capture_logits = [rows = &all.back()](int32_t position, std::span<const float> logits) {
      rows->Take(position, logits);
    };
    std::vector<GenerateRequest> one;
    one.push_back(std::move(request));
    RETURN_IF_ERROR(Annotate(offline->RunAll(std::move(one)).status(),
                             absl::StrFormat("stdin line %d", all.size())));
  }
  return WriteSafetensors(flags.out, all, vocab);
}

}  // namespace

int RunOfflineLogits(const LogitsFlags& flags) {
  const absl::Status status = Run(flags);
  return status.ok() ? 0 : ReportRefusal(status);
}

}  // namespace cairn
