#include "model/rope_config.h"

#include <algorithm>
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

void ScaleByYarn(const YarnScaling& scaling, std::vector<double>& inverse_frequency) {
  const auto pairs = static_cast<double>(inverse_frequency.size());
  // The index, as a real number, of the pair that turns so often in the original context.
  const auto index_of = [&](double turns) {
    return pairs * std::log(scaling.original_context_length / (turns * 2 * std::numbers::pi)) /
           std::log(scaling.base);
  };
  double low = index_of(scaling.fast_turns), high = index_of(scaling.slow_turns);
  if (scaling.whole_elements) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, 2 * pairs - 1);
  if (low == high) high += 0.001;  // never divide by zero
  for (size_t i = 0; i < inverse_frequency.size(); ++i) {
    const double squeezed = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    double& frequency = inverse_frequency[i];
    frequency = frequency / scaling.factor * squeezed + frequency * (1 - squeezed);
  }
}

double YarnAmplitude(double factor, double scale) {
  return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1;
}

void DivideByFactors(std::span<const float> factors, std::vector<double>& inverse_frequency) {
  CHECK_EQ(factors.size(), inverse_frequency.size());
  for (size_t i = 0; i < factors.size(); ++i) inverse_frequency[i] /= factors[i];
}

}  // namespace cairn
