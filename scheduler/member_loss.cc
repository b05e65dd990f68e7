#include "scheduler/member_loss.h"

#include "absl/strings/str_cat.h"

namespace sluice {

LossDecision DecideMemberLoss(const Job& job, const Member& lost) {
  LossDecision decision;
  // Once all phases are done, the model is saved and only the last reports are missing.
  if (job.over() || job.finishing()) return decision;
  decision.kind = LossDecision::kFails;
  decision.message =
      absl::StrCat(DescribeMember(lost), " of job ", job.job_id, ": ", lost.why_gone);
  return decision;
}

}  // namespace sluice
