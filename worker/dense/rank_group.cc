#include "worker/dense/rank_group.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/transport/retry.h"

namespace sluice {
namespace {

// How often a wait looks at the clock.
constexpr std::chrono::milliseconds kGroupLook(50);

absl::Status Cancelled() { return absl::CancelledError("the job was cancelled"); }

// The loss of another rank, or the end of the group for a newer one, may be the reason.
bool MayBeALoss(const absl::Status& error) {
  return MayGoWellInNextAttempt(error.code()) || absl::IsCancelled(error);
}

}  // namespace

RankGroup::RankGroup(std::unique_ptr<Collective> collective, Options options)
    : options_(std::move(options)),
      collective_(std::move(collective)),
      wanted_(options_.generation) {
  report_.set_job_id(options_.job_id);
  report_.set_rank(options_.rank);
  report_.set_incarnation(options_.incarnation);
  report_.set_holds_tables(options_.holds_tables);
}

void RankGroup::Ask(uint64_t generation, const RankGroupCards& cards) {
  MutexLock lock(&mutex_);
  const bool newer = generation > wanted_;
  if (newer) {
    wanted_ = generation;
    // A lost rank that only hangs would not end the operations of the others.
    if (listened_ > 0) collective_->Cancel();
  }
  // The scheduler repeats the cards until all ranks have met. Those that have need them no more.
  const bool meets = cards.generation() == wanted_ && joined_ != wanted_;
  if (meets) cards_ = cards;
  if (!newer && !meets) return;
  asked_ = true;
  changed_.NotifyAll();
}

void RankGroup::AddTo(PollRequest* report) const {
  MutexLock lock(&mutex_);
  *report->mutable_group() = report_;
}

void RankGroup::Cancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  collective_->Cancel();
  changed_.NotifyAll();
}

void RankGroup::EndAfter(uint64_t steps) {
  MutexLock lock(&mutex_);
  last_step_ = std::min(last_step_, steps);
  if (runs_for_ > last_step_) collective_->Cancel();
  // A rank may also wait for pservers to close the step.
  asked_ = true;
  changed_.NotifyAll();
}

bool RankGroup::NeverCloses(uint64_t step) const {
  MutexLock lock(&mutex_);
  return step > last_step_;
}

absl::Status RankGroup::RunFor(uint64_t step, absl::FunctionRef<absl::Status()> operation) {
  {
    MutexLock lock(&mutex_);
    runs_for_ = step;
    if (step > last_step_) collective_->Cancel();
  }
  const absl::Status done = operation();
  MutexLock lock(&mutex_);
  // Whatever follows, such as a meeting, is not about the step.
  runs_for_ = 0;
  return done;
}

std::string RankGroup::WaitingFor() const {
  {
    MutexLock lock(&mutex_);
    if (waiting_) return "waiting to meet the other workers, which keep the dense tables";
  }
  return collective_->WaitingFor();
}

void RankGroup::Report(absl::FunctionRef<void(RankGroupReport*)> change) {
  {
    MutexLock lock(&mutex_);
    change(&report_);
  }
  // The other ranks wait for this report.
  if (options_.report_soon) options_.report_soon();
}

absl::Status RankGroup::Attend(Agree agree, Told told) { return Advance(agree, told).status(); }

absl::StatusOr<bool> RankGroup::Advance(Agree agree, Told told) {
  SLUICE_RETURN_IF_ERROR(Listen());
  RankGroupCards cards;
  {
    MutexLock lock(&mutex_);
    // Cards of another generation would lead to ranks that have left.
    if (joined_ == listened_ || cards_.generation() != listened_) return false;
    cards = std::exchange(cards_, RankGroupCards());
  }
  // Without cards the job continues without the lost rank, and there is no meeting. The scheduler
  // only tells how many steps have closed.
  if (cards.cards().empty()) return told(cards.closed_steps());
  const absl::Status joined = Join(cards, agree);
  if (joined.ok()) return false;
  // ABORTED: the ranks have agreed that they cannot continue in place, and Join has told the
  // scheduler.
  if (absl::IsAborted(joined) || !MayBeALoss(joined)) return joined;
  // Another rank may have been lost during the meeting: the ranks meet again in the next
  // generation.
  SLUICE_RETURN_IF_ERROR(AwaitGeneration(cards.generation(), joined, /*step=*/0));
  asked_ = true;
  return false;
}

