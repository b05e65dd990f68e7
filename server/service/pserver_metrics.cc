#include "server/service/pserver_metrics.h"

#include <string>

#include "common/admin/metric_series.h"

namespace sluice {

struct PserverMetrics::Families {
  using Gauges = GaugeSeries;
  using Counters = CounterSeries;

  explicit Families(prometheus::Registry* registry) : r(*registry) {}
  prometheus::Family<prometheus::Gauge>& Gauge(const char* name) { return GaugeFamily(name, &r); }
  prometheus::Family<prometheus::Counter>& Counter(const char* name) {
    return CounterFamily(name, &r);
  }

  prometheus::Registry& r;
  Counters frames{Counter("sluice_pserver_frames_applied_total")};
  Gauges rows{Gauge("sluice_pserver_rows")};
  Gauges row_limit{Gauge("sluice_pserver_row_limit")};
  Counters rows_admitted{Counter("sluice_pserver_rows_admitted_total")};
  Counters rows_refused{Counter("sluice_pserver_rows_refused_total")};
  Counters rows_expired{Counter("sluice_pserver_rows_expired_total")};
  Counters rows_evicted{Counter("sluice_pserver_rows_evicted_total")};
  Counters rows_deleted{Counter("sluice_pserver_rows_deleted_total")};
  Gauges elements{Gauge("sluice_pserver_dense_elements")};
  Gauges bytes{Gauge("sluice_pserver_table_bytes")};
  Gauges reserved{Gauge("sluice_pserver_table_reserved_bytes")};
  Counters staleness_sum{Counter("sluice_pserver_staleness_sum_total")};
  Gauges staleness_max{Gauge("sluice_pserver_staleness_max")};
  Counters slowest_wait{Counter("sluice_pserver_slowest_wait_seconds_total")};
  Gauges cut_bytes{Gauge("sluice_pserver_checkpoint_written_bytes")};
  Gauges cut_memory{Gauge("sluice_pserver_checkpoint_preimage_bytes")};
  Gauges cut_failed{Gauge("sluice_pserver_checkpoint_failed")};
  Gauges replicated{Gauge("sluice_pserver_replication_complete")};
  Gauges behind{Gauge("sluice_pserver_replication_updates_behind")};
  Gauges copies{Gauge("sluice_pserver_copies_bytes")};
  Gauges process{Gauge("sluice_pserver_memory_bytes")};
  Counters cpu{Counter("sluice_pserver_cpu_seconds_total")};
  Gauges streams{Gauge("sluice_pserver_streams")};
  Gauges shm_streams{Gauge("sluice_pserver_shm_streams")};
  Counters messages{Counter("sluice_pserver_messages_received_total")};
  Counters received{Counter("sluice_pserver_bytes_received_total")};
  Counters sent{Counter("sluice_pserver_bytes_sent_total")};
  Counters refused{Counter("sluice_pserver_requests_refused_total")};
  Counters streams_cut{Counter("sluice_pserver_streams_cut_total")};
};

PserverMetrics::PserverMetrics()
    : registry_(std::make_shared<prometheus::Registry>()),
      families_(std::make_unique<Families>(registry_.get())) {}

PserverMetrics::~PserverMetrics() = default;

void PserverMetrics::Update(const std::vector<HostedJob>& jobs, const DataPlaneCounters& counters,
                            const StreamCounts& streams, uint64_t memory_bytes,
                            double cpu_seconds) {
  MutexLock lock(&mutex_);
  Families& f = *families_;
  for (const HostedJob& job : jobs) {
    const prometheus::Labels labels = {{"job", job.job_id()}};
    f.frames.Set(labels, job.frames_applied());
    f.elements.Set(labels, job.dense_elements());
    f.staleness_sum.Set(labels, job.staleness().sum());
    f.staleness_max.Set(labels, job.staleness().max());
    f.slowest_wait.Set(labels, job.slowest_wait_s());
    if (job.has_cut()) {
      f.cut_bytes.Set(labels, job.cut().written_bytes());
      f.cut_memory.Set(labels, job.cut().preimage_bytes());
      f.cut_failed.Set(labels, job.cut().state() == HostedCut::FAILED ? 1 : 0);
    }
    if (job.has_replication()) {
      f.replicated.Set(labels, job.replication().complete() ? 1 : 0);
      f.behind.Set(labels, job.replication().updates_behind());
      uint64_t bytes = 0;
      for (const ShardCopies& copies : job.copies()) bytes += copies.bytes();
      f.copies.Set(labels, bytes);
    }
    for (const TableStatus& table : job.tables()) {
      const prometheus::Labels of_table = {{"job", job.job_id()}, {"table", table.name()}};
      f.bytes.Set(of_table, table.bytes());
      f.reserved.Set(of_table, table.reserved_bytes());
      if (table.kind() != TableConfig::SPARSE) continue;
      f.rows.Set(of_table, table.rows());
      if (table.row_limit() > 0) f.row_limit.Set(of_table, table.row_limit());
      const RowTurnover& turnover = table.turnover();
      f.rows_admitted.Set(of_table, turnover.admitted());
      f.rows_refused.Set(of_table, turnover.refused());
      f.rows_expired.Set(of_table, turnover.expired());
      f.rows_evicted.Set(of_table, turnover.evicted());
      f.rows_deleted.Set(of_table, turnover.deleted());
    }
  }
  for (auto* of_jobs : {&f.frames, &f.staleness_sum, &f.slowest_wait}) of_jobs->RemoveOthers();
  for (auto* of_jobs : {&f.elements, &f.staleness_max, &f.bytes, &f.reserved, &f.rows})
    of_jobs->RemoveOthers();
  f.row_limit.RemoveOthers();
  for (auto* of_rows :
       {&f.rows_admitted, &f.rows_refused, &f.rows_expired, &f.rows_evicted, &f.rows_deleted})
    of_rows->RemoveOthers();
  for (auto* of_cuts : {&f.cut_bytes, &f.cut_memory, &f.cut_failed}) of_cuts->RemoveOthers();
  for (auto* of_replicas : {&f.replicated, &f.behind, &f.copies}) of_replicas->RemoveOthers();
  f.process.Set({}, memory_bytes);
  f.cpu.Set({}, cpu_seconds);
  // Relaxed: independent sums.
  f.streams.Set({}, counters.streams.load(std::memory_order_relaxed));
  f.shm_streams.Set({}, streams.shm());
  f.messages.Set({}, counters.messages_in.load(std::memory_order_relaxed));
  f.received.Set({}, counters.bytes_in.load(std::memory_order_relaxed));
  f.sent.Set({}, counters.bytes_out->load(std::memory_order_relaxed));
  f.refused.Set({}, counters.refused.load(std::memory_order_relaxed));
  f.streams_cut.Set({}, counters.streams_cut.load(std::memory_order_relaxed));
}

}  // namespace sluice
