#include "scheduler/members/membership.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/security/refusal_reason.h"

namespace sluice {
namespace {

// True when the newcomer has seen, or its own pid shows, that the incumbent's process has ended.
bool HasEnded(const Member& incumbent, const RegisterRequest& newcomer) {
  if (newcomer.process_space().empty() ||
      newcomer.process_space() != incumbent.self.process_space()) {
    return false;
  }
  // In the second case the system has given the incumbent's pid to the newcomer.
  const uint32_t pid = incumbent.self.pid();
  return pid != 0 && (newcomer.ended_pid() == pid || newcomer.pid() == pid);
}

}  // namespace

std::string DescribeMember(const Member& member) {
  const RegisterRequest& self = member.self;
  return absl::StrCat(RoleName(self.role()), " ", self.rank(), " (",
                      self.address().empty() ? "" : self.address() + ", ", "pid ", self.pid(),
                      " on host ", self.host(), ")");
}

absl::Status Membership::CheckRegistration(const RegisterRequest& request) const {
  if (request.protocol() != 1) {
    return Because(RefusalReason::kInvalid,
                   absl::FailedPreconditionError(absl::StrCat(
                       "the scheduler speaks protocol 1, but the member speaks ",
                       request.protocol(), "; run the same version of Sluice everywhere")));
  }
  if (request.role() != ROLE_PSERVER && request.role() != ROLE_WORKER) {
    return absl::InvalidArgumentError(
        absl::StrCat("a member is a pserver or a worker, not role ", request.role()));
  }
  const bool pserver = request.role() == ROLE_PSERVER;
  const char* const field = pserver ? "pservers" : "worker_num";
  const uint32_t limit = NumberOf(request.role());
  const bool stated = IsStated(request.role());
  if (stated && request.rank() >= limit) {
    return absl::InvalidArgumentError(absl::StrCat(
        RoleName(request.role()), " rank ", request.rank(), " is out of range: the cluster has ",
        limit, " (", field, "); ranks begin at 0"));
  }
  if (!stated && request.rank() >= kMaxRanks) {
    return absl::InvalidArgumentError(absl::StrCat(
        RoleName(request.role()), " rank ", request.rank(), " is out of range: ranks are below ",
        kMaxRanks, " in a cluster that does not state how many it has (", field, ")"));
  }
  if (pserver && request.address().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("pserver ", request.rank(), " registers without an address for the workers"));
  }
  return absl::OkStatus();
}

bool Membership::SaysEnded(const RegisterRequest& newcomer) const {
  const Member* const holder = At(newcomer.role(), newcomer.rank());
  return holder != nullptr && holder->alive && holder->self.life() != newcomer.life() &&
         HasEnded(*holder, newcomer);
}

absl::StatusOr<Member*> Membership::Register(const RegisterRequest& request, bool believed,
                                             absl::Time now, Member* fenced) {
  const absl::Status checked = CheckRegistration(request);
  if (!checked.ok()) return checked;
  Member& slot = members_[{request.role(), request.rank()}];
  if (slot.id != 0 && slot.alive) {
    if (slot.self.life() == request.life() && request.life() != 0) {
      slot.last_seen = now;
      return &slot;
    }
    // Two living processes must never have one rank: both would serve it, and each would undo what
    // the other did.
    if (!believed || !HasEnded(slot, request)) return nullptr;
    // Copied, because the place goes to the newcomer below.
    *fenced = slot;
    fenced->why_gone = absl::StrCat("its process has ended; pid ", request.pid(), " on host ",
                                    request.host(), " has taken its place");
  }
  const bool pserver = request.role() == ROLE_PSERVER;
  if (const auto mark = draining_.find(request.rank()); pserver && mark != draining_.end()) {
    // The mark was for the process that is gone, or has done its work. An operator's mark on a
    // process that only crashed stays.
    if (mark->second.of_process || mark->second.left) draining_.erase(mark);
  }
  by_id_.erase(slot.id);
  slot = Member();
  slot.draining = pserver && draining_.count(request.rank()) > 0;
  // Never the old id, even for the same rank: calls of the earlier process must not pass for those
  // of this one.
  slot.id = next_id_++;
  by_id_[slot.id] = &slot;
  slot.self = request;
  slot.last_seen = now;
  return &slot;
}

