// The rules that turn a checkpoint's rope parameters into one list of inverse frequencies.
//
// All in double: the rounding to float happens once, where angles become sines and cosines.
// Thread: any. Errors: none; arguments were checked by the caller.
#pragma once

#include <span>
#include <vector>

namespace cairn {

// base^(-2i / rotary_dim) for i in [0, rotary_dim / 2).
std::vector<double> InverseFrequencies(double base, int rotary_dim);

// Positions are squeezed by `factor`.
void ScaleLinear(double factor, std::vector<double>& inverse_frequency);

struct WavelengthScaling {
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;  // not the low one
  double original_context_length = 8192;
};

// Waves longer than original/low are squeezed by `factor`, those shorter than original/high stay,
// those between are blended linearly in original/wavelength.
void ScaleByWavelength(const WavelengthScaling& scaling, std::vector<double>& inverse_frequency);

// YaRN (Peng et al. 2023, arXiv 2309.00071): waves that turn more than `fast_turns` times in the
// original context stay, those that turn less than `slow_turns` times are squeezed by `factor`,
// those between are blended linearly in their index.
struct YarnScaling {
  double base = 10000;  // above 1
  double factor = 1;
  double original_context_length = 4096;
  double fast_turns = 32;
  double slow_turns = 1;
  bool whole_elements = true;  // the ends of the blend are rounded outwards to whole indexes
};
void ScaleByYarn(const YarnScaling& scaling, std::vector<double>& inverse_frequency);

// What YaRN multiplies cos and sin by: 0.1 * scale * ln(factor) + 1, or 1 if nothing is squeezed.
double YarnAmplitude(double factor, double scale);

// Divides each frequency by its own factor; the sizes are equal and the factors positive.
void DivideByFactors(std::span<const float> factors, std::vector<double>& inverse_frequency);

}  // namespace cairn
