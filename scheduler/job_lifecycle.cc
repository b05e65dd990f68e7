// The part of SchedulerCore that leads a job from the queue to its end:
//
//   1. SubmitJob      the queue; refused when the cluster can never run it
//   2. Schedule       workers are allocated, shards placed, pservers asked to open the tables
//   (STARTING)
//   3. CheckStarting  every pserver has opened them and the output folder is ready: the workers get
//                    their assignments (RUNNING)
//   4. CheckFinishing all phases are done and the last reports are in
//   5. EndJob         outcome and result; workers are withdrawn
//   6. DropWhenReleased  the last worker has stopped: pservers drop the tables
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "scheduler/job_queue.h"
#include "scheduler/scheduler_core.h"

namespace sluice {

absl::Status SchedulerCore::CheckWorkers(const JobConfig& config) {
  const uint32_t wanted = config.worker_num();
  if (wanted == 0) return absl::InvalidArgumentError("worker_num is 0; a job needs a worker");
  if (options_.worker_num == 0 && members_.Alive(ROLE_WORKER).empty()) {
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

absl::StatusOr<std::string> SchedulerCore::SubmitJob(const JobConfig& config,
                                                     const std::vector<TableConfig>& tables,
                                                     const std::string& default_output,
                                                     uint64_t first_number, absl::Time now,
                                                     std::vector<std::string> warnings) {
  if (shutting_down()) return absl::FailedPreconditionError("the cluster is shutting down");
  SLUICE_RETURN_IF_ERROR(CheckWorkers(config));
  if (queue_.size() >= kMaxQueuedJobs) {
    return absl::ResourceExhaustedError(absl::StrCat(
        queue_.size(), " jobs are queued, and the scheduler keeps no more than ", kMaxQueuedJobs,
        "; submit again when some have ended, or cancel some (sluice cancel)"));
  }
  next_number_ = std::max(next_number_, first_number);
  auto job = std::make_unique<Job>();
  job->job_id = absl::StrCat(config.name(), "-", next_number_);
  job->config = config;
  job->warnings = std::move(warnings);
  if (config.output_dir().empty()) {
    job->config.set_output_dir(absl::StrCat(default_output, "/", job->job_id));
  }
  std::string* const output = job->config.mutable_output_dir();
  while (output->size() > 1 && output->back() == '/') output->pop_back();
  std::vector<const Job*> others(queue_.begin(), queue_.end());
  others.insert(others.end(), active_.begin(), active_.end());
  for (const Job* other : others) {
    if (other->state == other->outcome) continue;
    if (!config.trace_file().empty() && other->config.trace_file() == config.trace_file()) {
      return absl::AlreadyExistsError(
          absl::StrCat("job ", other->job_id, ", which has not ended, writes the same trace_file ",
                       config.trace_file(), "; give another --trace"));
    }
    if (other->config.output_dir() != job->config.output_dir()) continue;
    return absl::AlreadyExistsError(
        absl::StrCat("job ", other->job_id, ", which has not ended, writes to the same output_dir ",
                     job->config.output_dir(), "; give another --output_dir"));
  }
  ++next_number_;
  job->spec.set_job_id(job->job_id);
  job->spec.set_instance(next_instance_++);
  *job->spec.mutable_config() = job->config;
  for (const TableConfig& table : tables) *job->spec.add_tables() = table;
  job->spec.set_worker_num(config.worker_num());
  const std::string job_id = job->job_id;
  by_id_[job_id] = job.get();
  queue_.push_back(job.get());
  jobs_.push_back(std::move(job));
  schedule_due_ = queue_changed_ = true;
  Schedule(now);
  return job_id;
}

std::vector<std::string> SchedulerCore::MissingPservers() {
  std::vector<std::string> missing;
  for (uint32_t rank = 0; rank < options_.pserver_num; ++rank) {
    const Member* member = members_.At(ROLE_PSERVER, rank);
    if (member != nullptr && member->alive) continue;
    std::string address;
    // Port 0 is a free one, which nobody knows before it registers.
    if (rank < options_.pservers.size() && !absl::EndsWith(options_.pservers[rank], ":0"))
      address = absl::StrCat(" (", options_.pservers[rank], ")");
    missing.push_back(absl::StrCat("pserver ", rank, address, " to register"));
  }
  return missing;
}

bool SchedulerCore::IsFree(const Member& worker) const {
  return worker.alive && worker.polled && worker.job_id.empty() && worker.progress.job_id().empty();
}

void SchedulerCore::Schedule(absl::Time now) {
  while (schedule_due_ && !queue_.empty() && !shutting_down()) {
    schedule_due_ = false;
    DecideJobs(now);
  }
}

void SchedulerCore::DecideJobs(absl::Time now) {
  // Members change nothing for the jobs behind the head as long as that one waits.
  const size_t decided = queue_changed_ ? queue_.size() : 1;
  queue_changed_ = false;
  std::vector<Job*> queued(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(decided));
  std::vector<QueuedJob> queue;
  for (const Job* job : queued) queue.push_back({job->job_id, job->spec.worker_num()});
  ClusterView cluster;
  cluster.missing_pservers = MissingPservers();
  for (const Member* worker : members_.Alive(ROLE_WORKER)) {
    ++cluster.alive_workers;
    cluster.free_workers += IsFree(*worker);
  }
  const std::vector<QueueDecision> decisions = DecideQueue(queue, cluster);
  uint32_t position = 0;
  for (size_t i = 0; i < queued.size(); ++i) {
    Job* job = queued[i];
    if (decisions[i].start) {
      Unqueue(job);
      active_.push_back(job);
      StartJob(job, now);
      continue;
    }
    if (job->message != decisions[i].reason || job->queue_position != position) {
      job->message = decisions[i].reason;
      job->queue_position = position;
      NoteStatus(job);
    }
    ++position;
    if (!decisions[i].members_absent) {
      job->absent_since = absl::InfiniteFuture();
    } else if (job->absent_since == absl::InfiniteFuture()) {
      job->absent_since = now;
    }
    if (WaitsTooLong(job, now)) {
      EndJob(job, JOB_FAILED,
             absl::StrCat("gave up after ", absl::FormatDuration(options_.wait),
                          " in the queue: ", decisions[i].reason),
             now);
    }
  }
}

bool SchedulerCore::WaitsTooLong(const Job* job, absl::Time now) const {
  return Since(job->absent_since, now) >= options_.wait;
}

bool SchedulerCore::Unqueue(Job* job) {
  const auto it = std::find(queue_.begin(), queue_.end(), job);
  if (it == queue_.end()) return false;
  queue_.erase(it);
  // The others move up.
  schedule_due_ = queue_changed_ = true;
  return true;
}

void SchedulerCore::StartJob(Job* job, absl::Time now) {
  job->message.clear();
  job->queue_position = 0;
  NoteStatus(job);
  std::vector<std::string> addresses;
  for (const Member* pserver : members_.Alive(ROLE_PSERVER)) {
    job->pservers.push_back(pserver->id);
    addresses.push_back(pserver->self.address());
  }
  const absl::Status placed = options_.place(addresses, &job->spec);
  if (!placed.ok()) {
    job->pservers.clear();
    return EndJob(job, JOB_FAILED, std::string(placed.message()), now);
  }
  for (Member* worker : members_.Alive(ROLE_WORKER)) {
    if (job->ranks.size() == job->spec.worker_num()) break;
    if (!IsFree(*worker)) continue;
    RankSlot slot;
    slot.member_id = worker->id;
    slot.worker = worker->self.rank();
    slot.incarnation = next_incarnation_++;
    job->rank_of[worker->id] = static_cast<uint32_t>(job->ranks.size());
    job->ranks.push_back(slot);
    worker->job_id = job->job_id;
  }
  job->state = JOB_STARTING;
  job->starting_since = now;
  job->hosted = true;
  TouchPservers(*job);
  Emit(*job, OutputAction::kStarted, {}, now);
}

void SchedulerCore::TouchPservers(const Job& job) {
  for (const uint64_t id : job.pservers) {
    if (Member* member = members_.ById(id)) Touch(member);
  }
}

void SchedulerCore::CheckStarting(Job* job, absl::Time now) {
  if (job->state != JOB_STARTING || job->over()) return;
  bool all_open = true;
  std::vector<const Member*> late;
  for (const uint64_t id : job->pservers) {
    const Member* member = members_.ById(id);
    if (member == nullptr) return;  // its loss ends the job
    if (HasOpened(*job, *member)) continue;
    all_open = false;
    if (Since(LoadingSince(job, *member, now), now) >= options_.wait) late.push_back(member);
  }
  if (all_open && job->output_begun) return RunJob(job, now);
  if (all_open && Since(job->starting_since, now) >= options_.wait) {
    return EndJob(
        job, JOB_FAILED,
        absl::StrCat("output_dir ", job->config.output_dir(), " was not ready within ",
                     absl::FormatDuration(options_.wait),
                     " (limits.wait_s); look after its disk, or give another --output_dir"),
        now);
  }
  if (late.empty()) return;
  const auto describe = [](std::string* out, const Member* member) {
    out->append(DescribeMember(*member));
  };
  const std::string model = job->config.initial_model();
  EndJob(job, JOB_FAILED,
         absl::StrCat(absl::StrJoin(late, " and ", describe), " did not open the tables of job ",
                      job->job_id, model.empty() ? "" : absl::StrCat(" or read more of ", model),
                      " within ", absl::FormatDuration(options_.wait),
                      " (limits.wait_s); see its log"),
         now);
}

absl::Time SchedulerCore::LoadingSince(Job* job, const Member& pserver, absl::Time now) {
  Job::Load& load = job->loads.emplace(pserver.id, Job::Load{0, job->starting_since}).first->second;
  const HostedJob* hosted = HostedOf(*job, pserver);
  // Reports can overtake each other: only more than ever counts.
  if (hosted != nullptr && hosted->loaded_bytes() > load.bytes) {
    load = {hosted->loaded_bytes(), now};
    NoteStatus(job);
  }
  return load.since;
}

void SchedulerCore::RunJob(Job* job, absl::Time now) {
  job->state = JOB_RUNNING;
  job->run.emplace(&job->config, job->spec.worker_num(), now, SaveIdOf(*job));
  job->curves.emplace(job->spec.worker_num());
  NoteStatus(job);
  NotePhase(*job);
  for (RankSlot& slot : job->ranks) {
    Member* member = members_.ById(slot.member_id);
    if (member == nullptr) continue;
    Touch(member);
    slot.told_version = member->version;
  }
}

void SchedulerCore::AskForReports(Job* job) {
  std::vector<uint64_t> ids = job->pservers;
  for (const RankSlot& slot : job->ranks) ids.push_back(slot.member_id);
  for (const uint64_t id : ids) {
    Member* member = members_.ById(id);
    if (member == nullptr) continue;
    Touch(member);
    if (!member->alive) continue;
    if (job->asked.insert_or_assign(id, member->version).second)
      asked_by_[id].push_back(job->job_id);
  }
}

void SchedulerCore::CheckFinishing(Job* job, absl::Time now) {
  if (job->over() || !job->finishing()) return;
  if (!job->asked.empty() && Since(job->finishing_since, now) < options_.report_wait) return;
  EndJob(job, JOB_DONE, "", now);
}

void SchedulerCore::EndJob(Job* job, JobState outcome, const std::string& message, absl::Time now) {
  if (job->over()) return;
  job->outcome = outcome;
  job->message = message;
  job->queue_position = 0;
  job->ended_at = now;
  job->result = MakeJobResult(*job, &members_);
  if (Unqueue(job)) active_.push_back(job);
  NoteStatus(job);
  NotePhase(*job);
  if (job->run) {
    std::vector<Scalar> scalars = job->run->TakeScalars();
    for (Scalar& point : job->curves->Take(/*all=*/true)) scalars.push_back(std::move(point));
    Emit(*job, OutputAction::kScalars, std::move(scalars), now);
    job->run->DropWork();
  }
  Emit(*job, OutputAction::kEnded, {}, now);
  // A rank of a job that went well hears of the end as its next phase.
  for (RankSlot& slot : job->ranks) {
    if (outcome != JOB_DONE && slot.state == RankSlot::kServing) Withdraw(&slot);
  }
  DropWhenReleased(job, now);
}

void SchedulerCore::Withdraw(RankSlot* slot) {
  slot->state = RankSlot::kWithdrawn;
  Member* member = members_.ById(slot->member_id);
  if (member == nullptr) return;
  Touch(member);
  slot->withdrawn_version = member->version;
}

void SchedulerCore::Release(Job* job, RankSlot* slot) {
  slot->state = RankSlot::kReleased;
  Member* member = members_.ById(slot->member_id);
  if (member == nullptr || member->job_id != job->job_id) return;
  member->job_id.clear();
  schedule_due_ = true;
}

void SchedulerCore::DropWhenReleased(Job* job, absl::Time now) {
  if (!job->over() || !job->hosted) return;
  const bool released = std::all_of(job->ranks.begin(), job->ranks.end(), [](const RankSlot& slot) {
    return slot.state == RankSlot::kReleased;
  });
  // A worker that never says that it has stopped does not keep the tables for ever.
  if (!released && now - job->ended_at < options_.lease) return;
  for (RankSlot& slot : job->ranks) {
    if (slot.state == RankSlot::kServing) Withdraw(&slot);
  }
  job->hosted = false;
  TouchPservers(*job);
}

void SchedulerCore::Settle() {
  const auto settled = std::stable_partition(active_.begin(), active_.end(),
                                             [](const Job* job) { return !job->settled(); });
  for (auto it = settled; it != active_.end(); ++it) {
    settled_.push_back(*it);
    if (settled_.size() > kWholeJobs)
      Archive(settled_[settled_.size() - 1 - kWholeJobs], &members_);
  }
  active_.erase(settled, active_.end());
  for (; settled_.size() > kRememberedJobs; settled_.pop_front()) Forget(settled_.front()->job_id);
}

void SchedulerCore::Forget(const std::string& job_id) {
  const auto job = by_id_.find(job_id);
  changed_.push_back(WaitKey::Status(job_id));
  changed_.push_back(WaitKey::Phase(job_id));
  const Job* const forgotten = job->second;
  by_id_.erase(job);
  jobs_.erase(std::find_if(jobs_.begin(), jobs_.end(),
                           [forgotten](const auto& one) { return one.get() == forgotten; }));
}

void SchedulerCore::Emit(const Job& job, OutputAction::Kind kind, std::vector<Scalar> scalars,
                         absl::Time now) {
  if (kind == OutputAction::kScalars && scalars.empty()) return;
  OutputAction action;
  action.kind = kind;
  action.job_id = job.job_id;
  action.time = now;
  if (kind != OutputAction::kScalars) action.config = job.config;
  action.scalars = std::move(scalars);
  if (kind == OutputAction::kEnded) {
    action.result = job.result;
    action.save_id = SaveIdOf(job);
  }
  actions_.push_back(std::move(action));
}

}  // namespace sluice
