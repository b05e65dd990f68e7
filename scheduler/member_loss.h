// Decides what becomes of a job when a member that serves it is lost.
//
// A job that still needs the member fails, because nothing replaces a rank or restores a pserver's
// tables. No other place says what a loss means. A new outcome becomes a new kind here, which
// JobLifecycle::MemberLost carries out.
//
// Thread safety: pure.
#pragma once

#include <string>

#include "scheduler/job.h"
#include "scheduler/membership.h"

namespace sluice {

struct LossDecision {
  enum Kind { kGoesOn, kFails };
  Kind kind = kGoesOn;
  std::string message;  // kFails: names the member and why it is gone
};

// REQUIRES: the job is served by `lost`, which is not alive.
LossDecision DecideMemberLoss(const Job& job, const Member& lost);

}  // namespace sluice
