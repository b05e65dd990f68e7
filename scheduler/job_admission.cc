#include "scheduler/job_admission.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/config/mode.h"
#include "common/config/step_examples.h"
#include "scheduler/job_records.h"
#include "scheduler/member_loss.h"

namespace sluice {
namespace {

void NoteDamaged(const ResumePoint& resume, Job* job) {
  for (const std::string& save_id : resume.damaged) {
    if (std::count(job->damaged.begin(), job->damaged.end(), save_id) == 0)
      job->damaged.push_back(save_id);
  }
}

// Adds what members must know of checkpoints and of the one that the job continues from.
void FillCheckpoints(std::unique_ptr<const ResumePoint> resume, Job* job) {
  JobSpec& spec = job->spec;
  if (CanCheckpoint(job->config)) {
    // job.textproto keeps it empty: run again with another output_dir, the job must not write here.
    spec.mutable_config()->mutable_checkpoint()->set_dir(CheckpointRoot(job->config));
  }
  if (ModeOf(job->config.strategy()) == Mode::kSync) {
    // Also when the job has been scaled: the position in the data counts such batches.
    spec.set_global_batch(StepExamples(job->config) * job->config.worker_num());
  }
  if (resume == nullptr) {
    if (job->config.initial_checkpoint().empty()) return;
    spec.mutable_restore()->set_directory(job->config.initial_checkpoint());
    spec.mutable_restore()->set_kind(Restore::INITIAL);
    return;
  }
  spec.mutable_restore()->set_directory(resume->dir);
  spec.mutable_restore()->set_step(resume->state().global_step());
  NoteDamaged(*resume, job);
  job->recovery.Continue(resume->state().result().recovery());
  // PER_RANK_FILES keeps the number of workers, so the product is the same.
  if (resume->state().global_batch() > 0) spec.set_global_batch(resume->state().global_batch());
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

absl::StatusOr<std::unique_ptr<Job>> JobAdmission::Prepare(
    const JobConfig& config, const std::vector<TableConfig>& tables,
    const std::string& default_output, uint64_t first_number, std::vector<std::string> warnings,
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
  job->order = next_order_;
  job->config = config;
  job->warnings = std::move(warnings);
  if (config.output_dir().empty()) {
    job->config.set_output_dir(absl::StrCat(default_output, "/", job->job_id));
  }
  // CheckOutputs compares folders as text, so trailing slashes must not make a difference.
  std::string* const output = job->config.mutable_output_dir();
  while (output->size() > 1 && output->back() == '/') output->pop_back();
  SLUICE_RETURN_IF_ERROR(parts_.jobs->CheckOutputs(job->config));
  parts_.lifecycle->SetNewInstance(job.get());
  FillSpec({tables.begin(), tables.end()}, std::move(resume), job.get());
  if (job->resume != nullptr) job->resumed_from = job->resume->dir;
  return job;
}

void JobAdmission::FillSpec(const google::protobuf::RepeatedPtrField<TableConfig>& tables,
                            std::unique_ptr<const ResumePoint> resume, Job* job) {
  job->status_version = options_.first_version;
  job->spec.set_job_id(job->job_id);
  *job->spec.mutable_config() = job->config;
  *job->spec.mutable_tables() = tables;
  job->spec.set_worker_num(job->config.worker_num());
  FillCheckpoints(std::move(resume), job);
  FillRecovery(options_.wait, job);
}

NextRecord JobAdmission::NextAfter(const Job& job) const {
  NextRecord next;
  next.set_job_number(next_number_ + 1);
  next.set_order(job.order + 1);
  return next;
}

Job* JobAdmission::Add(std::unique_ptr<Job> job) {
  ++next_number_;
  ++next_order_;
  Job* const queued = parts_.jobs->Add(std::move(job));
  parts_.queue->Add(queued);
  return queued;
}

Job* JobAdmission::Restore(const JobRecord& record,
                           absl::StatusOr<std::unique_ptr<const ResumePoint>> resume,
                           std::optional<RunHandover> handover, absl::Time now) {
  auto restored = std::make_unique<Job>();
  Job* const job = restored.get();
  job->job_id = record.job_id();
  job->config = record.config();
  job->order = record.order();
  job->request_id = record.request_id();
  job->allow_older = record.allow_older();
  job->begun = record.begun();
  for (const std::string& warning : record.warnings()) AddWarning(job, warning);
  job->instances.assign(record.instances().begin(), record.instances().end());
  job->pservers.ranks.assign(record.pservers().begin(), record.pservers().end());
  job->resumed_from = record.resume_from();
  job->damaged.assign(record.damaged().begin(), record.damaged().end());
  job->checkpoints_before = record.checkpoints();
  job->recovery.NoteReached(record.steps_reached(), record.examples_reached());
  job->status_version = options_.first_version;
  parts_.jobs->Add(std::move(restored));
  if (handover) {
    if (resume.ok() && *resume != nullptr) NoteDamaged(**resume, job);
    const absl::Status adopted = parts_.lifecycle->Adopt(
        job, record.recovery(), handover->run, std::move(handover->began_at), &resume, now);
    if (adopted.ok()) return job;
    const std::string why =
        absl::StrCat("the run of the earlier scheduler cannot continue: ", adopted.message());
    AddWarning(job, why);
    parts_.effects->Log(*job, why);
    parts_.effects->records()->RunRefused(handover->run);
  }
  FillSpec(record.tables(), resume.ok() ? *std::move(resume) : nullptr, job);
  if (record.worker_num() > 0) job->spec.set_worker_num(record.worker_num());
  if (record.outcome() != JOB_STATE_UNSPECIFIED) {
    job->state = record.begun() ? JOB_RUNNING : JOB_QUEUED;
    job->outcome = record.outcome();
    job->message = PrintableLine(record.message());
    job->result = record.result();
    job->save_id = record.save_id();
    parts_.lifecycle->WriteResultAgain(job, now);
  } else if (record.begun()) {
    parts_.lifecycle->Restore(job, record.recovery(), now);
  } else {
    parts_.lifecycle->SetNewInstance(job);
    parts_.effects->records()->Changed(*job);
    parts_.queue->Add(job);
  }
  return job;
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
