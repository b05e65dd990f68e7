#include "scheduler/recovery/member_loss.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/config/mode.h"
#include "scheduler/recovery/shard_takeover.h"

namespace sluice {

uint64_t MaxLosses(const JobConfig& config) {
  return config.recovery().has_max_losses() ? config.recovery().max_losses() : kDefaultMaxLosses;
}

bool ShrinksOnLoss(const Job& job) {
  return ModeOf(job.config().strategy()) == Mode::kSync &&
         job.config().strategy().sync_configs().on_worker_loss() == SyncConfigs::SHRINK &&
         job.spec().worker_num() > job.ranks.left_out() + 1;
}

bool WorkersKeepTables(const Job& job) {
  // Not the configuration: with sync_configs.dense: COLLECTIVE, a model may have no dense table.
  const auto& tables = job.spec().tables();
  return !job.config().evaluate_only() &&
         std::any_of(tables.begin(), tables.end(), [](const TableConfig& table) {
           return table.update_at() == TableConfig::COLLECTIVE;
         });
}

bool RanksCloseSteps(const Job& job) { return RanksCloseSteps(job, job.spec().route()); }

bool RanksCloseSteps(const Job& job, const Route& route) {
  const auto& tables = route.tables();
  return WorkersKeepTables(job) &&
         std::all_of(tables.begin(), tables.end(),
                     [](const TableRoute& table) { return table.owner().empty(); });
}

bool OthersHoldTables(const Job& job, const Member& lost) {
  for (uint32_t rank = 0; rank < job.ranks.slots().size(); ++rank) {
    const RankSlot& slot = job.ranks.slots()[rank];
    if (slot.member_id() == lost.id || job.ranks.is_vacant(rank)) continue;
    // Every first life has loaded the tables itself.
    if (!slot.rejoins() || job.ranks.cards().Holds(rank, slot.incarnation())) return true;
  }
  return false;
}

bool TakenForVacantRank(const Job& job, const Member& worker) {
  const std::optional<uint32_t> rank = job.ranks.RankOf(worker.id);
  return rank && job.ranks.is_vacant(*rank);
}

bool ReservedForAttempt(const Job& job, const Member& worker) {
  return job.awaits_members() && worker.self.role() == ROLE_WORKER && !job.ranks.RankOf(worker.id);
}

LossDecision DecideMemberLoss(const Job& job, const Member& lost, absl::Time now, bool spare) {
  LossDecision decision;
  // Once all phases are done, the model is saved and only the last reports are missing.
  if (job.over() || job.finishing()) return decision;
  decision.message = absl::StrCat(DescribeMember(lost), " of job ", job.id(), ": ", lost.why_gone);
  const uint64_t most = MaxLosses(job.config());
  // A worker that was only taken for a vacant rank had nothing to lose.
  const bool counts = !TakenForVacantRank(job, lost);
  if (!counts || job.recovery.RecentLosses(now) < most) {
    decision.kind = LossDecision::kRollback;
    if (lost.self.role() == ROLE_PSERVER) {
      if (CanTakeOverShards(job) && !lost.draining) decision.kind = LossDecision::kTakeOver;
    } else if (ReservedForAttempt(job, lost)) {
      // The job waits on, for another one.
      decision.kind = LossDecision::kRollback;
    } else if (counts && ShrinksOnLoss(job) && !lost.left && !spare) {
      decision.kind = LossDecision::kShrink;
    } else if (!job.awaits_members() && (job.pservers.vacant().empty() || !counts) &&
               (!WorkersKeepTables(job) || OthersHoldTables(job, lost))) {
      decision.kind = LossDecision::kReplaceRank;
    }
    return decision;
  }
  decision.kind = LossDecision::kFails;
  if (most == 0) return decision;
  absl::StrAppend(&decision.message, "; the job has survived ", most,
                  " losses within 24 hours (recovery.max_losses)");
  return decision;
}

}  // namespace sluice
