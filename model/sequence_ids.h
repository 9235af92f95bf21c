// Reads which tokens begin, end and pad a sequence: ModelConfig's bos_id, eos_ids, pad_id, add_bos
// and add_eos. The size of the vocabulary is known before.
//
// Thread: any. Errors: InvalidArgument naming key, value and limit.
#pragma once

#include "absl/status/status.h"
#include "model/checkpoint.h"
#include "model/metadata.h"
#include "model/model_config.h"

namespace cairn {

absl::Status ReadGgufIds(const Metadata& metadata, ModelConfig& config);
// From config.json and generation_config.json.
absl::Status ReadJsonIds(const Checkpoint& checkpoint, ModelConfig& config);

}  // namespace cairn
