#include "common/shm_transport/shm_invitations.h"

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"

namespace sluice {

std::string ShmInvitations::Issue(PeerIdentity peer, Time now) {
  const uint64_t words[] = {RandomId(), RandomId()};
  static_assert(sizeof(words) == kTokenBytes, "a token is two words");
  std::string token(reinterpret_cast<const char*>(words), sizeof(words));
  MutexLock lock(&mutex_);
  while (!by_age_.empty()) {
    const auto oldest = open_.find(by_age_.front());
    const bool used = oldest == open_.end();
    if (!used && by_age_.size() < kMaxOpen && now - oldest->second.issued <= kLifetime) break;
    if (!used) open_.erase(oldest);
    by_age_.pop_front();
  }
  open_[token] = {std::move(peer), now};
  by_age_.push_back(token);
  return token;
}

absl::StatusOr<PeerIdentity> ShmInvitations::Redeem(const std::string& token, Time now) {
  MutexLock lock(&mutex_);
  const auto found = open_.find(token);
  if (found == open_.end()) {
    return absl::PermissionDeniedError(
        "the token is not one of this pserver, or was used already; ask for another one");
  }
  Invitation invitation = std::move(found->second);
  open_.erase(found);
  if (now - invitation.issued > kLifetime) {
    return absl::PermissionDeniedError(absl::StrCat("the token is older than ", kLifetime.count(),
                                                    " seconds; ask for another one"));
  }
  return std::move(invitation.peer);
}

}  // namespace sluice
