// The log lines of a process that waits for the scheduler, and its error when none has answered.
// Also the advice when a connection fails because one side has no TLS or does not trust the other's
// certificate.
//
// Thread safety: WaitingLines is for one thread; the functions are safe from any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/daemon/scheduler_client.h"

namespace sluice {

// The lines of one wait. Each says how long it has lasted. The first one says what is in the way,
// and so does one that finds another reason, and one in 30 s, for readers who see only the end of a
// log.
class WaitingLines {
 public:
  // `scheduler` outlives this. `wait`: how long the process waits at most.
  WaitingLines(SchedulerClient* scheduler, absl::Duration wait)
      : scheduler_(scheduler), wait_(wait) {}

  // Asks the scheduler's client what is in the way. Takes up to half a second.
  std::string Next(absl::Duration waited);

 private:
  SchedulerClient* const scheduler_;
  const absl::Duration wait_;
  std::string said_;  // the reason that was said last
  absl::Duration said_at_;
};

// The error of a caller that has waited for so long until the scheduler is ready.
absl::Status SchedulerDidNotAnswer(SchedulerClient* scheduler, absl::Duration waited);

// `error`: gRPC's text about the connection. `tls`: this process has TLS. Returns the cause with
// its fix, or "" when the text does not point to TLS.
std::string TlsAdvice(absl::string_view error, bool tls);

// Whether `message` ends with advice of TlsAdvice that is certain, so that no other is needed. A
// connection that was just closed may also be that of a scheduler that has died.
bool HasCertainTlsAdvice(absl::string_view message);

}  // namespace sluice
