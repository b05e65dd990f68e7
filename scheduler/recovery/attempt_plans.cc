#include "scheduler/recovery/attempt_plans.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/config/mode.h"

namespace sluice {
namespace {

std::string Workers(uint32_t number) {
  return absl::StrCat(number, number == 1 ? " worker" : " workers");
}

absl::Status Refuse(const Job& job, const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat("job ", job.id(), " cannot be scaled: ", why));
}

}  // namespace

absl::Status AttemptPlans::CheckScale(const Job& job, uint32_t worker_num) const {
  if (worker_num == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("job ", job.id(), " cannot have 0 workers; give 1 or more, or cancel it"));
  }
  if (job.over()) return Refuse(job, "it has ended");
  // A queued job has no checkpoint to continue from, and its place in the queue was given for the
  // number that it asked for.
  if (job.state() == JOB_QUEUED)
    return Refuse(job, "it is queued; cancel it and submit it with another --worker_num");
  if (job.state() != JOB_RUNNING || !job.run())
    return Refuse(job, "it is not running yet; ask again when it is");
  if (job.config().evaluate_only())
    return Refuse(job, "it only evaluates, so it makes no checkpoint to continue from");
  if (!CanCheckpoint(job.config()))
    return Refuse(job, "with checkpoint.keep 0 it makes no checkpoint to continue from");
  if (job.config().data().assignment() == DataConfig::PER_RANK_FILES) {
    return Refuse(job, absl::StrCat("data.assignment PER_RANK_FILES needs its ",
                                    Workers(job.spec().worker_num())));
  }
  // Checked here and not when the attempt begins: by then the old members are gone.
  const uint32_t lanes = job.config().data().shuffle_lanes();
  if (ModeOf(job.config().strategy()) == Mode::kSync && lanes > 0 && worker_num > lanes) {
    return Refuse(job, absl::StrCat("it has data.shuffle_lanes ", lanes,
                                    ", and every worker serves at least one lane; give at most ",
                                    lanes, " workers"));
  }
  // The new workers would have nothing to do.
  if (job.checkpoints() && job.checkpoints()->finishes_job())
    return Refuse(job, "it may have trained its last step; ask again after the evaluation");
  if (!job.complete()) return Refuse(job, "it waits for a member that was lost; ask again later");
  if (!job.checkpoints()) {
    return Refuse(job,
                  "the scheduler was started again, and not all its members are back; ask "
                  "again in a few seconds");
  }
  return absl::OkStatus();
}

absl::Status AttemptPlans::Scale(Job* job, uint32_t worker_num, absl::Time now) {
  SLUICE_RETURN_IF_ERROR(CheckScale(*job, worker_num));
  const uint32_t present = job->spec().worker_num();
  const auto found = plans_.find(job);
  const bool pending = found != plans_.end() && found->second.worker_num != 0;
  if (worker_num == present && !pending)
    return absl::AlreadyExistsError(
        absl::StrCat("job ", job->id(), " has ", Workers(present), " already"));
  // The call was repeated.
  if (pending && found->second.worker_num == worker_num) return absl::OkStatus();
  // Counted before anything is reserved or given back.
  const std::vector<Member*> all = parts_.members->Alive(ROLE_WORKER);
  const auto free =
      static_cast<uint32_t>(std::count_if(all.begin(), all.end(), [&](const Member* worker) {
        const bool reserved =
            worker->job_id == job->id() && job->ranks.SlotOf(worker->id) == nullptr;
        return worker->free_for(job->config()) || reserved || IsLeaving(*worker);
      }));
  if (worker_num > present + free) {
    return Refuse(*job,
                  absl::StrCat("it needs ", Workers(worker_num - present), " more, but ", free,
                               free == 1 ? " is" : " are",
                               " free; start more workers, or give at most ", present + free));
  }
  Plan plan = found == plans_.end() ? Plan() : found->second;
  plan.worker_num = worker_num == present ? 0 : worker_num;
  // A checkpoint that was asked for already serves the newer request as well.
  if (plan.checkpoint == 0) SLUICE_RETURN_IF_ERROR(Ask(job, now, &plan));
  parts_.attempts->GiveBack(job);
  if (plan.worker_num == 0 && Drained(*job).empty()) {
    plans_.erase(job);
  } else {
    plans_[job] = plan;
    // Now, so that no queued job takes them while the checkpoint is made.
    parts_.attempts->Reserve(job, worker_num);
  }
  parts_.effects->StatusChanged(job);
  return absl::OkStatus();
}

