// Reads what configs have in common, a part at a time: the rows of the table in model_config.cc are
// made of these.
//
// Thread: any. Errors of all: InvalidArgument naming the field, its value and the limit;
// Unimplemented for what the graph does not have.
#pragma once

#include <cmath>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/checkpoint.h"
#include "model/model_config.h"
#include "model/parameter_reader.h"
#include "model/rope_parameters.h"

namespace cairn {

inline constexpr NumberLimits kCapLimits = {.min = 0, .max = kMaxScoreCap};
inline constexpr NumberLimits kScaleLimits = {.min = 0, .max = 1e6};
inline constexpr NumberLimits kRopeBaseLimits = {.min = 1, .max = 1e15};

constexpr IntLimits UpTo(int limit) { return {.min = 1, .max = limit}; }
constexpr IntLimits FromZeroTo(int limit) { return {.min = 0, .max = limit}; }

inline double InverseRoot(double n) { return 1 / std::sqrt(n); }

absl::Status NotInTheGraph(const std::string& setting);

// Head size of a file that gives none.
absl::StatusOr<int> DefaultHeadDim(const ModelConfig& config);
absl::Status CheckExperts(const ExpertsConfig& experts);
// `count` networks of the size of an expert beside them; `key` is the field that says so.
absl::Status SetSharedExperts(const std::string& key, int count, ExpertsConfig& experts);
// Layers with a window turn by a rope of their own.
void SetRopeOfWindows(RopeConfig rope, ModelConfig& config);
// config.mla is read before.
absl::Status SetLatentAttention(const RopeParameters& rope, ModelConfig& config);

// config.json: all but attention, windows and experts. `tied` is what a file means that does not
// say it.
absl::Status ReadJsonSizes(const Checkpoint& checkpoint, bool tied, ModelConfig& config);
absl::Status ReadJsonHeads(const Checkpoint& checkpoint, ModelConfig& config);
// "layer_types" if the file has it; else every `pattern`-th layer sees all (0: none does).
absl::Status ReadJsonWindows(const Checkpoint& checkpoint, int pattern, ModelConfig& config);
// The same where, without "layer_types", windows begin at a layer that the file names. `used` and
// `first` are what a file means that does not say whether they are on, and where they begin.
absl::Status ReadJsonLateWindows(const Checkpoint& checkpoint, bool used, int first,
                                 ModelConfig& config);
// How many there are, under the name that the family gives them, and how many a token takes.
absl::Status ReadJsonExpertCounts(const ParameterReader& reader, std::string_view count_key,
                                  ExpertsConfig& experts);
absl::Status ReadJsonExpertGroups(const ParameterReader& reader, int group_top,
                                  ExpertsConfig& experts);

// GGUF: all but attention, windows and experts.
absl::Status ReadGgufSizes(const Checkpoint& checkpoint, const ParameterReader& reader,
                           ModelConfig& config);
absl::Status ReadGgufHeads(const Checkpoint& checkpoint, const ParameterReader& reader,
                           RotaryPairs pairs, ModelConfig& config);
// Every `pattern`-th layer sees all, unless the file says otherwise (0: none does).
absl::Status ReadGgufWindows(const ParameterReader& reader, int pattern, ModelConfig& config);
absl::Status ReadGgufExperts(const ParameterReader& reader, ModelConfig& config);
// Older files hold the up projections of keys and values together, and then the sizes of whole
// heads under the names that newer ones use for what is cached.
absl::Status ReadGgufLatentAttention(const Checkpoint& checkpoint, const ParameterReader& reader,
                                     ModelConfig& config);

}  // namespace cairn
