// Reads what a checkpoint says about rotary positions, in either format.
//
// Thread: any. Errors of all: InvalidArgument naming key, value and limit; Unimplemented for a kind
// of scaling that is unknown.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "model/checkpoint.h"
#include "model/model_config.h"
#include "model/parameter_reader.h"

namespace cairn {

struct RopeParameters {
  RopeConfig rope;
  // Of the attention scale: YaRN's second amplitude, which some models want there.
  double score_factor = 1;
};

// Without any scaling.
RopeConfig PlainRope(RotaryPairs pairs, int rotary_dim, double base);

// From "rope_scaling" (older files) or "rope_parameters" of config.json (newer ones, which also
// hold the base, and where kinds of layers differ one object for each, by the name `layer_type`).
// `context_length`: of the whole model.
absl::StatusOr<RopeParameters> ReadJsonRope(const nlohmann::json& config, RotaryPairs pairs,
                                            int rotary_dim, int context_length,
                                            std::string_view layer_type);

// `rotary_dim` is what a file means that does not say it; `head_dim` the most it may say.
absl::StatusOr<RopeParameters> ReadGgufRope(const Checkpoint& checkpoint,
                                            const ParameterReader& reader, RotaryPairs pairs,
                                            int rotary_dim, int head_dim, int context_length);

}  // namespace cairn