absl::StatusOr<Member*> Membership::Find(uint64_t id) {
  Member* member = ById(id);
  if (member == nullptr) {
    // An id that this scheduler has given, so it is not one of an earlier scheduler.
    if (id >= options_.first_id && id < next_id_) {
      return Because(
          RefusalReason::kFenced,
          absl::AbortedError("another process has registered with this role and rank, or this one "
                             "was silent for so long that it is forgotten; it is fenced and must "
                             "end"));
    }
    return absl::NotFoundError(
        absl::StrCat("member ", id, " is unknown to this scheduler (it was started later)"));
  }
  if (member->left) return absl::CancelledError(absl::StrCat(DescribeMember(*member), " has left"));
  if (!member->alive) {
    return absl::NotFoundError(absl::StrCat(DescribeMember(*member), ": ", member->why_gone));
  }
  return member;
}

void Membership::Report(const PollRequest& request, absl::Time now, Member* member) {
  member->last_seen = now;
  // A report proves that a broken connection was replaced.
  member->cut_off_at = absl::InfiniteFuture();
  member->polled = true;
  // Reports in flight can overtake each other, and those of the session's helper have no version.
  if (request.seen_version() > member->seen_version) member->seen_version = request.seen_version();
  // Reuse the entries of the previous report instead of allocating: a pserver may host hundreds of
  // jobs.
  std::map<std::string, HostedJob> before = std::move(member->hosted);
  member->hosted.clear();
  for (const HostedJob& job : request.hosted()) {
    auto node = before.extract(job.job_id());
    if (node.empty()) {
      member->hosted[job.job_id()] = job;
    } else {
      node.mapped() = job;
      member->hosted.insert(std::move(node));
    }
  }
  member->progress = request.progress();
  member->progress.clear_losses();  // kept in StepReports
  member->memory_bytes = request.memory_bytes();
  member->cpu_seconds = request.cpu_seconds();
  member->streams = request.streams();
}

void Membership::NoteCutOff(uint64_t id, absl::Time now) {
  Member* const member = ById(id);
  if (member == nullptr || !member->alive) return;
  // The report that broke may be older than the newest one, which came over another connection.
  // Then the next report, at most a heartbeat later, says that the member lives.
  member->cut_off_at = std::min(member->cut_off_at, now);
}

std::vector<Member*> Membership::Expire(absl::Time now) {
  std::vector<Member*> expired;
  for (auto& [key, member] : members_) {
    if (!member.alive) continue;
    // Silence counts only from the end of the scheduler's own last pause.
    if (now - std::max(member.last_seen, judged_from_) >= options_.lease) {
      MarkGone(&member, absl::StrCat("no heartbeat for ",
                                     absl::ToInt64Seconds(now - member.last_seen), " s"));
    } else if (now - std::max(member.cut_off_at, judged_from_) >= options_.reconnect) {
      MarkGone(&member, "its connection was closed, and it did not come back");
    } else {
      continue;
    }
    expired.push_back(&member);
  }
  return expired;
}

void Membership::Forget(absl::Time now) {
  for (auto at = members_.begin(); at != members_.end();) {
    const Member& member = at->second;
    if (member.alive || IsStated(at->first.first) || now - member.last_seen < kRemembered) {
      ++at;
      continue;
    }
    by_id_.erase(member.id);
    at = members_.erase(at);
  }
}

void Membership::MarkGone(Member* member, std::string why) {
  member->alive = false;
  member->why_gone = std::move(why);
  // Wakes its waiting calls, which then end with an error.
  ++member->version;
}

void Membership::MarkLeft(Member* member, const std::string& reason) {
  MarkGone(member, absl::StrCat("has left: ", reason));
  member->left = true;
  if (member->self.role() != ROLE_PSERVER) return;
  const auto mark = draining_.find(member->self.rank());
  if (mark != draining_.end()) mark->second.left = true;
}

