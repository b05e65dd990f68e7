#include "worker/service/worker_metrics.h"

#include <string>
#include <utility>
#include <vector>

#include "common/admin/metric_series.h"
#include "common/daemon/hot_row_use.h"

namespace sluice {

// The figures of the running job, with the labels job and rank. Empty while the worker is idle.
struct WorkerMetrics::OfJob : SeriesGroup {
  using SeriesGroup::SeriesGroup;

  void Set(const prometheus::Labels& labels, const WorkerProgress& progress) {
    epoch.Set(labels, progress.epoch());
    steps.Set(labels, static_cast<double>(progress.step()));
    examples.Set(labels, static_cast<double>(progress.examples()));
    rate.Set(labels, progress.examples_per_second());
    loss.Set(labels, progress.loss());
    bad_lines.Set(labels, static_cast<double>(progress.bad_lines()));
    const StageSeconds& spent = progress.stages();
    const std::pair<const char*, double> all[] = {{"read", spent.read()},
                                                  {"dedup", spent.dedup()},
                                                  {"pull_wait", spent.pull_wait()},
                                                  {"compute", spent.compute()},
                                                  {"push_wait", spent.push_wait()}};
    for (const auto& [stage, seconds] : all) {
      prometheus::Labels of_stage = labels;
      of_stage["stage"] = stage;
      stages.Set(of_stage, seconds);
    }
    staleness_mean.Set(labels, MeanStaleness(progress.hot_rows()));
    staleness_max.Set(labels, static_cast<double>(progress.hot_rows().staleness_max()));
  }

  GaugeSeries& epoch = Gauge("sluice_worker_epoch");
  CounterSeries& steps = Counter("sluice_worker_steps_total");
  GaugeSeries& examples = Gauge("sluice_worker_epoch_examples");
  GaugeSeries& rate = Gauge("sluice_worker_examples_per_second");
  GaugeSeries& loss = Gauge("sluice_worker_loss");
  GaugeSeries& bad_lines = Gauge("sluice_worker_epoch_bad_lines");
  CounterSeries& stages = Counter("sluice_worker_stage_seconds_total");
  GaugeSeries& staleness_mean = Gauge("sluice_worker_hot_row_staleness_mean");
  GaugeSeries& staleness_max = Gauge("sluice_worker_hot_row_staleness_max");
};

// Figures of the worker's CUDA device in the running job, with the labels device, job and rank.
struct WorkerMetrics::OfDevice {
  OfDevice(OfJob* all, std::string device) : of_job(*all), name(std::move(device)) {}
  void Set(prometheus::Labels labels, const DeviceUse& use) {
    labels["device"] = name;
    busy_seconds.Set(labels, use.busy_seconds());
    busy_share.Set(labels, use.busy_share());
    bytes.Set(labels, static_cast<double>(use.bytes_in_use()));
    limit_bytes.Set(labels, static_cast<double>(use.bytes_limit()));
    skipped_steps.Set(labels, static_cast<double>(use.skipped_steps()));
    loss_scale.Set(labels, use.loss_scale());
    steps_ahead.Set(labels, static_cast<double>(use.steps_ahead()));
  }

  OfJob& of_job;
  const std::string name;
  CounterSeries& busy_seconds = of_job.Counter("sluice_worker_device_busy_seconds_total");
  GaugeSeries& busy_share = of_job.Gauge("sluice_worker_device_busy_share");
  GaugeSeries& bytes = of_job.Gauge("sluice_worker_device_bytes");
  GaugeSeries& limit_bytes = of_job.Gauge("sluice_worker_device_limit_bytes");
  CounterSeries& skipped_steps = of_job.Counter("sluice_worker_device_skipped_steps_total");
  GaugeSeries& loss_scale = of_job.Gauge("sluice_worker_device_loss_scale");
  CounterSeries& steps_ahead = of_job.Counter("sluice_worker_device_steps_ahead_total");
};

// Counters since the process began.
struct WorkerMetrics::Counters {
  explicit Counters(prometheus::Registry* all) : registry(*all) {}
  prometheus::Counter& Add(const std::string& name) {
    return CounterFamily(name, &registry).Add({});
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
  prometheus::Counter& examples = Add("sluice_worker_examples_total");
  prometheus::Counter& cpu = Add("sluice_worker_cpu_seconds_total");
  prometheus::Counter& hits = Add("sluice_worker_hot_row_hits_total");
  prometheus::Counter& misses = Add("sluice_worker_hot_row_misses_total");
  prometheus::Counter& staleness = Add("sluice_worker_hot_row_staleness_steps_total");
  prometheus::Counter& whole_batches = Add("sluice_worker_hot_row_whole_batches_total");
};

WorkerMetrics::WorkerMetrics(const ComputeDevice& device)
    : registry_(std::make_shared<prometheus::Registry>()),
      counters_(std::make_unique<Counters>(registry_.get())),
      of_places_(registry_.get(), "sluice_worker"),
      of_job_(std::make_unique<OfJob>(registry_.get())) {
  // Without a device there are no figures of one, instead of zeros that look like an idle GPU.
  if (device.kind == ComputeDevice::kCuda)
    of_device_ = std::make_unique<OfDevice>(of_job_.get(), NameOf(device));
}
WorkerMetrics::~WorkerMetrics() = default;

std::shared_ptr<prometheus::Registry> WorkerMetrics::registry() const { return registry_; }

void WorkerMetrics::SetPlaces(const std::map<std::string, const PlaceUse*>& places) {
  of_places_.Set(places);
}

void WorkerMetrics::Set(const WorkerProgress& progress, const WorkerTotals& totals) {
  counters_->Set(totals);
  MutexLock lock(&mutex_);
  if (!progress.job_id().empty()) {
    const prometheus::Labels labels = {{"job", progress.job_id()},
                                       {"rank", std::to_string(progress.rank())}};
    of_job_->Set(labels, progress);
    if (of_device_ != nullptr) of_device_->Set(labels, progress.device());
  }
  of_job_->RemoveOthers();
}

}  // namespace sluice
