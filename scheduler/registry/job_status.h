// A job and a member as operators see them: statuses, the result, and the names used in messages.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/job/job.h"
#include "scheduler/members/membership.h"

namespace sluice {

// `seen_epochs`: WatchJobRequest.seen_epochs.
JobStatus MakeJobStatus(const Job& job, const Membership& members,
                        std::optional<uint32_t> seen_epochs = std::nullopt);
MemberStatus MakeMemberStatus(const Member& member, absl::Time now);
// Returns the result with status and message, as in result.json.
// REQUIRES: the job is over.
JobResult MakeJobResult(const Job& job, const Membership& members);

// Reduces the job to what operators need: id, state and a status without route, features, model and
// tables.
// REQUIRES: the job is settled.
void ArchiveJob(Job* job, const Membership& members);

// Names the first of `ranks` and the number of the others.
std::string DescribeRanks(const Job& job, const std::vector<uint32_t>& ranks,
                          const Membership& members);
// The same with what they have to do, e.g. "rank 1 (...) to end phase train".
// REQUIRES: the job runs.
std::string DescribeMissing(const Job& job, const std::vector<uint32_t>& ranks,
                            const Membership& members);

}  // namespace sluice
