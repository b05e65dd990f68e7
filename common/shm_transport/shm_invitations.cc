#include "common/shm_transport/shm_invitations.h"

#include <cstring>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/security/peer_host.h"

namespace sluice {

std::string ShmInvitations::Issue(PeerIdentity peer, Time now) {
  const uint64_t words[] = {RandomId(), RandomId()};
  static_assert(sizeof(words) == kTokenBytes, "a token is two words");
  std::string token(reinterpret_cast<const char*>(words), sizeof(words));
  const std::string peer_on = absl::StrCat(peer.ToString(), "@", HostOfAddress(peer.address));
  MutexLock lock(&mutex_);
  for (auto it = open_.begin(); it != open_.end();) {
    const bool old = now - it->second.issued > kLifetime;
    if (old) admission_.Closed(&it->second);
    it = old ? open_.erase(it) : std::next(it);
  }
  const std::string connection = peer.address;
  Invitation& invitation = open_[token];
  invitation = {token, std::move(peer), now};
  for (const void* id : admission_.Open(&invitation, {peer_on, connection})) {
    const std::string given_up = static_cast<const Invitation*>(id)->token;
    open_.erase(given_up);
  }
  return token;
}

absl::StatusOr<PeerIdentity> ShmInvitations::Redeem(const std::string& token, Time now) {
  MutexLock lock(&mutex_);
  const auto found = open_.find(token);
  if (found == open_.end()) {
    return absl::PermissionDeniedError(
        "the token is not one of this pserver, or was used already; ask for another one");
  }
  admission_.Closed(&found->second);
  Invitation invitation = std::move(found->second);
  open_.erase(found);
  if (now - invitation.issued > kLifetime) {
    return absl::PermissionDeniedError(absl::StrCat("the token is older than ", kLifetime.count(),
                                                    " seconds; ask for another one"));
  }
  return std::move(invitation.peer);
}

}  // namespace sluice
