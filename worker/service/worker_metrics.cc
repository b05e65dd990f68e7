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

  GaugeSeries& epoch =
      Gauge("sluice_worker_epoch", "Epoch of the job, from 1; 0: not training yet");
  CounterSeries& steps = Counter("sluice_worker_steps_total", "Steps of this rank");
  GaugeSeries& examples = Gauge("sluice_worker_epoch_examples", "Examples trained in this epoch");
  GaugeSeries& rate =
      Gauge("sluice_worker_examples_per_second", "Training speed over the last log_every steps");
  GaugeSeries& loss = Gauge("sluice_worker_loss", "Mean loss of the last log_every steps");
  GaugeSeries& bad_lines =
      Gauge("sluice_worker_epoch_bad_lines", "Malformed lines found in this epoch");
  CounterSeries& stages =
      Counter("sluice_worker_stage_seconds_total", "Wall seconds spent in a stage");
  GaugeSeries& staleness_mean =
      Gauge("sluice_worker_hot_row_staleness_mean",
            "Mean steps of this rank between pull and use of a row (hot_row_cache, Geo)");
  GaugeSeries& staleness_max = Gauge("sluice_worker_hot_row_staleness_max",
                                     "Most steps of this rank between pull and use of a row");
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
  CounterSeries& busy_seconds =
      of_job.Counter("sluice_worker_device_busy_seconds_total",
                     "Seconds of the job's kernels on the device, without copies and kernels that "
                     "overlap a step");
  GaugeSeries& busy_share =
      of_job.Gauge("sluice_worker_device_busy_share",
                   "Busy seconds as a share of the wall time of the last log_every steps");
  GaugeSeries& bytes = of_job.Gauge("sluice_worker_device_bytes", "Device memory held for the job");
  GaugeSeries& limit_bytes =
      of_job.Gauge("sluice_worker_device_limit_bytes", "Limit of the device memory of the job");
  CounterSeries& skipped_steps =
      of_job.Counter("sluice_worker_device_skipped_steps_total",
                     "Steps of the job that overflowed in fp16 and were not used");
  GaugeSeries& loss_scale =
      of_job.Gauge("sluice_worker_device_loss_scale", "Loss scale of fp16; 0: another type");
  CounterSeries& steps_ahead =
      of_job.Counter("sluice_worker_device_steps_ahead_total",
                     "Steps of the job whose batch was copied during the previous step");
};

// Counters since the process began.
struct WorkerMetrics::Counters {
  explicit Counters(prometheus::Registry* all) : registry(*all) {}
  prometheus::Counter& Add(const std::string& name, const std::string& help) {
    return CounterFamily(name, help, &registry).Add({});
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
          "Batches pulled whole because hot_row_cache.rows had no room for them, counted for "
          "each sparse table");
};

// Counters of the places that data was read from, with the label place.
struct WorkerMetrics::OfPlaces {
  explicit OfPlaces(prometheus::Registry* all) : registry(*all) {}
  void Set(const std::string& place, const PlaceUse& use) {
    const auto raise = [&](const char* name, const char* help, double to) {
      Counters::Raise(&CounterFamily(name, help, &registry).Add({{"place", place}}), to);
    };
    const auto count = [](const std::atomic<uint64_t>& n) {
      return static_cast<double>(n.load(std::memory_order_relaxed));
    };
    MutexLock lock(&mutex);
    if (count(use.requests) == 0) return;
    raise("sluice_worker_place_requests_total", "Requests to a place of data, each try counted",
          count(use.requests));
    raise("sluice_worker_place_retries_total", "Requests to a place of data after a failed one",
          count(use.retries));
    raise("sluice_worker_place_bytes_total", "Bytes that a place of data has sent",
          count(use.bytes));
    raise("sluice_worker_place_seconds_total",
          "Seconds of all requests to a place of data, those at one time added up", use.seconds());
  }

  prometheus::Registry& registry;
  Mutex mutex;  // held while the counters are raised
};

WorkerMetrics::WorkerMetrics(const ComputeDevice& device)
    : registry_(std::make_shared<prometheus::Registry>()),
      counters_(std::make_unique<Counters>(registry_.get())),
      of_places_(std::make_unique<OfPlaces>(registry_.get())),
      of_job_(std::make_unique<OfJob>(registry_.get())) {
  // Without a device there are no figures of one, instead of zeros that look like an idle GPU.
  if (device.kind == ComputeDevice::kCuda)
    of_device_ = std::make_unique<OfDevice>(of_job_.get(), NameOf(device));
}
WorkerMetrics::~WorkerMetrics() = default;

std::shared_ptr<prometheus::Registry> WorkerMetrics::registry() const { return registry_; }

void WorkerMetrics::SetPlaces(const std::map<std::string, const PlaceUse*>& places) {
  for (const auto& [place, use] : places) of_places_->Set(place, *use);
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
