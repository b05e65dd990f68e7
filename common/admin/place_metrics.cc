#include "common/admin/place_metrics.h"

#include <atomic>

#include "common/admin/metric_series.h"

namespace sluice {

struct PlaceMetrics::Families {
  CounterSeries Series(const char* what) {
    return CounterSeries(CounterFamily(prefix + "_" + what + "_total", registry));
  }

  prometheus::Registry* const registry;
  const std::string prefix;
  CounterSeries requests = Series("place_requests");
  CounterSeries retries = Series("place_retries");
  CounterSeries bytes = Series("place_bytes");
  CounterSeries sent = Series("place_sent_bytes");
  CounterSeries seconds = Series("place_seconds");
};

PlaceMetrics::PlaceMetrics(prometheus::Registry* registry, const std::string& prefix)
    : families_(new Families{registry, prefix}) {}
PlaceMetrics::~PlaceMetrics() = default;

void PlaceMetrics::Set(const std::map<std::string, const PlaceUse*>& places) {
  // Relaxed: each figure stands for itself.
  const auto count = [](const std::atomic<uint64_t>& n) {
    return static_cast<double>(n.load(std::memory_order_relaxed));
  };
  MutexLock lock(&mutex_);
  for (const auto& [place, use] : places) {
    if (count(use->requests) == 0) continue;
    const prometheus::Labels labels = {{"place", place}};
    families_->requests.Set(labels, count(use->requests));
    families_->retries.Set(labels, count(use->retries));
    families_->bytes.Set(labels, count(use->bytes));
    families_->sent.Set(labels, count(use->bytes_sent));
    families_->seconds.Set(labels, use->seconds());
  }
}

}  // namespace sluice
