// The series of Prometheus metrics, by labels, for figures that something else counts.
//
// Thread safety: one thread at a time.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/admin/metric_table.h"

namespace sluice {

// `Metric`: prometheus::Gauge or prometheus::Counter.
template <class Metric>
class MetricSeries {
 public:
  explicit MetricSeries(prometheus::Family<Metric>& family) : family_(family) {}

  void Set(const prometheus::Labels& labels, double value) {
    Entry& entry = entries_[labels];
    if (entry.metric != nullptr && MustBeginAnew(*entry.metric, value)) {
      family_.Remove(entry.metric);
      entry.metric = nullptr;
    }
    if (entry.metric == nullptr) entry.metric = &family_.Add(labels);
    SetTo(entry.metric, value);
    entry.set = true;
  }
  // Removes the series that were not set since the last call. Otherwise what is gone would show its
  // last figures for ever.
  void RemoveOthers() {
    for (auto it = entries_.begin(); it != entries_.end();) {
      const bool keep = it->second.set;
      it->second.set = false;
      if (!keep) family_.Remove(it->second.metric);
      it = keep ? std::next(it) : entries_.erase(it);
    }
  }

 private:
  static void SetTo(prometheus::Gauge* gauge, double value) { gauge->Set(value); }
  static void SetTo(prometheus::Counter* counter, double value) {
    counter->Increment(value - counter->Value());
  }
  // Returns true if the series must be replaced, because a counter cannot fall. This happens when a
  // job of the same name is opened again, or goes back to a checkpoint.
  static bool MustBeginAnew(const prometheus::Gauge&, double) { return false; }
  static bool MustBeginAnew(const prometheus::Counter& counter, double value) {
    return value < counter.Value();
  }

  struct Entry {
    Metric* metric = nullptr;
    bool set = false;
  };
  prometheus::Family<Metric>& family_;
  std::map<prometheus::Labels, Entry> entries_;
};

using GaugeSeries = MetricSeries<prometheus::Gauge>;
using CounterSeries = MetricSeries<prometheus::Counter>;

// The name must be in metrics.inc, which has the help.
inline prometheus::Family<prometheus::Gauge>& GaugeFamily(const std::string& name,
                                                          prometheus::Registry* registry) {
  const MetricFacts& facts = FactsOfMetric(name, MetricFacts::kGauge);
  return prometheus::BuildGauge().Name(name).Help(facts.help).Register(*registry);
}
inline prometheus::Family<prometheus::Counter>& CounterFamily(const std::string& name,
                                                              prometheus::Registry* registry) {
  const MetricFacts& facts = FactsOfMetric(name, MetricFacts::kCounter);
  return prometheus::BuildCounter().Name(name).Help(facts.help).Register(*registry);
}

// Metrics whose series come and go together, such as those of a job.
class SeriesGroup {
 public:
  // `registry` outlives this.
  explicit SeriesGroup(prometheus::Registry* registry) : registry_(registry) {}

  GaugeSeries& Gauge(const char* name) {
    gauges_.push_back(std::make_unique<GaugeSeries>(GaugeFamily(name, registry_)));
    return *gauges_.back();
  }
  CounterSeries& Counter(const char* name) {
    counters_.push_back(std::make_unique<CounterSeries>(CounterFamily(name, registry_)));
    return *counters_.back();
  }
  // Calls RemoveOthers of all.
  void RemoveOthers() {
    for (const auto& series : gauges_) series->RemoveOthers();
    for (const auto& series : counters_) series->RemoveOthers();
  }

 private:
  prometheus::Registry* const registry_;
  std::vector<std::unique_ptr<GaugeSeries>> gauges_;
  std::vector<std::unique_ptr<CounterSeries>> counters_;
};

}  // namespace sluice
