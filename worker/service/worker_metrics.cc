#include "worker/service/worker_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <string>

#include "common/base/mutex.h"
#include "common/daemon/hot_row_use.h"

namespace sluice {

struct WorkerMetrics::Gauges {
  prometheus::Gauge& Add(const std::string& name, const std::string& help,
                         const prometheus::Labels& labels = {}) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(*registry).Add(labels);
  }
  prometheus::Gauge& Stage(const std::string& stage) {
    return Add("sluice_worker_stage_seconds", "Wall seconds spent in a stage, in this job",
               {{"stage", stage}});
  }

  // First, since the gauges below register with it while they are constructed. It owns them, and
  // the references stay valid as long as it does.
  const std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  prometheus::Gauge& epoch =
      Add("sluice_worker_epoch", "Epoch of the running job, from 1; 0: not training yet");
  prometheus::Gauge& step = Add("sluice_worker_step", "Steps of this worker in this job");
  prometheus::Gauge& examples =
      Add("sluice_worker_epoch_examples", "Examples trained in this epoch");
  prometheus::Gauge& rate =
      Add("sluice_worker_examples_per_second", "Training speed over the last log_every steps");
  prometheus::Gauge& loss = Add("sluice_worker_loss", "Mean loss of the last log_every steps");
  prometheus::Gauge& bad_lines =
      Add("sluice_worker_bad_lines", "Malformed lines found in this job");
  prometheus::Gauge& read = Stage("read");
  prometheus::Gauge& dedup = Stage("dedup");
  prometheus::Gauge& pull_wait = Stage("pull_wait");
  prometheus::Gauge& compute = Stage("compute");
  prometheus::Gauge& push_wait = Stage("push_wait");
  prometheus::Gauge& hot_row_staleness_mean =
      Add("sluice_worker_hot_row_staleness_mean",
          "Mean steps of this worker between pull and use of a row, in this job (hot_row_cache, "
          "Geo)");
  prometheus::Gauge& hot_row_staleness_max =
      Add("sluice_worker_hot_row_staleness_max",
          "Most steps of this worker between pull and use of a row, in this job");
};

// Counters since the process began.
struct WorkerMetrics::Counters {
  explicit Counters(prometheus::Registry* all) : registry(*all) {}
  prometheus::Counter& Add(const std::string& name, const std::string& help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
  }
  // Prometheus counters can only be increased. Two readings may arrive at the same time, the older
  // one last; it must not lower the counter.
  static void Raise(prometheus::Counter* counter, double to) {
    const double more = to - counter->Value();
    if (more > 0) counter->Increment(more);
  }
  void Set(const WorkerTotals& totals) {
    // Reading and raising a counter are two calls, between which another thread could raise it too.
    MutexLock lock(&mutex);
    Raise(&examples, static_cast<double>(totals.examples));
    Raise(&cpu, totals.cpu_seconds);
    Raise(&hits, static_cast<double>(totals.hot_rows.hits()));
    Raise(&misses, static_cast<double>(totals.hot_rows.misses()));
    Raise(&staleness, static_cast<double>(totals.hot_rows.staleness_sum()));
    Raise(&whole_batches, static_cast<double>(totals.hot_rows.whole_batches()));
  }

  prometheus::Registry& registry;
  Mutex mutex;  // held while the counters are raised
  prometheus::Counter& examples =
      Add("sluice_worker_examples_total", "Examples trained since the process began");
  prometheus::Counter& cpu = Add("sluice_worker_cpu_seconds_total", "CPU time of the process");
  prometheus::Counter& hits = Add("sluice_worker_hot_row_hits_total",
                                  "Rows that steps used without a pull (hot_row_cache, Geo)");
  prometheus::Counter& misses =
      Add("sluice_worker_hot_row_misses_total", "Rows that had to be pulled (hot_row_cache, Geo)");
  prometheus::Counter& staleness =
      Add("sluice_worker_hot_row_staleness_steps_total",
          "Steps of this worker between pull and use, summed over hits and misses");
  prometheus::Counter& whole_batches =
      Add("sluice_worker_hot_row_whole_batches_total",
          "Batches pulled whole because hot_row_cache.rows had no room for them");
};

// Gauges of the worker's CUDA device.
struct WorkerMetrics::DeviceGauges {
  DeviceGauges(Gauges* gauges, const std::string& device) : all(*gauges), name(device) {}
  prometheus::Gauge& Add(const std::string& what, const std::string& help) {
    return all.Add("sluice_worker_device_" + what, help, {{"device", name}});
  }

  Gauges& all;
  const std::string name;
  prometheus::Gauge& busy_seconds = Add("busy_seconds",
                                        "Seconds of this job's kernels on the device, without "
                                        "copies and kernels that overlap a step");
  prometheus::Gauge& busy_share =
      Add("busy_share", "Busy seconds as a share of the wall time of the last log_every steps");
  prometheus::Gauge& bytes = Add("bytes", "Device memory held for this job");
  prometheus::Gauge& limit_bytes = Add("limit_bytes", "Limit of the device memory of this job");
  prometheus::Gauge& skipped_steps =
      Add("skipped_steps", "Steps of this job that overflowed in fp16 and were not used");
  prometheus::Gauge& loss_scale = Add("loss_scale", "Loss scale of fp16; 0: another type");
  prometheus::Gauge& steps_ahead =
      Add("steps_ahead", "Steps of this job whose batch was copied during the previous step");
};

WorkerMetrics::WorkerMetrics(const ComputeDevice& device)
    : gauges_(std::make_unique<Gauges>()),
      counters_(std::make_unique<Counters>(gauges_->registry.get())) {
  // Without a device there are no gauges of one, instead of zeros that look like an idle GPU.
  if (device.kind == ComputeDevice::kCuda)
    device_ = std::make_unique<DeviceGauges>(gauges_.get(), NameOf(device));
}
WorkerMetrics::~WorkerMetrics() = default;

std::shared_ptr<prometheus::Registry> WorkerMetrics::registry() const { return gauges_->registry; }

void WorkerMetrics::Set(const WorkerProgress& progress, const WorkerTotals& totals) {
  counters_->Set(totals);
  gauges_->epoch.Set(progress.epoch());
  gauges_->step.Set(progress.step());
  gauges_->examples.Set(progress.examples());
  gauges_->rate.Set(progress.examples_per_second());
  gauges_->loss.Set(progress.loss());
  gauges_->bad_lines.Set(progress.bad_lines());
  gauges_->read.Set(progress.stages().read());
  gauges_->dedup.Set(progress.stages().dedup());
  gauges_->pull_wait.Set(progress.stages().pull_wait());
  gauges_->compute.Set(progress.stages().compute());
  gauges_->push_wait.Set(progress.stages().push_wait());
  gauges_->hot_row_staleness_mean.Set(MeanStaleness(progress.hot_rows()));
  gauges_->hot_row_staleness_max.Set(progress.hot_rows().staleness_max());
  if (device_ == nullptr) return;
  device_->busy_seconds.Set(progress.device().busy_seconds());
  device_->busy_share.Set(progress.device().busy_share());
  device_->bytes.Set(progress.device().bytes_in_use());
  device_->limit_bytes.Set(progress.device().bytes_limit());
  device_->skipped_steps.Set(progress.device().skipped_steps());
  device_->loss_scale.Set(progress.device().loss_scale());
  device_->steps_ahead.Set(progress.device().steps_ahead());
}

}  // namespace sluice