bool AttemptPlans::IsLeaving(const Member& worker) const {
  if (!worker.alive || !worker.polled || worker.free()) return false;
  const Job* const job = worker.job_id.empty() ? nullptr : parts_.jobs->Find(worker.job_id);
  return job == nullptr || job->over();
}

absl::Status AttemptPlans::Ask(Job* job, absl::Time now, Plan* plan) {
  SLUICE_ASSIGN_OR_RETURN(const CheckpointJobReply reply,
                          parts_.checkpoints->Demand(job, /*number=*/0, now));
  plan->checkpoint = reply.number();
  return absl::OkStatus();
}

void AttemptPlans::Drain(Job* job, absl::Time now) {
  if (parts_.members->draining().empty()) return;
  if (plans_.count(job) > 0 || stays_.count(job) > 0 || job->over() || job->finishing()) return;
  if (job->state() != JOB_RUNNING || !job->complete() || !job->checkpoints()) return;
  if (!UsesDraining(*job, *parts_.members) || parts_.members->UsablePservers().empty()) return;
  Plan plan;
  // A job that has trained its last step leaves its pservers when it is over.
  if (Ask(job, now, &plan).ok()) plans_[job] = plan;
}

void AttemptPlans::DrainAgain(Job* job) {
  const auto found = stays_.find(job);
  if (found == stays_.end() || !found->second.told) return;
  stays_.erase(found);
  job->pservers.SetKept(false);
}

const std::string* AttemptPlans::WhyStays(const Job* job) const {
  const auto found = stays_.find(job);
  return found == stays_.end() ? nullptr : &found->second.why;
}

void AttemptPlans::ToldWhyStays(const Job* job) {
  if (const auto found = stays_.find(job); found != stays_.end()) found->second.told = true;
}

void AttemptPlans::CancelDrain(Job* job) {
  if (!Drained(*job).empty()) return;
  stays_.erase(job);
  job->pservers.SetKept(false);
  const auto found = plans_.find(job);
  if (found == plans_.end() || found->second.worker_num != 0) return;
  plans_.erase(found);
}

std::string AttemptPlans::Drained(const Job& job) const {
  std::vector<std::string> ranks;
  for (const uint32_t rank : job.pservers.ranks()) {
    if (parts_.members->draining().count(rank) > 0) ranks.push_back(absl::StrCat("pserver ", rank));
  }
  return absl::StrJoin(ranks, " and ");
}

std::string AttemptPlans::Describe(const Job& job, const Plan& plan, const std::string& drained) {
  std::vector<std::string> what;
  if (plan.worker_num != 0) {
    what.push_back(
        absl::StrCat("scaled from ", job.spec().worker_num(), " to ", Workers(plan.worker_num)));
  }
  if (!drained.empty()) what.push_back(absl::StrCat("moved away from ", drained));
  return absl::StrJoin(what, " and ");
}

std::optional<AttemptPlans::Due> AttemptPlans::Take(Job* job, absl::Time now) {
  const auto found = plans_.find(job);
  if (found == plans_.end() || job->over() || !job->checkpoints()) return std::nullopt;
  found->second.checkpoint = job->checkpoints()->Followed(found->second.checkpoint);
  const Plan plan = found->second;
  const auto end = [&] {
    Drop(job, "it has trained its last step");
    stays_.erase(job);  // it leaves its pservers when it is over
    return std::nullopt;
  };
  if (job->checkpoints()->over() < plan.checkpoint) {
    // Its workers would wait for nothing.
    if (!job->checkpoints()->can_begin() && !job->checkpoints()->open()) return end();
    return std::nullopt;
  }
  const JobCheckpoints::Outcome* const outcome = job->checkpoints()->OutcomeOf(plan.checkpoint);
  if (outcome == nullptr || !outcome->error.empty()) {
    Drop(job, "its checkpoint failed",
         outcome == nullptr ? "its outcome is not known" : outcome->error);
    return std::nullopt;
  }
  // The rest of the job is shorter than another attempt.
  if (job->finishing()) return end();
  // The draining may have been cancelled, or every other pserver may be gone, since the job was
  // asked.
  const bool moves = !job->pservers.kept() && !parts_.members->UsablePservers().empty();
  const std::string drained = moves ? Drained(*job) : "";
  const uint32_t workers = plan.worker_num == 0 ? job->spec().worker_num() : plan.worker_num;
  const uint32_t has = parts_.attempts->Reserve(job, workers);
  if (has < workers) {
    const std::vector<Member*> all = parts_.members->Alive(ROLE_WORKER);
    const auto leaving = std::count_if(all.begin(), all.end(),
                                       [&](const Member* worker) { return IsLeaving(*worker); });
    // They leave within a lease.
    if (has + static_cast<uint32_t>(leaving) >= workers) return std::nullopt;
    Drop(job, absl::StrCat("only ", Workers(has), " of ", workers,
                           " are available; start more workers and ask again"));
    return std::nullopt;
  }
  plans_.erase(job);
  if (plan.worker_num == 0 && drained.empty()) return std::nullopt;  // the drain was cancelled
  Due due = {workers, Describe(*job, plan, drained)};
  const bool resets_geo = plan.worker_num != 0 && ModeOf(job->config().strategy()) == Mode::kGeo;
  // Kept until the attempt runs. Its members may fail to come, and those of the attempt before are
  // still there.
  former_[job] = {job->spec().worker_num(), job->pservers.ranks(), due.what, resets_geo};
  return due;
}

