#include "scheduler/job_admission.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "scheduler/member_loss.h"

namespace sluice {
namespace {

// What members must know of checkpoints and of the one that the job continues from.
void FillCheckpoints(std::unique_ptr<const ResumePoint> resume, Job* job) {
  JobSpec& spec = job->spec;
  if (CanCheckpoint(job->config)) {
    // job.textproto keeps it empty: run again with another output_dir, the job must not write here.
    spec.mutable_config()->mutable_checkpoint()->set_dir(CheckpointRoot(job->config));
  }
  if (ModeOf(job->config.strategy()) == Mode::kSync) {
    spec.set_global_batch(uint64_t{job->config.train().batch_size()} * spec.worker_num());
  }
  if (resume == nullptr) {
    if (job->config.initial_checkpoint().empty()) return;
    spec.mutable_restore()->set_directory(job->config.initial_checkpoint());
    spec.mutable_restore()->set_kind(Restore::INITIAL);
    return;
  }
  spec.mutable_restore()->set_directory(resume->dir);
  spec.mutable_restore()->set_step(resume->state().global_step());
  // PER_RANK_FILES keeps the number of workers, so the product is the same.
  if (resume->state().global_batch() > 0) spec.set_global_batch(resume->state().global_batch());
  job->resumed_from = resume->dir;
  job->resume = std::move(resume);
}

// Workers wait for each other as long as a lost one may be replaced.
void FillRecovery(absl::Duration wait, Job* job) {
  RecoveryConfig* const recovery = job->spec.mutable_config()->mutable_recovery();
  if (!recovery->has_max_losses()) recovery->set_max_losses(kDefaultMaxLosses);
  if (!recovery->has_wait_s()) recovery->set_wait_s(absl::ToDoubleSeconds(wait));
}

}  // namespace

absl::Status JobAdmission::CheckWorkers(const JobConfig& config) const {
  const uint32_t wanted = config.worker_num();
  if (wanted == 0) return absl::InvalidArgumentError("worker_num is 0; a job needs a worker");
  if (options_.worker_num == 0 && parts_.members->Alive(ROLE_WORKER).empty()) {
    return absl::FailedPreconditionError(
        "the cluster has no workers: its worker_num is 0 and none has registered; start "
        "sluice-worker, or set worker_num in the cluster file");
  }
  if (options_.worker_num > 0 && wanted > options_.worker_num) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job asks for ", wanted, " workers (worker_num), but the cluster has ",
                     options_.worker_num,
                     " (worker_num of the cluster); lower --worker_num or use a larger cluster"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> JobAdmission::Submit(const JobConfig& config,
                                                 const std::vector<TableConfig>& tables,
                                                 const std::string& default_output,
                                                 uint64_t first_number,
                                                 std::vector<std::string> warnings,
                                                 std::unique_ptr<const ResumePoint> resume) {
  SLUICE_RETURN_IF_ERROR(CheckWorkers(config));
  if (parts_.queue->full()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        parts_.queue->size(), " jobs are queued, and the scheduler keeps no more than ",
        JobQueue::kMaxJobs, "; submit again when some have ended, or cancel some (sluice cancel)"));
  }
  next_number_ = std::max(next_number_, first_number);
  auto job = std::make_unique<Job>();
  job->job_id = absl::StrCat(config.name(), "-", next_number_);
  job->config = config;
  job->warnings = std::move(warnings);
  if (config.output_dir().empty()) {
    job->config.set_output_dir(absl::StrCat(default_output, "/", job->job_id));
  }
  // CheckOutputs compares folders as text, so trailing slashes must not make a difference.
  std::string* const output = job->config.mutable_output_dir();
  while (output->size() > 1 && output->back() == '/') output->pop_back();
  SLUICE_RETURN_IF_ERROR(parts_.jobs->CheckOutputs(job->config));
  ++next_number_;
  job->spec.set_job_id(job->job_id);
  job->spec.set_instance(parts_.lifecycle->NewInstance());
  *job->spec.mutable_config() = job->config;
  for (const TableConfig& table : tables) *job->spec.add_tables() = table;
  job->spec.set_worker_num(config.worker_num());
  FillCheckpoints(std::move(resume), job.get());
  FillRecovery(options_.wait, job.get());
  Job* const queued = parts_.jobs->Add(std::move(job));
  parts_.queue->Add(queued);
  return queued->job_id;
}

ClusterView JobAdmission::ViewCluster() const {
  ClusterView cluster;
  cluster.missing_pservers = parts_.members->MissingPservers();
  for (const Member* worker : parts_.members->Alive(ROLE_WORKER)) {
    ++cluster.alive_workers;
    cluster.free_workers += worker->free();
  }
  return cluster;
}

void JobAdmission::Schedule(absl::Time now) {
  // Starting a job or giving one up makes the queue due again.
  while (parts_.queue->due()) {
    uint32_t position = 0;
    for (const JobQueue::Decided& decided : parts_.queue->Decide(ViewCluster())) {
      if (decided.decision.start) {
        parts_.lifecycle->Start(decided.job, now);
      } else {
        Wait(decided.job, decided.decision, position++, now);
      }
    }
  }
}

void JobAdmission::Wait(Job* job, const QueueDecision& decision, uint32_t position,
                        absl::Time now) {
  if (job->message != decision.reason || job->queue_position != position) {
    job->message = decision.reason;
    job->queue_position = position;
    parts_.effects->StatusChanged(job);
  }
  if (!decision.members_absent) {
    job->absent_since = absl::InfiniteFuture();
  } else if (job->absent_since == absl::InfiniteFuture()) {
    job->absent_since = now;
  }
  if (parts_.pauses->Since(job->absent_since, now) < options_.wait) return;
  parts_.lifecycle->End(job, JOB_FAILED,
                        absl::StrCat("gave up after ", absl::FormatDuration(options_.wait),
                                     " in the queue: ", decision.reason),
                        now);
}

}  // namespace sluice
