// A job and a member as operators see them: statuses, the result, and the names used in messages.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/job.h"
#include "scheduler/membership.h"

namespace sluice {

JobStatus MakeJobStatus(const Job& job, const Membership& members);
MemberStatus MakeMemberStatus(const Member& member, absl::Time now);
// The result with status and message, as result.json has it. REQUIRES: the job is over.
JobResult MakeJobResult(const Job& job, const Membership& members);

// Keeps of the job what operators need: id, state and a status without route, features, model and
// tables. REQUIRES: settled.
void ArchiveJob(Job* job, const Membership& members);

// Names the first of `ranks`, and says how many more, "to end phase train". REQUIRES: the job runs.
std::string DescribeMissing(const Job& job, const std::vector<uint32_t>& ranks,
                            const Membership& members);

}  // namespace sluice
