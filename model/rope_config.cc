#include "model/rope_config.h"

#include <cmath>
#include <cstddef>
#include <numbers>

#include "base/log.h"

namespace cairn {

std::vector<double> InverseFrequencies(double base, int rotary_dim) {
  std::vector<double> inverse_frequency(static_cast<size_t>(rotary_dim) / 2);
  for (size_t i = 0; i < inverse_frequency.size(); ++i) {
    inverse_frequency[i] = std::pow(base, -2.0 * static_cast<double>(i) / rotary_dim);
  }
  return inverse_frequency;
}

void ScaleLinear(double factor, std::vector<double>& inverse_frequency) {
  for (double& frequency : inverse_frequency) frequency /= factor;
}

void ScaleByWavelength(const WavelengthScaling& scaling, std::vector<double>& inverse_frequency) {
  const double low = scaling.low_frequency_factor;
  const double high = scaling.high_frequency_factor;
  for (double& frequency : inverse_frequency) {
    const double wavelength = 2 * std::numbers::pi / frequency;
    const double turns = scaling.original_context_length / wavelength;  // in the original context
    if (turns > high) continue;
    if (turns < low) {
      frequency /= scaling.factor;
      continue;
    }
    const double smooth = (turns - low) / (high - low);
    frequency = (1 - smooth) * frequency / scaling.factor + smooth * frequency;
  }
}

void DivideByFactors(std::span<const float> factors, std::vector<double>& inverse_frequency) {
  CHECK_EQ(factors.size(), inverse_frequency.size());
  for (size_t i = 0; i < factors.size(); ++i) inverse_frequency[i] /= factors[i];
}

}  // namespace cairn
