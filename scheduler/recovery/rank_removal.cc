#include "scheduler/recovery/rank_removal.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "scheduler/recovery/member_loss.h"

namespace sluice {

absl::Status RankRemoval::CanBegin(const Job& job) {
  if (job.state() != JOB_RUNNING || !job.run())
    return absl::FailedPreconditionError("it did not run at that moment");
  const Phase::Kind kind = job.run()->phases().current().kind();
  // In INDEX nothing is trained that could be kept, and in SAVE the ranks write parts of one model.
  if (kind != Phase::TRAIN && kind != Phase::EVAL) {
    return absl::FailedPreconditionError(absl::StrCat("it was in phase ", PhaseName(kind)));
  }
  if (!job.checkpoints()) return absl::FailedPreconditionError("it can make no checkpoint now");
  if (!job.pservers.vacant().empty()) return absl::FailedPreconditionError("it lacks a pserver");
  return absl::OkStatus();
}

void RankRemoval::Lose(Job* job, uint32_t rank, bool leave_out, const std::string& why,
                       absl::Time now) {
  Removal& removal = job->ranks.BeginRemoval();
  removal.since = now;
  if (leave_out) removal.ranks.insert(rank);
  // The last step may be another one now.
  removal.checkpoint = removal.step = 0;
  removal.commits.clear();
  job->recovery.Describe(why, absl::StrCat("the job prepares to continue without rank ",
                                           absl::StrJoin(removal.ranks, ", ")));
  // First, so that nothing is asked for in place of what is given up.
  parts_.checkpoints->Hold(job, now);
  parts_.checkpoints->RankLost(job, rank, now);
  // The next scheduler must not wait for ranks that are about to be left out.
  parts_.effects->records()->Changed(*job);
  parts_.effects->StatusChanged(job);
}

absl::StatusOr<bool> RankRemoval::Advance(Job* job, absl::Time now) {
  Removal& removal = *job->ranks.removal();
  JobCheckpoints& checkpoints = *job->checkpoints();
  if (removal.checkpoint != 0) {
    // A checkpoint that fails because of leftovers of an earlier one is tried again under another
    // number.
    removal.checkpoint = checkpoints.Followed(removal.checkpoint);
    if (checkpoints.over() < removal.checkpoint) return false;
    const JobCheckpoints::Outcome* const outcome = checkpoints.OutcomeOf(removal.checkpoint);
    if (outcome != nullptr && outcome->error.empty()) return true;
    return absl::AbortedError(outcome == nullptr
                                  ? "the outcome of its checkpoint is not known"
                                  : absl::StrCat("its checkpoint failed: ", outcome->error));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::optional<End> end, FindEnd(*job));
  if (!end) {
    const RecoveryConfig& recovery = job->spec().config().recovery();
    const absl::Duration wait = recovery.has_wait_s() ? absl::Seconds(recovery.wait_s()) : wait_;
    if (parts_.pauses->Since(removal.since, now) < wait) return false;
    return absl::DeadlineExceededError(
        absl::StrCat(LastWithMeans(*job) ? "the pservers did not report what they hold of the lost "
                                           "rank within "
                                         : "the other workers did not report their steps within ",
                     absl::FormatDuration(wait), " (see their logs)"));
  }
  return Cut(job, *end, now);
}

absl::StatusOr<std::optional<RankRemoval::End>> RankRemoval::FindEnd(const Job& job) const {
  if (RanksCloseSteps(job)) return EndAmongRanks(job);
  const std::optional<std::vector<HeldOfRank>> held = HeldByPservers(job, *parts_.members);
  const std::optional<uint64_t> last = LastWithMeans(job);
  // Some report is still missing. Advance is called again with the next one.
  if (!held || !last) return std::nullopt;
  SLUICE_ASSIGN_OR_RETURN(End end, EndOf(job, *held, *last));
  return std::make_optional(std::move(end));
}

std::optional<uint64_t> RankRemoval::LastWithMeans(const Job& job) {
  uint64_t last = UINT64_MAX;
  if (!WorkersKeepTables(job)) return last;
  for (uint32_t rank = 0; rank < job.ranks.slots().size(); ++rank) {
    if (job.ranks.is_vacant(rank)) continue;
    const RankGroupReport* const report =
        job.ranks.cards().ReportOf(rank, job.ranks.slots()[rank], job.spec().route().generation());
    if (report == nullptr) return std::nullopt;
    // A life that has not met the others knows nothing of the steps.
    if (report->holds_tables())
      last = std::min<uint64_t>(last, report->closed_steps() + report->has_means());
  }
  return last;
}

absl::StatusOr<std::optional<RankRemoval::End>> RankRemoval::EndAmongRanks(const Job& job) {
  const uint64_t generation = job.spec().route().generation();
  End end;
  end.step = job.run()->closed_steps();
  const RankGroupReport* ahead = nullptr;
  for (uint32_t rank = 0; rank < job.ranks.slots().size(); ++rank) {
    if (job.ranks.is_vacant(rank)) continue;
    const RankGroupReport* const report =
        job.ranks.cards().ReportOf(rank, job.ranks.slots()[rank], generation);
    if (report == nullptr) return std::nullopt;
    // A rank that was told of the step does not know the sums of the others.
    if (ahead == nullptr || report->closed_steps() > ahead->closed_steps() ||
        (report->closed_steps() == ahead->closed_steps() &&
         report->totals_size() > ahead->totals_size())) {
      ahead = report;
    }
  }
  if (ahead != nullptr) end.step = std::max<uint64_t>(end.step, ahead->closed_steps());
  if (end.step == job.run()->began_after()) return std::make_optional(std::move(end));
  // The figure comes from a worker. A step beyond the epoch would ask for a checkpoint that nobody
  // can make.
  if (end.step > job.run()->step_limit()) {
    return absl::InvalidArgumentError(absl::StrCat("a worker has closed ", end.step,
                                                   " steps, but the epoch ends after step ",
                                                   job.run()->step_limit()));
  }
  for (const auto& [rank, vacancy] : job.ranks.vacant()) {
    if (ahead == nullptr || ahead->closed_steps() != end.step ||
        ahead->totals_size() <= static_cast<int>(rank)) {
      return absl::FailedPreconditionError(
          absl::StrCat("no other worker knows the sums of rank ", rank, " after step ", end.step));
    }
    end.totals[rank] = ahead->totals(static_cast<int>(rank));
  }
  return std::make_optional(std::move(end));
}

void RankRemoval::TellRanks(Job* job, const End& end) {
  if (!RanksCloseSteps(*job) || job->ranks.removal()->step == end.step) return;
  job->ranks.removal()->step = end.step;
  for (const RankSlot& slot : job->ranks.slots()) {
    if (Member* member = parts_.members->ById(slot.member_id()))
      parts_.effects->DesiredChanged(member);
  }
}

absl::StatusOr<RankRemoval::End> RankRemoval::EndOf(const Job& job,
                                                    const std::vector<HeldOfRank>& held,
                                                    uint64_t last) {
  End end;
  end.step = last;
  for (const auto& [rank, vacancy] : job.ranks.vacant())
    end.step = std::min<uint64_t>(end.step, held[rank].committed.committed());
  // The rank may have committed the step after the last one, which never closes.
  if (job.run()->ends_early()) end.step = std::min(end.step, job.run()->step_limit());
  if (end.step < job.run()->least_step() || end.step > job.run()->step_limit()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "step ", end.step, " is reported as the last one that can close, but the job is between ",
        "steps ", job.run()->least_step(), " and ", job.run()->step_limit()));
  }
  for (const auto& [rank, vacancy] : job.ranks.vacant()) {
    const RankPosition& committed = held[rank].committed;
    // No step closes without a lost rank, so it cannot be two ahead.
    if (committed.committed() > end.step + 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("step ", end.step, " is reported as the last one that can close, but rank ",
                       rank, " has committed step ", committed.committed()));
    }
    end.totals[rank] =
        // A rank that is one step ahead reports the sums of both.
        committed.committed() == end.step ? committed.totals() : committed.totals_before();
  }
  return end;
}

