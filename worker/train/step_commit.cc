#include "worker/train/step_commit.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/dense/rank_records.h"

namespace sluice {
bool StepCommit::IsAmongRanks(const JobContext& context) {
  const TableLayouts& tables = context.client->tables();
  const bool on_pservers = std::any_of(tables.begin(), tables.end(),
                                       [](const auto& table) { return table->num_shards() > 0; });
  return !on_pservers && context.meetings != nullptr;
}

std::unique_ptr<StepCommit> StepCommit::Create(const JobContext& context) {
  if (!IsAmongRanks(context)) return std::make_unique<PserverCommit>(context);
  const bool is_program = context.spec->config().model().has_program();
  return std::make_unique<CollectiveCommit>(context.meetings, context.stats,
                                            is_program ? context.net : nullptr);
}

void PserverCommit::StartPull(PullRequest first) {
  ticket_ = context_.client->StartPull(std::move(first));
}

absl::Status PserverCommit::Push(uint64_t step, PushRequest push) {
  return context_.client->PushStep(step, std::move(push));
}

absl::Status PserverCommit::Start(uint64_t step, PullRequest next, uint64_t checkpoint) {
  TrainTotals totals = context_.stats->Totals();
  SLUICE_ASSIGN_OR_RETURN(*totals.mutable_net_state(), context_.net->SaveState());
  ticket_ = context_.client->StartCommit(step, std::move(next), checkpoint, std::move(totals));
  return absl::OkStatus();
}

absl::Status PserverCommit::Wait() {
  if (context_.meetings == nullptr) return context_.client->WaitPull(ticket_);
  const std::atomic<bool> never{false};
  return *WaitUnless(never);
}

std::optional<absl::Status> PserverCommit::WaitUnless(const std::atomic<bool>& stop) {
  RankMeetings* const meetings = context_.meetings;
  if (meetings == nullptr) return context_.client->WaitPullUnless(ticket_, stop);
  for (;;) {
    // Set by EndAfter, too.
    const std::optional<absl::Status> pulled =
        context_.client->WaitPullUnless(ticket_, meetings->asked());
    if (pulled.has_value()) return *pulled;
    // The pull stays under way during the meeting; the loop waits for the same one.
    SLUICE_RETURN_IF_ERROR(meetings->Attend());
    if (stop) return std::nullopt;
  }
}

absl::Status CollectiveCommit::Start(uint64_t step, PullRequest, uint64_t checkpoint) {
  if (program_ != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(const std::string state, program_->SaveState());
    if (!state.empty()) {
      return absl::FailedPreconditionError(
          "worker.save_state: a program without embeddings whose workers keep its parameters "
          "(sync_configs.dense: COLLECTIVE) has no pserver that would keep the states of its "
          "steps, and a lost worker would lose its own; use dense: PSERVER, or keep the state in "
          "buffers of the module");
    }
  }
  started_ = Commit{step, checkpoint, stats_ == nullptr ? TrainTotals() : stats_->Totals()};
  return absl::OkStatus();
}

absl::StatusOr<ClosedStep> CollectiveCommit::Close(const Commit& own) {
  // Step, checkpoint, then the four numbers of the totals.
  RankRecord record = {own.step, own.checkpoint};
  PutTotals(own.totals, 2, &record);
  SLUICE_ASSIGN_OR_RETURN(
      const std::vector<RankRecord> records,
      GatherRecords(meetings_->collective(), meetings_->rank(), meetings_->ranks(), record));
  ClosedStep closed;
  closed.steps = own.step + 1;
  // All take the word of rank 0, so all cut after the same step.
  closed.checkpoint = records[0][1];
  for (uint32_t rank = 0; rank < records.size(); ++rank) {
    // Not a loss but a bug: the ranks would sum gradients of different steps.
    if (records[rank][0] != own.step) {
      return absl::InternalError(absl::StrCat("rank ", rank, " commits step ", records[rank][0],
                                              ", but this rank commits step ", own.step));
    }
    closed.totals.push_back(TotalsAt(records[rank], 2));
  }
  return closed;
}

absl::Status CollectiveCommit::Wait() {
  const std::atomic<bool> never{false};
  const std::optional<absl::Status> closed = WaitUnless(never);
  return closed.has_value() ? *closed : absl::CancelledError("training ends before this step");
}

std::optional<absl::Status> CollectiveCommit::WaitUnless(const std::atomic<bool>&) {
  if (!started_) return absl::OkStatus();  // the first step of an epoch follows no commit
  const Commit own = *started_;
  const uint64_t steps = own.step + 1;
  for (;;) {
    absl::StatusOr<ClosedStep> closed = absl::UnknownError("");
    const absl::Status gathered = meetings_->RunFor(steps, [&] {
      closed = Close(own);
      return closed.status();
    });
    if (gathered.ok()) {
      *meetings_->newest() = *std::move(closed);
      seen_ = meetings_->newest()->checkpoint;
      break;
    }
    const absl::Status met = meetings_->Recover(gathered, steps);
    if (meetings_->NeverCloses(steps)) return std::nullopt;
    // The last step of the job has closed, since a rank has told the scheduler so and left.
    const bool is_last = meetings_->NeverCloses(steps + 1);
    if (!is_last) {
      SLUICE_RETURN_IF_ERROR(met);
      // No rank knows that the step has closed, so all commit it again in the new group.
      if (meetings_->closed() <= own.step) continue;
    }
    const ClosedStep& newest = *meetings_->newest();
    // A rank may close the step without its records. Then nobody here knows of a checkpoint.
    seen_ = newest.steps == steps ? newest.checkpoint : 0;
    break;
  }
  started_.reset();
  return absl::OkStatus();
}

}  // namespace sluice
