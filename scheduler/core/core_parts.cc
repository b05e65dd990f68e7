#include "scheduler/core/core_parts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/security/job_passes.h"

namespace sluice {
namespace {

Membership::Options MembershipOptions(const CoreParts::Options& options) {
  Membership::Options membership;
  membership.pserver_num = options.pserver_num;
  membership.worker_num = options.worker_num;
  membership.pservers = options.pservers;
  membership.lease = options.lease;
  // Two reports may be late, and a member that lives connects again within about a second.
  membership.reconnect = std::max(2 * options.heartbeat, options.lease / 4);
  membership.first_id = options.first_id;
  return membership;
}

JobLifecycle::Options LifecycleOptions(const CoreParts::Options& options) {
  JobLifecycle::Options lifecycle;
  lifecycle.lease = options.lease;
  lifecycle.heartbeat = options.heartbeat;
  lifecycle.wait = options.wait;
  lifecycle.report_wait = options.report_wait;
  lifecycle.first_id = options.first_id;
  lifecycle.place = options.place;
  return lifecycle;
}

JobAdmission::Options AdmissionOptions(const CoreParts::Options& options) {
  JobAdmission::Options admission;
  admission.worker_num = options.worker_num;
  admission.wait = options.wait;
  admission.first_version = options.first_version;
  admission.next_number = std::max<uint64_t>(options.next.job_number(), 1);
  admission.next_order = std::max<uint64_t>(options.next.order(), 1);
  return admission;
}

}  // namespace

CoreParts::CoreParts(Options options, absl::Time now)
    : options_(std::move(options)),
      effects(options_.clock),
      members(MembershipOptions(options_)),
      pauses(options_.lease, now),
      lifecycle(LifecycleOptions(options_),
                {&members, &queue, &jobs, &requests, &pauses, &effects}),
      admission(AdmissionOptions(options_),
                {&members, &queue, &jobs, &lifecycle, &pauses, &effects}),
      kept_draining_(options_.draining.SerializeAsString()) {
  // The cluster may be smaller now. Some pserver must be left that jobs can use.
  uint32_t known = 0;
  for (const uint32_t rank : options_.draining.pservers()) known += rank < options_.pserver_num;
  // With all of them marked no job could start, so the marks are dropped.
  if (known >= options_.pserver_num) return;
  for (const uint32_t rank : options_.draining.pservers()) {
    const auto& left = options_.draining.left();
    const bool has_left = std::count(left.begin(), left.end(), rank) > 0;
    if (rank < options_.pserver_num) members.Drain(rank, {/*of_process=*/false, has_left});
  }
}

absl::Status CoreParts::CheckSecret(uint64_t member_id, absl::string_view secret) const {
  const Member* const member = members.ById(member_id);
  if (member == nullptr) return absl::OkStatus();
  if (SameSecret(MemberSecret(options_.pass_key, member_id, member->self.life()), secret))
    return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the caller does not have the secret of member ", member_id,
                   ", which only the process that has registered as this member got"));
}

void CoreParts::MemberLost(const Member& member, absl::Time now) {
  effects.MemberGone(member.id);
  queue.MembersChanged();
  requests.DropMember(member.id);
  const bool refused = !effects.records()->refused().empty();
  bool untold = false;
  for (Job* job : jobs.NeedingMember(member)) {
    // Whatever a job does about a loss raises its generation, which has to be kept first.
    if (refused && !job->over()) {
      untold = true;
      effects.StatusChanged(job);
    } else {
      lifecycle.MemberLost(job, member, now);
    }
  }
  if (untold) untold_losses_.push_back(member);
}

void CoreParts::StoreRefuses(const std::string& why, absl::Time now) {
  const bool again = why.empty() && !effects.records()->refused().empty();
  effects.records()->SetRefused(why);
  queue.MembersChanged();
  if (again) {
    // Nobody could replace a lost member meanwhile, so that time counts against no job.
    pauses.Resume(now);
    for (const Member& member : std::exchange(untold_losses_, {})) MemberLost(member, now);
  }
  Schedule(now);
}

void CoreParts::Schedule(absl::Time now) {
  if (shutting_down()) return;
  // Jobs that have begun come first: they hold pservers and other workers while they wait.
  lifecycle.RecoverJobs(now);
  lifecycle.FillVacancies(now);
  admission.Schedule(now);
}

void CoreParts::KeepDraining() {
  DrainingRecord record;
  for (const auto& [rank, mark] : members.draining()) {
    if (mark.of_process) continue;
    record.add_pservers(rank);
    if (mark.left) record.add_left(rank);
  }
  std::string text = record.SerializeAsString();
  // Registrations call this as well, and most of them change no mark.
  if (text == kept_draining_) return;
  kept_draining_ = std::move(text);
  effects.records()->DrainingChanged(record);
}

void CoreParts::NoticePause(absl::Time now) {
  if (pauses.HasPaused(now)) members.ForgiveSilence(now);
}

void CoreParts::Shutdown(absl::Time now) {
  if (shutting_down()) return;
  shutdown_at_ = now;
  for (const auto& job : jobs.all()) {
    lifecycle.End(job.get(), JOB_CANCELLED, "the cluster was shut down", now);
  }
  // Members without a job must also hear that they have to stop.
  for (Member* member : members.All()) effects.DesiredChanged(member);
  StopPservers(now);
}

void CoreParts::StopPservers(absl::Time now) {
  if (!shutting_down() || pservers_stop_) return;
  if (!members.Alive(ROLE_WORKER).empty() && now < shutdown_at_ + options_.worker_stop) return;
  // Workers first: one that still computes would wait for its pservers and not end in order.
  pservers_stop_ = true;
  for (Member* member : members.Alive(ROLE_PSERVER)) effects.DesiredChanged(member);
}

}  // namespace sluice
