// Numbers a running program shows: counters, gauges and histograms, in the text form that
// Prometheus reads. Names are cairn_<program>_<noun>_<unit>; a counter's ends in _total.
//
// Thread: any, for everything here. A metric must not outlive its registry.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace cairn {

// Handles: cheap to copy; they point into the registry that made them.
class Counter {
 public:
  // `by` must not be negative.
  void Add(double by = 1);
  double value() const;

 private:
  friend class MetricRegistry;
  explicit Counter(prometheus::Counter* counter) : counter_(counter) {}
  prometheus::Counter* counter_;
};

class Gauge {
 public:
  void Set(double value);
  void Add(double by);
  double value() const;

 private:
  friend class MetricRegistry;
  explicit Gauge(prometheus::Gauge* gauge) : gauge_(gauge) {}
  prometheus::Gauge* gauge_;
};

class Histogram {
 public:
  void Observe(double value);

 private:
  friend class MetricRegistry;
  explicit Histogram(prometheus::Histogram* histogram) : histogram_(histogram) {}
  prometheus::Histogram* histogram_;
};

class MetricRegistry {
 public:
  using Labels = std::map<std::string, std::string>;

  MetricRegistry();
  ~MetricRegistry();

  // Each returns the same metric for the same name and labels. A name that breaks the rule above,
  // or one name with two help texts or kinds, is a bug and ends the process.
  Counter NewCounter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge NewGauge(const std::string& name, const std::string& help, const Labels& labels = {});
  // `bounds`: upper bounds of the buckets, increasing; the last bucket is open.
  Histogram NewHistogram(const std::string& name, const std::string& help,
                         const std::vector<double>& bounds, const Labels& labels = {});

  // All of them, in the Prometheus text exposition format.
  std::string Text() const;

 private:
  struct State;
  void CheckNew(const std::string& name, const std::string& kind_and_help);

  const std::unique_ptr<State> state_;
};

}  // namespace cairn
