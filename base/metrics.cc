#include "base/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "base/log.h"

namespace cairn {
namespace {

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool IsMetricName(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  return name.substr(0, 6) == "cairn_" && std::all_of(name.begin(), name.end(), allowed);
}

}  // namespace

struct MetricRegistry::State {
  prometheus::Registry registry;
  std::mutex mutex;
  std::map<std::string, std::string> kind_and_help ABSL_GUARDED_BY(mutex);
};

void Counter::Add(double by) {
  CHECK_GE(by, 0);
  counter_->Increment(by);
}
double Counter::value() const { return counter_->Value(); }

void Gauge::Set(double value) { gauge_->Set(value); }
void Gauge::Add(double by) { gauge_->Increment(by); }
double Gauge::value() const { return gauge_->Value(); }

void Histogram::Observe(double value) { histogram_->Observe(value); }

MetricRegistry::MetricRegistry() : state_(std::make_unique<State>()) {}
MetricRegistry::~MetricRegistry() = default;

// The library throws where two families clash; our own check comes first.
void MetricRegistry::CheckNew(const std::string& name, const std::string& kind_and_help) {
  CHECK(IsMetricName(name)) << name;
  const std::lock_guard<std::mutex> lock(state_->mutex);
  const auto [entry, added] = state_->kind_and_help.emplace(name, kind_and_help);
  CHECK(added || entry->second == kind_and_help) << name << ": " << kind_and_help;
}

Counter MetricRegistry::NewCounter(const std::string& name, const std::string& help,
                                   const Labels& labels) {
  CHECK(EndsWith(name, "_total")) << name;
  CheckNew(name, "counter " + help);
  auto& family = prometheus::BuildCounter().Name(name).Help(help).Register(state_->registry);
  return Counter(&family.Add(labels));
}

Gauge MetricRegistry::NewGauge(const std::string& name, const std::string& help,
                               const Labels& labels) {
  CHECK(!EndsWith(name, "_total")) << name;
  CheckNew(name, "gauge " + help);
  auto& family = prometheus::BuildGauge().Name(name).Help(help).Register(state_->registry);
  return Gauge(&family.Add(labels));
}

Histogram MetricRegistry::NewHistogram(const std::string& name, const std::string& help,
                                       const std::vector<double>& bounds, const Labels& labels) {
  const auto out_of_order =
      std::adjacent_find(bounds.begin(), bounds.end(), std::greater_equal<double>());
  CHECK(out_of_order == bounds.end()) << name;
  CheckNew(name, "histogram " + help);
  auto& family = prometheus::BuildHistogram().Name(name).Help(help).Register(state_->registry);
  return Histogram(&family.Add(labels, bounds));
}

std::string MetricRegistry::Text() const {
  return prometheus::TextSerializer().Serialize(state_->registry.Collect());
}

}  // namespace cairn
