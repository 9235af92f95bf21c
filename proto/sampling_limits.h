// What sampling parameters a request may have: the coordinator refuses what lies outside before
// anything is computed, the worker trusts nobody and checks again.
#pragma once

namespace cairn {

// A temperature is 0, or at least this: between them it would make huge numbers of the logits.
inline constexpr float kMinTemperature = 1e-6f;
inline constexpr float kMaxTemperature = 100.0f;
inline constexpr float kMinRepetitionPenalty = 0.01f;
inline constexpr float kMaxRepetitionPenalty = 100.0f;
inline constexpr float kMaxOutputPenalty = 2.0f;  // presence and frequency, in either direction
inline constexpr float kMaxLogitBias = 100.0f;    // in either direction
inline constexpr int kMaxLogitBiases = 1024;

}  // namespace cairn