const Member* Membership::At(Role role, uint32_t rank) const {
  const auto it = members_.find({role, rank});
  return it == members_.end() ? nullptr : &it->second;
}

Member* Membership::At(Role role, uint32_t rank) {
  return const_cast<Member*>(std::as_const(*this).At(role, rank));
}

const Member* Membership::ById(uint64_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second;
}

Member* Membership::ById(uint64_t id) { return const_cast<Member*>(std::as_const(*this).ById(id)); }

Member* Membership::FindProcess(const MemberEndedRequest& process) {
  Member* member = At(process.role(), process.rank());
  // A report about a process may arrive late, when another one has the place.
  if (member == nullptr || member->self.pid() != process.pid() ||
      member->self.process_space() != process.process_space()) {
    return nullptr;
  }
  return member;
}

std::vector<Member*> Membership::All() {
  std::vector<Member*> all;
  for (auto& [key, member] : members_) all.push_back(&member);
  return all;
}

std::vector<Member*> Membership::Alive(Role role) {
  std::vector<Member*> alive;
  for (auto& [key, member] : members_) {
    if (key.first == role && member.alive) alive.push_back(&member);
  }
  return alive;
}

std::vector<const Member*> Membership::Alive(Role role) const {
  std::vector<const Member*> alive;
  for (const auto& [key, member] : members_) {
    if (key.first == role && member.alive) alive.push_back(&member);
  }
  return alive;
}

std::vector<MemberEndedRequest> Membership::Silent(const std::string& process_space,
                                                   absl::Duration silence, absl::Time now) const {
  std::vector<MemberEndedRequest> silent;
  // A pid means nothing outside its process space.
  if (process_space.empty()) return silent;
  for (const auto& [key, member] : members_) {
    if (!member.alive || member.self.process_space() != process_space) continue;
    if (now - member.last_seen < silence) continue;
    MemberEndedRequest& one = silent.emplace_back();
    one.set_role(member.self.role());
    one.set_rank(member.self.rank());
    one.set_pid(member.self.pid());
    one.set_process_space(process_space);
  }
  return silent;
}

void Membership::Drain(uint32_t rank, DrainMark mark) {
  Member* const member = At(ROLE_PSERVER, rank);
  if (member != nullptr && member->left) mark.left = true;
  const auto [at, added] = draining_.emplace(rank, mark);
  if (!added && !mark.of_process) at->second.of_process = false;
  if (member != nullptr) member->draining = true;
}

void Membership::CancelDrain(uint32_t rank) {
  draining_.erase(rank);
  if (Member* const member = At(ROLE_PSERVER, rank)) member->draining = false;
}

std::vector<const Member*> Membership::UsablePservers() const {
  std::vector<const Member*> usable = Alive(ROLE_PSERVER);
  usable.erase(std::remove_if(usable.begin(), usable.end(),
                              [](const Member* pserver) { return pserver->draining; }),
               usable.end());
  return usable;
}

std::vector<std::string> Membership::MissingPservers() const {
  std::vector<std::string> missing;
  for (uint32_t rank = 0; rank < options_.pserver_num; ++rank) {
    const Member* member = At(ROLE_PSERVER, rank);
    if (member != nullptr && member->alive) continue;
    // Nobody waits for a pserver that is about to leave.
    if (draining_.count(rank) > 0) continue;
    std::string address;
    // Port 0 means any free port, which is not known before the pserver registers.
    if (rank < options_.pservers.size() && !absl::EndsWith(options_.pservers[rank], ":0"))
      address = absl::StrCat(" (", options_.pservers[rank], ")");
    missing.push_back(absl::StrCat("pserver ", rank, address, " to register"));
  }
  return missing;
}

std::vector<std::string> Membership::MissingWorkers() const {
  std::vector<std::string> missing;
  for (uint32_t rank = 0; rank < options_.worker_num; ++rank) {
    const Member* member = At(ROLE_WORKER, rank);
    if (member == nullptr || !member->alive) {
      missing.push_back(absl::StrCat("worker ", rank, " to register"));
    }
  }
  return missing;
}

}  // namespace sluice