absl::StatusOr<bool> RankRemoval::Cut(Job* job, const End& end, absl::Time now) {
  JobCheckpoints& checkpoints = *job->checkpoints();
  // The attempt has applied nothing.
  if (end.step == job->run()->began_after()) return true;
  OrderCommits(job, end);
  TellRanks(job, end);
  // Reports of a cut that had begun before the fence may be under way.
  for (const auto& [rank, vacancy] : job->ranks.vacant())
    parts_.checkpoints->RankLost(job, rank, now);
  // One that needs nothing more from the lost ranks. It may be the one that the job needs.
  if (checkpoints.open()) return false;
  const Manifest* const newest = checkpoints.newest_manifest();
  if (newest != nullptr && newest->global_step() == end.step) return true;
  if (job->run()->LoseSummary()) {
    job->AddWarning(absl::StrCat("the job continued without a rank that it had lost in the first ",
                                 "epoch: the counts of the data and of malformed lines leave out ",
                                 "what the lost worker had read"));
  }
  std::map<uint32_t, WorkerState> states;
  for (const auto& [rank, totals] : end.totals)
    states[rank] = job->run()->StateOfLost(rank, end.step, totals);
  job->ranks.removal()->checkpoint =
      parts_.checkpoints->CutAfterLoss(job, end.step, std::move(states), now);
  return false;
}

void RankRemoval::OrderCommits(Job* job, const End& end) {
  std::vector<LostCommit>& commits = job->ranks.removal()->commits;
  if (!commits.empty()) return;
  for (const auto& [rank, totals] : end.totals) {
    LostCommit& lost = commits.emplace_back();
    lost.set_rank(rank);
    lost.mutable_commit()->set_sequence(end.step);
    *lost.mutable_commit()->mutable_totals() = totals;
  }
  for (const uint64_t id : job->pservers.members()) {
    if (Member* member = parts_.members->ById(id)) parts_.effects->DesiredChanged(member);
  }
}

}  // namespace sluice
