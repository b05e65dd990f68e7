// Serves the scheduler's gRPC calls: checks the caller, decodes, asks the intake, encodes. No
// logic.
//
// Memory: each method bounds its requests, on the wire and once they are parsed. A request is
// parsed only after the user and the role of its caller have been checked, and dropped when the
// intake has it.
//
// Thread safety: safe; gRPC calls it on its own threads.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/security/audit_log.h"
#include "common/security/connection_places.h"
#include "common/security/grpc_credentials.h"
#include "scheduler/service/request_intake.h"
#include "scheduler/service/waiting_calls.h"

namespace sluice {

// Listens for calls and hands them to the intake.
class SchedulerListener {
 public:
  virtual ~SchedulerListener() = default;
  // The port that the listener is bound to.
  virtual int port() const = 0;
  // Takes no more calls and waits until those in progress are answered.
  virtual void Stop() = 0;

  // `intake` and `audit` outlive the listener. Callers whose certificate does not allow a call get
  // PERMISSION_DENIED. `audit` gets their calls and the orders of operators; it may be null.
  // `connections` and `room`: how many may be open. UNAVAILABLE when the address is in use or not
  // of this host.
  static absl::StatusOr<std::unique_ptr<SchedulerListener>> Start(
      const std::string& bind, const GrpcCredentials& credentials, RequestIntake* intake,
      AuditLog* audit, const ConnectionBounds& connections = ConnectionBounds(),
      const CallRoom& room = CallRoom());
};

}  // namespace sluice
