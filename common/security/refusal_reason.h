// Why a call was refused, for the audit log and its metric. A handler marks the status that it
// returns, and whoever answers the call reads the mark; the client sees only code and message.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <optional>

#include "absl/status/status.h"

namespace sluice {

enum class RefusalReason {
  kNoRule,       // nobody may call the method
  kRole,         // the role of the certificate may not
  kRank,         // the caller claims to be another member than its certificate is for
  kCertificate,  // no certificate was shown, or it names no role
  kHandshake,    // the TLS handshake failed
  kUser,         // without TLS: the connection is one of another user of this host
  kPass,         // the caller lacks the pass of the rank that it claims to be (job_passes.h)
  kToken,        // the caller at a local socket has no invitation (shm_invitations.h)
  kSecret,       // the caller lacks the secret of the member that it claims to be (job_passes.h)
  kFenced,       // another process serves as this member or rank now
  kInvalid,      // a field is out of its bounds
  kJob,          // the caller names a job, or an instance of it, that is not here
  kPath,         // the caller names a folder or file that it may not use
  kRoom,         // the caller has more open than it may, or neither sends nor reads in time, or
                 // this process has nothing left for it
  kOther,        // the handler has not said why
};

const char* RefusalReasonName(RefusalReason reason);  // "no_rule", "role", ...

// Marks a refusal. OK statuses stay as they are, and so does an earlier mark.
absl::Status Because(RefusalReason reason, absl::Status refusal);
// The mark; kOther when there is none.
RefusalReason ReasonOf(const absl::Status& refusal);

// Why the audit log records a refusal: its mark, or what its code says (PERMISSION_DENIED,
// INVALID_ARGUMENT, UNIMPLEMENTED). Nothing for OK and for other codes without a mark: those come
// of races in normal operation, such as a route that has changed or a job that has just ended, or
// of failures of the server.
std::optional<RefusalReason> CauseOf(const absl::Status& refusal);

}  // namespace sluice
