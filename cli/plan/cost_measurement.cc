#include "cli/plan/cost_measurement.h"

#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/cluster_folders.h"
#include "cli/endpoints.h"
#include "cli/format.h"
#include "cli/job_submission.h"
#include "cli/local_cluster.h"
#include "cli/plan/data_sample.h"
#include "cli/plan/measured_windows.h"
#include "cli/plan/metrics_page.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/config/job_validation.h"
#include "common/config/step_examples.h"
#include "common/daemon/scheduler_client.h"
#include "common/table/table_layout.h"
#include "model/built_in_models.h"
#include "model/model_spec.h"

namespace sluice::plan {
namespace {

using cli::LocalCluster;

constexpr int kManyPservers = 4;
constexpr int kWindows = 8;
constexpr double kLeastSteps = 8;
constexpr double kPatience =
    5;  // times the seconds that a job should take, until it has kLeastSteps
constexpr absl::Duration kReadyTimeout = absl::Seconds(60), kStopGrace = absl::Seconds(6);
constexpr double kWarmUpSeconds = 0.5;
constexpr uint32_t kWatchMs = 50;
constexpr double kBusyShare = 0.5;  // of the cores
// A frame's cost without its bytes, at each end. An empty gRPC message and its answer take 45 us on
// an idle host.
constexpr double kUsualFrame = 30e-6, kMostFrame = 500e-6;
// Factor by which an index and room to grow enlarge the bytes of rows.
constexpr double kIndexOfRows = 1.25;

class TemporaryFolder {
 public:
  static absl::StatusOr<std::unique_ptr<TemporaryFolder>> Create() {
    std::error_code error;
    std::string path =
        (std::filesystem::temp_directory_path(error) / "sluice_plan_XXXXXX").string();
    if (error || mkdtemp(path.data()) == nullptr) {
      return absl::UnavailableError(
          absl::StrCat("cannot make the folder ", path, "; let TMPDIR name a writable folder"));
    }
    return std::unique_ptr<TemporaryFolder>(new TemporaryFolder(path));
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

struct Memory {
  double dense_elements = 0, dense_bytes = 0, rows = 0, row_bytes = 0, process = 0;
};

struct MeasuredRun {
  std::vector<Reading> readings;
  std::vector<Reading> first_pass;  // over the sample, from its beginning
  std::vector<double> step_seconds;
  Memory memory;
};

// One short job on a cluster of its own.
class ShortJob {
 public:
  ShortJob(const JobConfig& job, int pservers, double seconds, const MeasurementOptions& options,
           std::string folder)
      : job_(job),
        pservers_(pservers),
        seconds_(seconds),
        options_(options),
        folder_(std::move(folder)) {}

  absl::StatusOr<MeasuredRun> Run() {
    SLUICE_RETURN_IF_ERROR(Start());
    const absl::Status measured = Measure();
    CancelJobRequest cancel;
    cancel.set_job_id(job_id_);
    if (!job_id_.empty()) (void)client_->CancelJob(cancel);
    // If the scheduler does not answer, Stop ends the processes by signals.
    (void)client_->Shutdown();
    cluster_->Stop(kStopGrace);
    if (!measured.ok()) return measured;
    return std::move(run_);
  }

 private:
  absl::Status Start() {
    LocalCluster::Options options;
    options.clock = options_.clock;
    options.config = cli::LoopbackCluster("127.0.0.1:0", pservers_, 1);
    options.config.mutable_limits()->set_lease_ms(30'000);
    options.config.mutable_limits()->set_heartbeat_ms(200);
    options.threads = cli::ThreadsPerWorker(1);
    options.server_threads = options_.server_threads;
    options.devices = {"--device", {options_.device}};
    SLUICE_ASSIGN_OR_RETURN(cli::LogFolder logs,
                            cli::LogFolder::Take(folder_ + "/log", Env::Real()));
    options.logs = std::move(logs);
    SLUICE_ASSIGN_OR_RETURN(cluster_, LocalCluster::Start(std::move(options)));
    client_ = SchedulerClient::Create(cluster_->scheduler(), options_.clock);
    return client_->WaitReady(kReadyTimeout, options_.note);
  }

  absl::Status Measure() {
    SubmitJobRequest request;
    *request.mutable_config() = job_;
    SLUICE_ASSIGN_OR_RETURN(const SubmitJobReply submitted,
                            cli::SubmitJob(
                                client_.get(), request, kReadyTimeout,
                                [this] { return cluster_->CheckProcesses(); }, options_.clock));
    job_id_ = submitted.job_id();
    SLUICE_RETURN_IF_ERROR(WatchUntil([this] { return watched_steps_ > 0; }, kReadyTimeout));
    SLUICE_RETURN_IF_ERROR(Wait(kWarmUpSeconds));
    run_.step_seconds.clear();
    const absl::Time begin = options_.clock->Now();
    SLUICE_RETURN_IF_ERROR(Read());
    const auto enough = [this] {
      return run_.readings.back().steps - run_.readings.front().steps >= kLeastSteps;
    };
    for (int i = 1; i <= kWindows || !enough(); ++i) {
      SLUICE_RETURN_IF_ERROR(Wait(seconds_ / kWindows));
      SLUICE_RETURN_IF_ERROR(Read());
      const double so_far = absl::ToDoubleSeconds(options_.clock->Now() - begin);
      if (so_far > kPatience * seconds_ && !enough()) {
        return absl::DeadlineExceededError(absl::StrFormat(
            "the job made fewer than %.0f steps in %.0f s; give a longer --measure_s", kLeastSteps,
            so_far));
      }
    }
    return absl::OkStatus();
  }

  // Follows the job until `done`, at most for `patience` without an error.
  absl::Status WatchUntil(const std::function<bool()>& done, absl::Duration patience) {
    const absl::Time deadline = options_.clock->Now() + patience;
    for (;;) {
      WatchJobRequest watch;
      watch.set_job_id(job_id_);
      watch.set_seen_version(version_);
      watch.set_seen_steps(watched_steps_);
      watch.set_wait_ms(kWatchMs);
      SLUICE_ASSIGN_OR_RETURN(const WatchJobReply reply, client_->WatchJob(watch));
      version_ = reply.status().version();
      watched_steps_ = reply.steps_seen();
      for (const StepLoss& step : reply.steps()) {
        if (step.examples_per_second() > 0)
          run_.step_seconds.push_back(StepExamples(job_) / step.examples_per_second());
      }
      const JobState state = reply.status().state();
      if (state == JOB_DONE || state == JOB_FAILED || state == JOB_CANCELLED) {
        return absl::InternalError(absl::StrCat("the job that measures ended (",
                                                cli::StateName(state),
                                                "): ", reply.status().message()));
      }
      if (cli::StopIsPending()) return absl::CancelledError("interrupted");
      SLUICE_RETURN_IF_ERROR(cluster_->CheckProcesses());
      if (done()) return absl::OkStatus();
      if (options_.clock->Now() >= deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat("the job that measures made no step within ",
                         absl::FormatDuration(patience), ": ", reply.status().waiting_for()));
      }
      options_.clock->Sleep(absl::Milliseconds(10));
    }
  }

  absl::Status Wait(double seconds) {
    const absl::Time end = options_.clock->Now() + absl::Seconds(seconds);
    return WatchUntil([&] { return options_.clock->Now() >= end; },
                      absl::Seconds(seconds) + kReadyTimeout);
  }

  absl::Status Read() {
    Reading reading;
    Memory memory;
    double epoch = 0;
    for (const cli::Endpoint& process : cli::ReadEndpoints(folder_ + "/log")) {
      if (process.role != "worker" && process.role != "pserver") continue;
      SLUICE_ASSIGN_OR_RETURN(const MetricsPage page, MetricsPage::Fetch(process.admin_address));
      if (process.role == "worker") {
        reading.at_s = absl::ToDoubleSeconds(options_.clock->Now() - absl::Time());
        reading.steps = page.Sum("sluice_worker_step");
        reading.examples = page.Sum("sluice_worker_examples_total");
        reading.worker_cpu_s = page.Sum("sluice_worker_cpu_seconds_total");
        epoch = page.Sum("sluice_worker_epoch");
        const auto stages = page.By("sluice_worker_stage_seconds", "stage");
        for (const char* stage : {"pull_wait", "push_wait"}) {
          const auto it = stages.find(stage);
          if (it != stages.end()) reading.wait_s += it->second;
        }
        continue;
      }
      reading.pserver_cpu_s += page.Sum("sluice_pserver_cpu_seconds_total");
      reading.pushed_bytes += page.Sum("sluice_pserver_bytes_received_total");
      reading.pulled_bytes += page.Sum("sluice_pserver_bytes_sent_total");
      const auto rows = page.By("sluice_pserver_rows", "table");
      for (const auto& [table, bytes] : page.By("sluice_pserver_table_bytes", "table"))
        (rows.count(table) > 0 ? memory.row_bytes : memory.dense_bytes) += bytes;
      memory.rows += page.Sum("sluice_pserver_rows");
      memory.dense_elements += page.Sum("sluice_pserver_dense_elements");
      memory.process += page.Sum("sluice_pserver_memory_bytes");
    }
    reading.rows = memory.rows;
    const double tables = memory.dense_bytes + memory.row_bytes;
    memory.process = std::max(0.0, memory.process - tables) / pservers_;
    run_.memory = memory;
    run_.readings.push_back(reading);
    if (epoch <= 1) run_.first_pass.push_back(reading);
    return absl::OkStatus();
  }

  const JobConfig& job_;
  const int pservers_;
  const double seconds_;
  const MeasurementOptions& options_;
  const std::string folder_;
  std::unique_ptr<LocalCluster> cluster_;
  std::unique_ptr<SchedulerClient> client_;
  std::string job_id_;
  uint64_t version_ = 0, watched_steps_ = 0;
  MeasuredRun run_;
};

class Measurement {
 public:
  Measurement(const JobConfig& job, const MeasurementOptions& options, std::string folder)
      : job_(job), options_(options), folder_(std::move(folder)) {}

  absl::StatusOr<PlanCosts> Run() {
    const std::string data = folder_ + "/data";
    std::filesystem::create_directories(data);
    SLUICE_ASSIGN_OR_RETURN(sample_, CopyFirstLines(job_.data(), data, options_.sample_bytes));
    const Mode mode = ModeOf(job_.strategy());
    const Mode base = mode == Mode::kGeo ? Mode::kAsync : mode;
    const double seconds = options_.seconds;
    SLUICE_ASSIGN_OR_RETURN(const MeasuredRun one, RunJob(base, 1, seconds / 2));
    SetStep(one);
    SLUICE_ASSIGN_OR_RETURN(const MeasuredRun many, RunJob(base, kManyPservers, seconds / 4));
    SetFrames(MeansOf(many.readings));
    if (!options_.with_geo) return costs_;
    const absl::StatusOr<MeasuredRun> geo = RunJob(Mode::kGeo, 1, seconds / 4);
    if (geo.ok()) {
      SetGeo(MeansOf(geo->readings));
    } else if (absl::IsInvalidArgument(geo.status()) && mode != Mode::kGeo) {
      options_.note(absl::StrCat("Geo is not predicted: ", geo.status().message()));
    } else {
      return geo.status();
    }
    return costs_;
  }

 private:
  uint32_t k_steps() const {
    return ModeOf(job_.strategy()) == Mode::kGeo ? KSteps(job_.strategy()) : options_.geo_k_steps;
  }

  absl::StatusOr<MeasuredRun> RunJob(Mode mode, int pservers, double seconds) {
    const std::string folder = absl::StrCat(folder_, "/", ModeName(mode), "-", pservers);
    std::filesystem::create_directories(folder);
    SLUICE_ASSIGN_OR_RETURN(const JobConfig job,
                            MeasuredJob(job_, mode, k_steps(), sample_.files, folder));
    const bool moved = mode == Mode::kSync && WorkersKeepDenseTables(job_);
    options_.note(absl::StrFormat("measures %s with %s%s for %.1f s", ModeName(mode),
                                  cli::Counted(static_cast<uint64_t>(pservers), "pserver"),
                                  moved ? (pservers == 1 ? ", which keeps the dense tables,"
                                                         : ", which keep the dense tables,")
                                        : "",
                                  seconds));
    return ShortJob(job, pservers, seconds, options_, folder).Run();
  }

  void SetStep(const MeasuredRun& run) {
    const StepMeans means = MeansOf(run.readings);
    const uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
    costs_.set_job(job_.name());
    costs_.set_batch_size(StepExamples(job_));
    costs_.set_examples(means.examples);
    costs_.set_step_s(means.step_s);
    costs_.set_wait_s(means.wait_s);
    costs_.set_worker_cpu_s(means.worker_cpu_s);
    costs_.set_pserver_cpu_s(means.pserver_cpu_s);
    costs_.set_pushed_bytes(means.pushed_bytes);
    costs_.set_pulled_bytes(means.pulled_bytes);
    costs_.set_fixed_threads(job_.train().threads() > 0);
    costs_.set_worker_threads(costs_.fixed_threads()
                                  ? job_.train().threads()
                                  : static_cast<uint32_t>(cli::ThreadsPerWorker(1)));
    costs_.set_pserver_threads(static_cast<uint32_t>(options_.server_threads));
    costs_.set_pipeline_depth(std::max(1u, job_.train().pipeline_depth()));
    costs_.set_cores(cores);
    costs_.set_step_spread(SpreadOf(run.step_seconds));
    costs_.set_uncertainty(means.uncertainty);
    costs_.set_measured_s(run.readings.back().at_s - run.readings.front().at_s);
    costs_.set_sampled(!sample_.whole);
    const Memory& memory = run.memory;
    costs_.set_dense_bytes(memory.dense_elements * sizeof(float));
    costs_.set_dense_memory_bytes(memory.dense_bytes);
    costs_.set_process_memory_bytes(memory.process);
    if (memory.rows > 0) {
      costs_.set_row_memory_bytes(kIndexOfRows * memory.row_bytes / memory.rows);
      // A run that has passed over the whole sample has seen its rows.
      const std::vector<Reading>& rows = run.first_pass.size() >= 2 ? run.first_pass : run.readings;
      const double all = sample_.lines / sample_.share;
      costs_.set_rows(std::max(memory.rows, RowsAfter(rows, all)));
    }
  }

  // Pservers share the bytes of a step; what more of them cost is the frames. It is the small
  // difference of two measurements, so the usual cost is taken when they vary by more.
  void SetFrames(const StepMeans& many) {
    const double more = kManyPservers - 1;
    const auto frame = [&](double with_many, double with_one) {
      const double measured = (with_many - with_one) / more;
      const double doubt =
          std::hypot(many.uncertainty * with_many, costs_.uncertainty() * with_one) / more;
      return measured > doubt ? std::min(measured, kMostFrame) : kUsualFrame;
    };
    costs_.set_worker_frame_s(frame(many.worker_cpu_s, costs_.worker_cpu_s()));
    costs_.set_pserver_frame_s(frame(many.pserver_cpu_s, costs_.pserver_cpu_s()));
  }

  void SetGeo(const StepMeans& means) {
    GeoCosts* geo = costs_.mutable_geo();
    geo->set_k_steps(k_steps());
    geo->set_step_s(means.step_s);
    geo->set_wait_s(means.wait_s);
    geo->set_worker_cpu_s(means.worker_cpu_s);
    geo->set_pserver_cpu_s(means.pserver_cpu_s);
    geo->set_pushed_bytes(means.pushed_bytes);
    geo->set_pulled_bytes(means.pulled_bytes);
  }

  const JobConfig& job_;
  const MeasurementOptions& options_;
  const std::string folder_;
  DataSample sample_;
  PlanCosts costs_;
};

// Moves the dense tables of a collective job to the pservers, whose metrics count their bytes.
// Without COLLECTIVE, the other options of the exchange between workers are refused.
void KeepDenseTablesOnPservers(JobConfig* job) {
  if (!WorkersKeepDenseTables(*job)) return;
  SyncConfigs* sync = job->mutable_strategy()->mutable_sync_configs();
  sync->clear_dense();
  sync->clear_engine();
  sync->clear_fuse_mb();
  sync->clear_fuse_layers();
  sync->clear_comm_num();
  for (TableConfig& table : *job->mutable_tables())
    if (table.update_at() == TableConfig::COLLECTIVE) table.clear_update_at();
}

// Clears what only the job's own mode allows.
void SetMode(Mode mode, uint32_t k_steps, JobConfig* job) {
  if (mode != ModeOf(job->strategy())) {
    job->clear_strategy();
    job->mutable_strategy()->set_a_sync(mode != Mode::kSync);
    if (mode == Mode::kGeo)
      job->mutable_strategy()->mutable_a_sync_configs()->set_k_steps(static_cast<int>(k_steps));
    job->mutable_train()->clear_pipeline_depth();
    for (TableConfig& table : *job->mutable_tables()) {
      table.clear_update_at();
      if (mode == Mode::kGeo) table.clear_wire_type();
    }
  }
}

}  // namespace

PlanMode PlanModeOf(const JobConfig& job) {
  switch (ModeOf(job.strategy())) {
    case Mode::kSync:
      return WorkersKeepDenseTables(job) ? PlanMode::kCollective : PlanMode::kSync;
    case Mode::kGeo:
      return PlanMode::kGeo;
    case Mode::kAsync:
      break;
  }
  return PlanMode::kAsync;
}

absl::Status SetKeptTables(const JobConfig& job, PlanCosts* costs) {
  costs->clear_kept_dense_bytes();
  costs->clear_kept_dense_memory_bytes();
  if (!WorkersKeepDenseTables(job)) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const auto model, ModelSpec::Create(job, BuiltInSpecs()));
  double values = 0, kept_values = 0, floats = 0, kept_floats = 0;
  for (const int t : model->dense_tables()) {
    google::protobuf::RepeatedPtrField<TableConfig> one;
    *one.Add() = model->tables()[t];
    SLUICE_ASSIGN_OR_RETURN(const TableLayouts table, CreateTableLayouts(one, /*seed=*/0));
    const double elements = static_cast<double>(table[0]->elements());
    const double with_state = elements * (1 + table[0]->state_floats());
    values += elements;
    floats += with_state;
    if (table[0]->on_workers()) continue;
    kept_values += elements;
    kept_floats += with_state;
  }
  if (kept_values == 0) return absl::OkStatus();
  costs->set_kept_dense_bytes(costs->dense_bytes() * kept_values / values);
  costs->set_kept_dense_memory_bytes(costs->dense_memory_bytes() * kept_floats / floats);
  return absl::OkStatus();
}

absl::StatusOr<JobConfig> MeasuredJob(const JobConfig& job, Mode mode, uint32_t k_steps,
                                      const std::vector<std::string>& files,
                                      const std::string& folder) {
  if (job.evaluate_only()) {
    return absl::InvalidArgumentError(
        "evaluate_only: a job that trains nothing has no step to measure; remove it");
  }
  JobConfig measured = job;
  SetMode(mode, k_steps, &measured);
  KeepDenseTablesOnPservers(&measured);
  measured.set_worker_num(1);
  measured.set_output_dir(folder + "/output");
  measured.clear_trace_file();
  measured.clear_overwrite();
  measured.clear_initial_model();
  measured.clear_initial_checkpoint();
  measured.mutable_data()->clear_train_files();
  for (const std::string& file : files) measured.mutable_data()->add_train_files(file);
  measured.mutable_data()->clear_eval_files();
  if (measured.data().cache()) measured.mutable_data()->set_cache_dir(folder + "/cache");
  measured.clear_eval();
  measured.clear_checkpoint();
  measured.mutable_checkpoint()->set_every_s(0);
  measured.mutable_checkpoint()->set_save_final_model(false);
  measured.clear_recovery();
  measured.mutable_train()->set_epochs(kMaxEpochs);
  measured.mutable_train()->set_log_every(1);  // the time of each step
  return EffectiveJobConfig(std::move(measured), "", BuiltInSpecs());
}

absl::StatusOr<PlanCosts> MeasureCosts(const JobConfig& job, const MeasurementOptions& options) {
  double load = 0;  // processes that run or wait for a core, on average over the last minute
  if (getloadavg(&load, 1) == 1 && load > kBusyShare * std::thread::hardware_concurrency()) {
    options.note(
        absl::StrFormat("warning: other processes use this host (load average %.1f), so the job is "
                        "measured slower than it is; measure on an idle host",
                        load));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<TemporaryFolder> folder, TemporaryFolder::Create());
  SLUICE_ASSIGN_OR_RETURN(PlanCosts costs, Measurement(job, options, folder->path()).Run());
  SLUICE_RETURN_IF_ERROR(SetKeptTables(job, &costs));
  return costs;
}

}  // namespace sluice::plan