uint64_t RankGroup::Joined() const {
  MutexLock lock(&mutex_);
  return joined_;
}

bool RankGroup::Left() const {
  MutexLock lock(&mutex_);
  return joined_ != listened_;
}

absl::Status RankGroup::Listen() {
  bool news = false;
  {
    MutexLock lock(&mutex_);
    // Cleared before the state is read: what comes from here on sets it again.
    asked_ = false;
    if (cancelled_) return Cancelled();
    if (wanted_ > listened_) {
      listened_ = wanted_;
      SLUICE_ASSIGN_OR_RETURN(std::string card,
                              collective_->Listen(wanted_, options_.rank, options_.ranks));
      report_.set_generation(wanted_);
      report_.set_card(std::move(card));
      if (options_.add_standing) options_.add_standing(&report_);
      news = true;
    }
  }
  if (news && options_.report_soon) options_.report_soon();
  return absl::OkStatus();
}

absl::Status RankGroup::Join(const RankGroupCards& cards, Agree agree) {
  SLUICE_RETURN_IF_ERROR(collective_->Join(
      cards.generation(), {cards.cards().begin(), cards.cards().end()}, options_.rank));
  const absl::Status agreed = agree(*collective_, cards.closed_steps());
  if (absl::IsAborted(agreed)) GiveUp(std::string(agreed.message()));
  SLUICE_RETURN_IF_ERROR(agreed);
  {
    MutexLock lock(&mutex_);
    joined_ = cards.generation();
  }
  Report([](RankGroupReport* report) {
    // The card served this meeting only. The tables of this rank can serve the next one.
    report->clear_card();
    report->clear_totals();
    report->set_holds_tables(true);
  });
  if (options_.log) {
    options_.log(absl::StrCat("dense gradients are exchanged through ", collective_->name(),
                              " between ", options_.ranks, " workers"));
  }
  return absl::OkStatus();
}

void RankGroup::GiveUp(const std::string& why) {
  Report([&why](RankGroupReport* report) { report->set_error(why); });
}

absl::Status RankGroup::Await(const absl::Status& why, uint64_t step, Agree agree, Told told) {
  const uint64_t ended = Joined();
  // Outside of a group, every operation fails in this way.
  const bool left = absl::IsFailedPrecondition(why) && Left();
  if (!why.ok() && !left) {
    if (!MayBeALoss(why)) return why;
    if (options_.log) options_.log(absl::StrCat("meets the other workers again: ", why.message()));
    SLUICE_RETURN_IF_ERROR(AwaitGeneration(ended, why, step));
  }
  for (;;) {
    SLUICE_ASSIGN_OR_RETURN(const bool news, Advance(agree, told));
    MutexLock lock(&mutex_);
    if (news || joined_ > ended) return absl::OkStatus();
    waiting_ = true;
    while (!asked_ && !cancelled_) changed_.Wait(&mutex_);
    waiting_ = false;
  }
}

absl::Status RankGroup::AwaitGeneration(uint64_t generation, const absl::Status& why,
                                        uint64_t step) {
  const absl::Time begin = options_.clock->Now();
  {
    MutexLock lock(&mutex_);
    waiting_ = true;
    // With or after the last step, other ranks may have left the group because training has ended.
    const auto ended = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return step > 0 && step >= last_step_;
    };
    while (wanted_ <= generation && !cancelled_ && !ended() &&
           options_.clock->Now() - begin < options_.patience) {
      changed_.WaitFor(&mutex_, kGroupLook);
    }
    waiting_ = false;
    if (cancelled_) return Cancelled();
    if (wanted_ > generation) return absl::OkStatus();
    if (ended()) return why;
  }
  // A lost worker would have brought a new generation by now. So all workers live, and what failed
  // is the way between them.
  GiveUp(absl::StrCat(why.message(),
                      "; the scheduler knows of no lost worker: check the network between the "
                      "hosts of the workers"));
  return why;
}

}  // namespace sluice
