// Answers calls while this scheduler waits until its state store takes its term: members stay, and
// operators learn why.
//
// A scheduler without a term knows neither jobs nor members, and may decide nothing. So reports of
// members get no news, a registration and a request for work are to be repeated, and everything
// else is UNAVAILABLE with the reason.
//
// Only for a scheduler beside which no other one leads: members that reach this one do not look for
// another.
//
// Thread safety: safe.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/security/audit_log.h"
#include "common/security/connection_places.h"
#include "common/security/grpc_credentials.h"
#include "scheduler/service/waiting_calls.h"

namespace sluice {

class WaitingListener {
 public:
  struct Options {
    std::string bind;
    GrpcCredentials credentials;
    AuditLog* audit = nullptr;  // may be null; outlives the listener
    ConnectionBounds connections;
    CallRoom room;
    std::string cluster;  // its name
    std::string why;      // "waits for the state store: ..."
  };
  virtual ~WaitingListener() = default;
  virtual int port() const = 0;

  // UNAVAILABLE when the address is in use or not of this host.
  static absl::StatusOr<std::unique_ptr<WaitingListener>> Start(const Options& options);
};

}  // namespace sluice
