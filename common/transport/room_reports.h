// Records which streams and calls a process refused, or ended, for want of room or for what their
// clients did to the transport: in the audit log, in the process log, and for the metrics.
//
// Thread safety: safe from any thread.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/base/limited_log.h"
#include "common/security/audit_log.h"

namespace sluice {

// Who opens streams and calls, for the limits: "worker 3@10.0.0.7", a certificate on a host
// (peer_host.h). Many processes may share a certificate.
std::string PeerOn(const AuditedCaller& caller);
// The same on all hosts, "worker 3". "" without a certificate.
std::string CertificateOf(const AuditedCaller& caller);

class RoomReports {
 public:
  struct Options {
    AuditLog* audit = nullptr;  // may be null; outlives the reports
    // Told of refusals, at most every 10 seconds, and of streams that are ended because their
    // clients do not read, at most as LimitedLog::OfCallers says. May be empty.
    std::function<void(const std::string&)> log;
    // Called for each of these streams. Must not block. May be empty.
    std::function<void(const std::string& address, const absl::Status& why)> on_cut;
  };
  explicit RoomReports(Options options)
      : options_(std::move(options)),
        log_(Clock::Real(), LimitedLog::Limits(), options_.log),
        cut_log_(Clock::Real(), LimitedLog::OfCallers(), options_.log) {}

  // A call was refused, or a stream was given up for others.
  void NoRoom(const AuditedCaller& caller, const std::string& method, const absl::Status& why);
  // A stream is ended because it holds too much.
  void Cut(const AuditedCaller& caller, const std::string& method, const absl::Status& why);
  // A stream is ended because its client breaks the rules of the transport.
  void Fault(const AuditedCaller& caller, const std::string& method, const absl::Status& why);

 private:
  void Audit(const AuditedCaller& caller, const std::string& method, RefusalReason reason,
             const absl::Status& why);

  const Options options_;
  LimitedLog log_, cut_log_;
};

}  // namespace sluice
