#include "cli/plan/short_job.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/cluster/cluster_folders.h"
#include "cli/cluster/local_cluster.h"
#include "cli/jobs/endpoints.h"
#include "cli/jobs/job_submission.h"
#include "cli/jobs/scheduler_access.h"
#include "cli/screen/format.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "common/config/mode.h"
#include "common/daemon/scheduler_client.h"
#include "common/security/cert_authority.h"

namespace sluice::plan {
namespace {

using cli::LocalCluster;

// Their differences say how well the mean is known.
constexpr int kWindows = 8;
constexpr double kLeastSteps = 8;
// A job that has not made kLeastSteps after this many times its planned seconds is given up.
constexpr double kPatience = 5;
constexpr absl::Duration kReadyTimeout = absl::Seconds(60), kStopGrace = absl::Seconds(6);
// The first steps make rows, connections and threads, which later steps find.
constexpr double kWarmUpSeconds = 0.5;
constexpr uint32_t kWatchMs = 50;

// One short job on a cluster of its own.
class ShortJob {
 public:
  ShortJob(const JobConfig& job, int pservers, double seconds, const ShortCluster& options,
           const std::string& folder)
      : job_(job),
        pservers_(pservers),
        seconds_(seconds),
        options_(options),
        logs_(folder + "/log") {}

  absl::StatusOr<MeasuredRun> Run() {
    SLUICE_RETURN_IF_ERROR(Start());
    const absl::Status measured = Measure();
    CancelJobRequest cancel;
    cancel.set_job_id(job_id_);
    // An error of the measurement matters more than one of ending the job.
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
    options.transport = options_.transport;
    options.tls = options_.tls;
    SLUICE_ASSIGN_OR_RETURN(cli::LogFolder logs, cli::LogFolder::Take(logs_, Env::Real()));
    options.logs = std::move(logs);
    SLUICE_ASSIGN_OR_RETURN(cluster_, LocalCluster::Start(std::move(options)));
    client_ =
        SchedulerClient::Create(cluster_->scheduler(), options_.clock, cluster_->credentials());
    if (options_.tls) certificate_ = FilesOf(cli::CertificateFolder(logs_), "operator");
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
    // Those of the warm-up do not count.
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
    JobCounters counters;
    double at_s = 0;
    for (const cli::Endpoint& process : cli::ReadEndpoints(logs_)) {
      if (process.role != "worker" && process.role != "pserver") continue;
      SLUICE_ASSIGN_OR_RETURN(const MetricsPage page,
                              MetricsPage::Fetch(process.admin_address, certificate_));
      if (process.role == "pserver") {
        AddPserverPage(page, &counters);
        continue;
      }
      // Taken next to the worker's page: its steps and its time must belong together.
      at_s = absl::ToDoubleSeconds(options_.clock->Now() - absl::Time());
      AddWorkerPage(page, &counters);
    }
    run_.Add(at_s, std::move(counters));
    return absl::OkStatus();
  }

  const JobConfig& job_;
  const int pservers_;
  const double seconds_;
  const ShortCluster& options_;
  const std::string logs_;
  std::unique_ptr<LocalCluster> cluster_;
  std::unique_ptr<SchedulerClient> client_;
  TlsFiles certificate_;  // of an operator; none without TLS
  std::string job_id_;
  uint64_t version_ = 0, watched_steps_ = 0;
  MeasuredRun run_;
};

}  // namespace

absl::StatusOr<MeasuredRun> RunShortJob(const JobConfig& job, int pservers, double seconds,
                                        const ShortCluster& cluster, const std::string& folder) {
  return ShortJob(job, pservers, seconds, cluster, folder).Run();
}

}  // namespace sluice::plan
