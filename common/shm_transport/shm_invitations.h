// Tokens with which callers that a pserver has identified over gRPC name themselves at its local
// socket.
//
// A token is random, works once, and only for kLifetime. It stands for the identity that the call
// had, so a stream through shared memory has the role and rank of the caller's certificate.
//
// Thread safety: safe from any thread.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/security/peer_identity.h"
#include "common/transport/stream_admission.h"

namespace sluice {

class ShmInvitations {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kLifetime{30};
  static constexpr size_t kTokenBytes = 16;
  // Beyond these, invitations are given up as silent streams are (stream_admission.h): the oldest
  // of the caller that has the most.
  static constexpr size_t kMaxOpen = 1024, kMaxOpenPerPeer = 64;

  std::string Issue(PeerIdentity peer, Time now);
  // PERMISSION_DENIED: the token is unknown, was used, or is too old.
  absl::StatusOr<PeerIdentity> Redeem(const std::string& token, Time now);

 private:
  struct Invitation {
    std::string token;
    PeerIdentity peer;
    Time issued;
  };

  Mutex mutex_;
  std::map<std::string, Invitation> open_ ABSL_GUARDED_BY(mutex_);
  StreamAdmission admission_ ABSL_GUARDED_BY(mutex_){kMaxOpen, kMaxOpenPerPeer};  // of open_
};

}  // namespace sluice
