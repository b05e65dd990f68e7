// Writes who was refused and who gave which order, one JSON object a line, and counts both.
//
// Floods are bounded. After a burst, one line a second is written of each of these kinds: refusals
// of members, orders of operators, and takeovers, which members cause; and one a minute of refusals
// of strangers. The next line of any kind is preceded by one that says how many were left out. The
// kinds do not share their allowance, so a flood of strangers hides no refusal of a member, and
// neither hides an order. The file is renamed to <path>.1, <path>.1 to <path>.2 and so on before it
// would exceed `max_file_bytes`: a flood of strangers takes months to push the older lines out of
// the last one.
//
// A stranger is a caller with the role "none", whatever it asked for. Without TLS nobody proves who
// calls: an "unverified" caller counts as a member once it has named a method, so that connections
// which say nothing hide no refused call.
//
// A line is handed to the system before the call returns, so it survives the death of the process.
// A line that cannot be written is counted and lost; the request that it is about goes on.
//
// Format: the keys of a line are always these, in this order; all values but counts are strings.
//   {"time", "daemon", "event": "refusal", "method", "reason", "role", "name", "address", "detail"}
//   {"time", "daemon", "event": "action", "action", "target", "outcome", "role", "name", "address",
//    "detail"}
//   {"time", "daemon", "event": "left_out", "refusals": N, "strangers": N, "actions": N}
// `time` is UTC in RFC 3339 form. `role` is that of the caller's certificate, "none" when it has
// shown no certificate that names one or is another user of this host, or "unverified" for others
// without TLS. `outcome` is the name of a status code. In `left_out`, `refusals` counts those
// of members, and `strangers` those of strangers. Text from peers is cut to a bounded length and
// escaped.
//
// Thread safety: safe from any thread. Lines of two threads may be in either order.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/base/task_threads.h"
#include "common/security/peer_identity.h"
#include "common/security/refusal_reason.h"

namespace sluice {

enum class AuditedAction {
  kSubmit,
  kCheckpoint,
  kDeleteRows,
  kCancel,
  kScale,
  kDrain,
  kShutdown,
  kMemberEnded,  // an operator reports that a member's process has ended
  kTakeover,     // a newcomer takes the place of a member that was alive
};

const char* AuditedActionName(AuditedAction action);  // "submit", ...

struct AuditedCaller {
  std::string role;     // see "Format"
  std::string name;     // of the certificate; may be empty
  std::string address;  // host:port
};
// `peer`: an error when the caller has shown no certificate that names a role.
AuditedCaller CallerOf(const absl::StatusOr<PeerIdentity>& peer, absl::string_view address);

// The method of a refused handshake, in which the caller has named no method yet.
inline constexpr char kHandshakeMethod[] = "handshake";
// The same for a connection that is closed when it is accepted.
inline constexpr char kConnectMethod[] = "connect";
// The same for an HTTP request that is refused before its page is known.
inline constexpr char kRequestMethod[] = "request";

class AuditLog {
 public:
  struct Options {
    std::string path;
    std::string role;        // of this daemon: "scheduler", "pserver", "worker"
    uint32_t rank = 0;       // of this daemon
    Clock* clock = nullptr;  // required; outlives the log
    Env* env = nullptr;      // required; outlives the log
    uint64_t max_file_bytes = uint64_t{8} << 20;
    int max_files = 8;  // together with those that were renamed
    // Lines of one kind that may follow each other at once, and the time until one more may.
    int burst = 200;
    absl::Duration line_every = absl::Seconds(1);
    absl::Duration stranger_line_every = absl::Minutes(1);
    // Told when lines begin to be lost, and when they are written again. May be empty.
    std::function<void(const std::string&)> log;
  };
  // INVALID_ARGUMENT: the file cannot be written.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(Options options);
  ~AuditLog();

  // `method`: the full name of a gRPC method, the path of an admin page, kHandshakeMethod,
  // kConnectMethod or kRequestMethod. kRole becomes kNoRule when nobody may call the method.
  void Refused(const AuditedCaller& caller, absl::string_view method, RefusalReason reason,
               absl::string_view detail);
  // The same for a status that a call or stream was answered with. Ignores those without a cause
  // (CauseOf).
  void Refused(const AuditedCaller& caller, absl::string_view method, const absl::Status& refusal);
  // Counts a refusal that gets no line, as if too many had one. Waits for no disk.
  void LeftOut(const AuditedCaller& caller, absl::string_view method, RefusalReason reason);
  // `target`: the job, the pserver, or "" for the cluster. `detail` says what was asked for; the
  // line of an action that has failed says why instead.
  void Acted(const AuditedCaller& caller, AuditedAction action, absl::string_view target,
             const absl::Status& outcome, absl::string_view detail = "");
  // Writes how many lines were left out since the last line, if any were.
  void Flush();

  // All events, whether they have a line or not. Methods without a rule are counted as "other", so
  // that the number of keys is bounded.
  struct Counts {
    std::map<std::pair<std::string, std::string>, uint64_t> refusals;  // by method and reason
    std::map<std::string, uint64_t> actions;                           // by action
    uint64_t lost_lines = 0;                                           // could not be written
  };
  Counts counts();
  // "scheduler", "pserver" or "worker".
  const std::string& role() const { return options_.role; }

 private:
  // The lines of one kind that may still be written.
  struct Allowance {
    absl::Duration line_every;
    absl::Time full_at = absl::InfinitePast();  // the time when a whole burst is allowed again
    uint64_t left_out = 0;
  };

  explicit AuditLog(Options options);
  // The allowance of a refusal, which is counted.
  Allowance* Count(const AuditedCaller& caller, absl::string_view method, RefusalReason* reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Take(Allowance* allowance) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The line about what was left out so far, or "".
  std::string TakeLeftOut() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Begin(const char* event) const;
  void Write(const std::string& lines);
  absl::Status Append(const std::string& lines) ABSL_EXCLUSIVE_LOCKS_REQUIRED(file_mutex_);
  absl::Status MakeRoom(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(file_mutex_);

  const Options options_;

  Mutex mutex_;
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  Allowance refusals_ ABSL_GUARDED_BY(mutex_);  // of members
  Allowance strangers_ ABSL_GUARDED_BY(mutex_);
  Allowance actions_ ABSL_GUARDED_BY(mutex_);  // without takeovers
  Allowance takeovers_ ABSL_GUARDED_BY(mutex_);

  // Held while the file is written or renamed, so that the threads of a daemon do not rename it
  // under each other. Guards nothing that a reader of the counts needs. Never taken with mutex_.
  Mutex file_mutex_;
  bool failing_ ABSL_GUARDED_BY(file_mutex_) = false;  // the last line is lost, or torn
};

// Writes refusals to an audit log on a thread of its own, for callers that must not wait for a
// disk. At most 256 refusals wait. Those that come faster are counted, and get no line.
//
// Thread safety: safe from any thread.
class AuditQueue {
 public:
  // `log` may be null: then nothing is recorded. Outlives the queue.
  explicit AuditQueue(AuditLog* log);
  // Writes the refusals that wait.
  ~AuditQueue() = default;

  // See AuditLog::Refused.
  void Refused(const AuditedCaller& caller, const std::string& method, RefusalReason reason,
               std::string detail);

 private:
  AuditLog* const log_;
  TaskThreads thread_;
};

}  // namespace sluice