void AttemptPlans::Began(Job* job) {
  CancelDrain(job);
  const auto found = former_.find(job);
  if (found == former_.end()) return;
  if (found->second.resets_geo) {
    job->AddWarning(absl::StrCat("the job was ", found->second.what,
                                 ": in Geo, optimizer state belongs to the workers, so it starts "
                                 "at zero"));
    parts_.effects->records()->Changed(*job);
  }
  former_.erase(found);
}

std::optional<std::string> AttemptPlans::GoBack(Job* job, const std::string& why) {
  const auto found = former_.find(job);
  if (found == former_.end()) return std::nullopt;
  const Former former = std::move(found->second);
  former_.erase(found);
  // The next attempt is that of the former members, from the same checkpoint: nothing is lost.
  job->attempt.SetWorkerNum(former.worker_num);
  job->pservers.Choose(former.pserver_ranks);
  const std::string drained = Drained(*job);
  std::string warning = absl::StrCat(
      "the job was not ", former.what, ", and continues with ", Workers(former.worker_num),
      drained.empty() ? "" : absl::StrCat(" and with ", drained, ", which is draining"), ": ", why);
  if (!drained.empty()) {
    job->pservers.SetKept(true);
    stays_[job] = {why};
  }
  job->AddWarning(warning);
  parts_.effects->records()->Changed(*job);
  parts_.effects->StatusChanged(job);
  return warning;
}

bool AttemptPlans::CanGoBack(const Job& job) const {
  const auto found = former_.find(&job);
  if (found == former_.end()) return false;
  for (const uint32_t rank : found->second.pserver_ranks) {
    const Member* const pserver = parts_.members->At(ROLE_PSERVER, rank);
    // Without its former pservers the job would only wait once more.
    if (pserver == nullptr || !pserver->alive) return false;
  }
  return parts_.attempts->Count(job) >= found->second.worker_num;
}

bool AttemptPlans::MayGoBackTo(const Job& job, uint32_t pserver) const {
  const auto found = former_.find(&job);
  if (found == former_.end()) return false;
  const std::vector<uint32_t>& ranks = found->second.pserver_ranks;
  return std::count(ranks.begin(), ranks.end(), pserver) > 0;
}

void AttemptPlans::Drop(Job* job, const std::string& why, const std::string& detail) {
  const auto found = plans_.find(job);
  if (found == plans_.end()) return;
  const Plan plan = found->second;
  plans_.erase(found);
  const std::string drained = Drained(*job);
  // The operator who drains the pserver asks why it is still used. The reason is kept for that.
  if (!drained.empty()) stays_[job] = {detail.empty() ? why : absl::StrCat(why, ": ", detail)};
  const std::string what = Describe(*job, plan, drained);
  if (!what.empty())
    job->AddWarning(absl::StrCat("the job was not ", what, ", and continues as it was: ", why));
  parts_.attempts->GiveBack(job);
  parts_.effects->records()->Changed(*job);
  parts_.effects->StatusChanged(job);
}

void AttemptPlans::Forget(const Job* job) {
  plans_.erase(job);
  former_.erase(job);
  stays_.erase(job);
}

}  // namespace sluice
