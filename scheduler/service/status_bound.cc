#include "scheduler/service/status_bound.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "common/base/message_text.h"
#include "scheduler/core/request_text.h"

namespace sluice {
namespace {

constexpr size_t kNoteBytes = 256;  // more than the line that says that something is left out

// Their tables still have the sums.
void DropSingleShards(ClusterStatus* status) {
  for (MemberStatus& member : *status->mutable_members()) {
    for (HostedJob& hosted : *member.mutable_hosted()) {
      for (TableStatus& table : *hosted.mutable_tables()) table.clear_each();
    }
  }
}

void DropConfigurations(ClusterStatus* status) {
  for (JobStatus& job : *status->mutable_jobs()) {
    job.clear_config();
    job.clear_route();
  }
}

// Messages of jobs are bounded where they are made; this holds for any other text too.
void CutTexts(ClusterStatus* status) {
  ChangeTexts(status, [](const google::protobuf::FieldDescriptor*, const std::string& text) {
    return text.size() <= kMaxSentenceBytes ? text : Sentence(text);
  });
}

void DropReports(ClusterStatus* status) {
  for (JobStatus& job : *status->mutable_jobs()) {
    job.clear_workers();
    job.clear_warnings();
    if (!job.has_result()) continue;
    job.mutable_result()->clear_warnings();
    job.mutable_result()->clear_data();
  }
  for (MemberStatus& member : *status->mutable_members()) member.clear_hosted();
}

void DropMembersThatAreGone(ClusterStatus* status) {
  auto* const members = status->mutable_members();
  members->erase(std::remove_if(members->begin(), members->end(),
                                [](const MemberStatus& member) { return !member.alive(); }),
                 members->end());
}

// Keeps the last half of the jobs, which are the newest, and the first half of the members.
void Halve(ClusterStatus* status) {
  auto* const jobs = status->mutable_jobs();
  jobs->DeleteSubrange(0, (jobs->size() + 1) / 2);
  auto* const members = status->mutable_members();
  const int kept = members->size() / 2;
  members->DeleteSubrange(kept, members->size() - kept);
}

}  // namespace

void BoundStatus(size_t max_bytes, ClusterStatus* status) {
  if (status->ByteSizeLong() <= max_bytes) return;
  // Only the dashboard shows them, so nobody is told.
  DropSingleShards(status);
  if (status->ByteSizeLong() <= max_bytes) return;
  const size_t bound = max_bytes - std::min(max_bytes, kNoteBytes);
  for (void (*const drop)(ClusterStatus*) :
       {&DropConfigurations, &CutTexts, &DropReports, &DropMembersThatAreGone}) {
    if (status->ByteSizeLong() > bound) drop(status);
  }
  while (status->ByteSizeLong() > bound && (status->jobs_size() > 0 || status->members_size() > 0))
    Halve(status);
  MemberStatus* const note = status->add_members();
  note->set_role(ROLE_SCHEDULER);
  note->set_alive(true);
  note->set_doing("the status is too large to be shown whole; parts of it are left out");
}

}  // namespace sluice
