#include "base/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn {
namespace {

using testing::HasSubstr;

TEST(MetricRegistryTest, WritesThePrometheusTextForm) {
  MetricRegistry registry;
  registry.NewCounter("cairn_test_requests_total", "Requests.", {{"code", "OK"}}).Add(2);
  registry.NewGauge("cairn_test_queue_requests", "Waiting.").Set(3.5);
  Histogram histogram =
      registry.NewHistogram("cairn_test_wait_seconds", "Time in the queue.", {0.1, 1});
  histogram.Observe(0.05);
  histogram.Observe(7);
  const std::string text = registry.Text();
  EXPECT_THAT(text, HasSubstr("# TYPE cairn_test_requests_total counter\n"));
  EXPECT_THAT(text, HasSubstr("cairn_test_requests_total{code=\"OK\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("cairn_test_queue_requests 3.5\n"));
  EXPECT_THAT(text, HasSubstr("cairn_test_wait_seconds_bucket{le=\"0.1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("cairn_test_wait_seconds_bucket{le=\"+Inf\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("cairn_test_wait_seconds_count 2\n"));
}

TEST(MetricRegistryTest, TheSameNameAndLabelsAreTheSameMetric) {
  MetricRegistry registry;
  registry.NewCounter("cairn_test_steps_total", "Steps.").Add();
  Counter again = registry.NewCounter("cairn_test_steps_total", "Steps.");
  again.Add();
  EXPECT_EQ(again.value(), 2);
  EXPECT_EQ(registry.NewCounter("cairn_test_steps_total", "Steps.", {{"rank", "1"}}).value(), 0);
}

TEST(MetricRegistryTest, GaugesGoBothWays) {
  MetricRegistry registry;
  Gauge gauge = registry.NewGauge("cairn_test_blocks_free", "Blocks.");
  gauge.Set(10);
  gauge.Add(-4);
  EXPECT_EQ(gauge.value(), 6);
}

TEST(MetricRegistryDeathTest, EndsTheProcessOnABrokenName) {
  MetricRegistry registry;
  EXPECT_DEATH(registry.NewGauge("queue_length", "h"), "CHECK failed");
  EXPECT_DEATH(registry.NewGauge("cairn_Queue", "h"), "CHECK failed");
  EXPECT_DEATH(registry.NewCounter("cairn_test_steps", "h"), "CHECK failed");
  registry.NewGauge("cairn_test_x_bytes", "h");
  EXPECT_DEATH(registry.NewGauge("cairn_test_x_bytes", "other"), "CHECK failed");
  EXPECT_DEATH(registry.NewHistogram("cairn_test_y_bytes", "h", {1, 1}), "CHECK failed");
}

}  // namespace
}  // namespace cairn
