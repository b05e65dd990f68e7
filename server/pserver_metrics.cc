#include "server/pserver_metrics.h"

#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <string>

namespace sluice {
namespace {

using Family = prometheus::Family<prometheus::Gauge>;

Family& Add(prometheus::Registry* registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(*registry);
}

}  // namespace

// Gauges throughout: the pserver counts, this only copies. A family's series are rebuilt at each
// update.
struct PserverMetrics::Families {
  explicit Families(prometheus::Registry* r)
      : frames(Add(r, "sluice_pserver_frames_applied_total", "frames of workers applied")),
        rows(Add(r, "sluice_pserver_rows", "sparse rows held")),
        elements(Add(r, "sluice_pserver_dense_elements", "dense parameters held")),
        bytes(Add(r, "sluice_pserver_table_bytes", "memory of values and optimizer state")),
        staleness_sum(Add(r, "sluice_pserver_staleness_sum_total",
                          "updates by others between a pull and its push, summed over pushes")),
        staleness_max(Add(r, "sluice_pserver_staleness_max", "largest of them")),
        slowest_wait(Add(r, "sluice_pserver_slowest_wait_seconds_total",
                         "sync: time that all others waited for the slowest rank")),
        process(Add(r, "sluice_pserver_memory_bytes", "resident memory of the process")),
        streams(Add(r, "sluice_pserver_streams", "open data streams")),
        messages(Add(r, "sluice_pserver_messages_received_total", "messages of data streams")),
        received(Add(r, "sluice_pserver_bytes_received_total", "bytes of data streams")),
        refused(Add(r, "sluice_pserver_requests_refused_total", "requests refused as a whole")) {}

  // Sets family{labels} and remembers it for the next update to remove.
  void Set(Family& family, const prometheus::Labels& labels, double value) {
    prometheus::Gauge& gauge = family.Add(labels);
    gauge.Set(value);
    series.emplace_back(&family, &gauge);
  }
  void Clear() {
    for (const auto& [family, gauge] : series) family->Remove(gauge);
    series.clear();
  }

  Family &frames, &rows, &elements, &bytes, &staleness_sum, &staleness_max, &slowest_wait, &process,
      &streams, &messages, &received, &refused;
  std::vector<std::pair<Family*, prometheus::Gauge*>> series;
};

PserverMetrics::PserverMetrics()
    : registry_(std::make_shared<prometheus::Registry>()),
      families_(std::make_unique<Families>(registry_.get())) {}

PserverMetrics::~PserverMetrics() = default;

void PserverMetrics::Update(const std::vector<HostedJob>& jobs, const DataPlaneCounters& counters,
                            uint64_t memory_bytes) {
  MutexLock lock(&mutex_);
  Families& f = *families_;
  f.Clear();
  for (const HostedJob& job : jobs) {
    const prometheus::Labels labels = {{"job", job.job_id()}};
    f.Set(f.frames, labels, job.frames_applied());
    f.Set(f.elements, labels, job.dense_elements());
    f.Set(f.staleness_sum, labels, job.staleness().sum());
    f.Set(f.staleness_max, labels, job.staleness().max());
    f.Set(f.slowest_wait, labels, job.slowest_wait_s());
    for (const TableStatus& table : job.tables()) {
      const prometheus::Labels of_table = {{"job", job.job_id()}, {"table", table.name()}};
      f.Set(f.bytes, of_table, table.bytes());
      if (table.kind() == TableConfig::SPARSE) f.Set(f.rows, of_table, table.rows());
    }
  }
  f.Set(f.process, {}, memory_bytes);
  // Relaxed: independent sums.
  f.Set(f.streams, {}, counters.streams.load(std::memory_order_relaxed));
  f.Set(f.messages, {}, counters.messages_in.load(std::memory_order_relaxed));
  f.Set(f.received, {}, counters.bytes_in.load(std::memory_order_relaxed));
  f.Set(f.refused, {}, counters.refused.load(std::memory_order_relaxed));
}

}  // namespace sluice
