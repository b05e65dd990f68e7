#include "scheduler/job/job_opening.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduler/job/job.h"

namespace sluice {
namespace {

std::string PserversTooLate(const Job& job, const std::vector<const Member*>& late,
                            absl::Duration wait) {
  const auto describe = [](std::string* out, const Member* member) {
    out->append(DescribeMember(*member));
  };
  const std::string& model =
      job.spec().has_restore() ? job.spec().restore().directory() : job.config().initial_model();
  return absl::StrCat(absl::StrJoin(late, " and ", describe), " did not open the tables of job ",
                      job.id(), model.empty() ? "" : absl::StrCat(" or read more of ", model),
                      " within ", absl::FormatDuration(wait), " (limits.wait_s); see its log");
}

std::string OutputTooLate(const Job& job, absl::Duration wait) {
  return absl::StrCat("output_dir ", job.config().output_dir(), " was not ready within ",
                      absl::FormatDuration(wait),
                      " (limits.wait_s); check its disk, or give another --output_dir");
}

}  // namespace

JobOpening::Decision JobOpening::Decide(const Job& job, const Membership& members,
                                        const PauseDetector& pauses, absl::Duration wait,
                                        absl::Time now) {
  Decision decision;
  bool all_open = true;
  std::vector<const Member*> late;
  for (const uint64_t id : job.pservers.members()) {
    const Member* member = members.ById(id);
    // Another process has replaced this pserver. MemberLost decides what that means for the job.
    if (member == nullptr) return decision;
    if (HasOpened(job, *member)) continue;
    all_open = false;
    const Load& load = NoteLoad(job, *member, now, &decision.progressed);
    if (pauses.Since(load.since, now) >= wait) late.push_back(member);
  }
  if (all_open && output_ready_) {
    decision.kind = Decision::kRun;
  } else if (all_open && pauses.Since(begun_at_, now) >= wait) {
    decision.kind = Decision::kFail;
    decision.message = OutputTooLate(job, wait);
    // The time of each pserver counts from its own last progress.
  } else if (!late.empty()) {
    decision.kind = Decision::kFail;
    decision.message = PserversTooLate(job, late, wait);
  }
  return decision;
}

const JobOpening::Load& JobOpening::NoteLoad(const Job& job, const Member& pserver, absl::Time now,
                                             bool* progressed) {
  Load& load = loads_.emplace(pserver.id, Load{0, begun_at_}).first->second;
  const HostedJob* hosted = HostedOf(job, pserver);
  // Reports can overtake each other: only a new maximum is progress.
  if (hosted != nullptr && hosted->loaded_bytes() > load.bytes) {
    load = {hosted->loaded_bytes(), now};
    *progressed = true;
  }
  return load;
}

}  // namespace sluice
