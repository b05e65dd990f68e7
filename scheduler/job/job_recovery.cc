#include "scheduler/job/job_recovery.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduler/job/job.h"

namespace sluice {
namespace {

// Names the pservers, workers and files that the job's next attempt still lacks.
std::vector<std::string> Missing(const Job& job, const Membership& members) {
  std::vector<std::string> missing;
  for (const uint32_t rank : job.pservers.ranks()) {
    const Member* member = members.At(ROLE_PSERVER, rank);
    if (member != nullptr && member->alive) continue;
    missing.push_back(absl::StrCat("pserver ", rank, " to register"));
  }
  uint32_t workers = 0;
  for (const Member* worker : members.Alive(ROLE_WORKER)) {
    // Free workers do not count yet: the caller reserves them first.
    if (worker->job_id != job.id()) continue;
    ++workers;
    const RankSlot* const slot = job.ranks.SlotOf(worker->id);
    if (slot != nullptr && !slot->released())
      missing.push_back(absl::StrCat(DescribeMember(*worker), " to stop"));
  }
  if (const uint32_t wanted = job.spec().worker_num(); workers < wanted) {
    missing.push_back(absl::StrCat(wanted - workers, wanted - workers == 1 ? " worker" : " workers",
                                   " to register or to be free"));
  }
  if (job.checkpoints() && job.checkpoints()->committing())
    // It may become the newest one, from which the next attempt begins.
    missing.push_back("the manifest of a checkpoint to be written");
  return missing;
}

}  // namespace

void JobRecovery::Restore(const Recovery& counts, absl::Time now) {
  counts_ = counts;
  counts_.set_scheduler_restarts(counts_.scheduler_restarts() + 1);
  lost_ = "the scheduler was started again";
  AddEvent(lost_);
  counts_.set_last(lost_);
  since_ = now;
}

void JobRecovery::NoteCause(const std::string& cause, absl::Time now) {
  planned_.clear();
  lost_ = cause;
  since_ = now;
  NoteLast(cause, cause);
}

void JobRecovery::CountLoss(const Member& lost, absl::Time now, bool waits_anew) {
  if (lost.self.role() == ROLE_PSERVER) {
    counts_.set_pserver_losses(counts_.pserver_losses() + 1);
  } else {
    counts_.set_worker_losses(counts_.worker_losses() + 1);
  }
  const auto old = std::remove_if(losses_at_.begin(), losses_at_.end(),
                                  [now](absl::Time at) { return now - at >= kLossWindow; });
  losses_at_.erase(old, losses_at_.end());
  losses_at_.push_back(now);
  lost_ = absl::StrCat(DescribeMember(lost), ": ", lost.why_gone);
  AddEvent(lost_);  // also when a process was lost in the same words before
  counts_.set_last(lost_);
  if (waits_anew) since_ = now;
}

uint64_t JobRecovery::RecentLosses(absl::Time now) const {
  return std::count_if(losses_at_.begin(), losses_at_.end(),
                       [now](absl::Time at) { return now - at < kLossWindow; });
}

void JobRecovery::NoteReached(uint64_t steps, uint64_t examples) {
  // After a restart of the scheduler, members may report less than its records say.
  steps_reached_ = std::max(steps_reached_, steps);
  examples_reached_ = std::max(examples_reached_, examples);
}

void JobRecovery::Plan(const std::string& what, absl::Time now) {
  NoteCause(absl::StrCat("the job is ", what), now);
  planned_ = what;
}

void JobRecovery::CountShrink(uint32_t ranks) { counts_.set_shrinks(counts_.shrinks() + ranks); }

void JobRecovery::BeginAttempt(uint64_t steps, uint64_t examples, const std::string& dir) {
  // In place, steps that were reached and are not done had only been computed.
  if (in_place_) steps_reached_ = examples_reached_ = 0;
  const uint64_t back = steps_reached_ - std::min(steps, steps_reached_);
  const uint64_t again = examples_reached_ - std::min(examples, examples_reached_);
  if (!planned_.empty()) {
    counts_.set_scalings(counts_.scalings() + 1);
    // A member that was lost while the job waited is also named.
    const bool lost = lost_ != absl::StrCat("the job is ", planned_);
    NoteLast(lost_, absl::StrCat(lost ? absl::StrCat(lost_, "; ") : "", planned_, " at ",
                                 dir.empty() ? "its beginning" : dir));
  } else if (in_place_) {
    Describe(absl::StrCat("the job continued after step ", steps));
  } else {
    counts_.set_rollbacks(counts_.rollbacks() + 1);
    Describe(dir.empty() ? "the job restarted from the beginning"
                         : absl::StrCat("the job went back to ", dir));
  }
  planned_.clear();
  in_place_ = false;
  counts_.set_steps_rolled_back(counts_.steps_rolled_back() + back);
  counts_.set_examples_replayed(counts_.examples_replayed() + again);
  counts_.clear_updates_lost();
  updates_lost_.clear();
  steps_reached_ = examples_reached_ = 0;
}

bool JobRecovery::NoteLost(uint32_t index, uint64_t updates) {
  if (updates_lost_.size() <= index) updates_lost_.resize(index + 1);
  // Reports can overtake each other, and a successor counts anew until every rank has told it.
  if (updates <= updates_lost_[index]) return false;
  updates_lost_[index] = updates;
  counts_.set_updates_lost(
      std::accumulate(updates_lost_.begin(), updates_lost_.end(), uint64_t{0}));
  return true;
}

void JobRecovery::CountReplayed(uint64_t examples) {
  counts_.set_examples_replayed(counts_.examples_replayed() + examples);
}

void JobRecovery::Describe(const std::string& lost, const std::string& outcome) {
  NoteLast(lost, absl::StrCat(lost, "; ", outcome));
}

void JobRecovery::AddEvent(const std::string& text) {
  auto* const events = counts_.mutable_events();
  if (events->size() >= kMostEvents) events->DeleteSubrange(0, 1);
  RecoveryEvent* const event = events->Add();
  event->set_step(steps_reached_);
  event->set_text(text);
}

void JobRecovery::NoteLast(const std::string& subject, const std::string& text) {
  counts_.set_last(text);
  auto* const events = counts_.mutable_events();
  // What becomes of a loss is known later, when others may have followed it.
  const auto of_subject =
      std::find_if(events->rbegin(), events->rend(), [&](const RecoveryEvent& event) {
        return event.text() == subject || absl::StartsWith(event.text(), subject + "; ");
      });
  if (of_subject == events->rend()) return AddEvent(text);
  of_subject->set_text(text);
}

std::vector<Scalar> JobRecovery::Points(uint64_t epoch, uint64_t replayed) const {
  // No flat lines at 0 for the many jobs that lose nothing.
  if (losses() == 0 && counts_.rollbacks() == 0 && counts_.scalings() == 0 &&
      counts_.scheduler_restarts() == 0 && replayed == 0) {
    return {};
  }
  const auto point = [epoch](const char* name, uint64_t count) {
    return Scalar{absl::StrCat("recovery/", name), epoch, static_cast<double>(count)};
  };
  return {point("worker_losses", counts_.worker_losses()),
          point("pserver_losses", counts_.pserver_losses()),
          point("scheduler_restarts", counts_.scheduler_restarts()),
          point("rollbacks", counts_.rollbacks()),
          point("steps_rolled_back", counts_.steps_rolled_back()),
          point("shrinks", counts_.shrinks()),
          point("scalings", counts_.scalings()),
          point("examples_replayed", counts_.examples_replayed() + replayed),
          point("updates_lost", counts_.updates_lost())};
}

JobRecovery::Decision JobRecovery::Decide(const Job& job, const Membership& members,
                                          const PauseDetector& pauses, absl::Duration wait,
                                          absl::Time now) const {
  const std::vector<std::string> missing = Missing(job, members);
  Decision decision;
  if (missing.empty()) {
    decision.kind = Decision::kBegin;
    return decision;
  }
  const std::string waits = absl::StrCat("waits for ", absl::StrJoin(missing, ", "));
  if (pauses.Since(since_, now) < wait) {
    decision.message = absl::StrCat(lost_, "; ", waits);
    return decision;
  }
  decision.kind = Decision::kFail;
  decision.message = absl::StrCat(lost_, "; gave up after ", absl::FormatDuration(wait),
                                  " (recovery.wait_s): ", waits);
  return decision;
}

}  // namespace sluice
