// Which failures of a call pass by themselves, how long to pause before the next try, and how long
// a peer has been silent.
//
// This is the only place that sorts status codes into those worth another try and those that are
// final, with one exception: IsVerdict in meta_store/etcd_client.cc sorts etcd's own errors, which
// differ in their messages too. gRPC's codes are mapped to these in grpc_convert.h.
//
// Thread safety: free functions, safe from any thread. A Backoff and a SilenceTimer are guarded by
// the owner's lock.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sluice {

// The peer gave no answer (UNAVAILABLE, DEADLINE_EXCEEDED). It may have carried the call out, so
// only a call that may be repeated is worth another try.
bool GotNoAnswer(absl::StatusCode code);
inline bool GotNoAnswer(const absl::Status& status) { return GotNoAnswer(status.code()); }

// The call may go well later: no answer came, or the server had no room for the call
// (RESOURCE_EXHAUSTED). gRPC refuses calls at random with this code while unfinished messages hold
// its memory, so an honest call may meet it too. A message beyond the size limit has the same code
// and never goes well.
bool MayBeAnsweredLater(const absl::Status& status);

// A pserver answered that it cannot take the request now: the job is not open there yet
// (NOT_FOUND), or the pserver is busy (RESOURCE_EXHAUSTED) or stopping (UNAVAILABLE). A new stream
// may find it ready.
bool PserverNotReady(absl::StatusCode code);

// A pserver works under another generation than the request (FAILED_PRECONDITION): the sender
// needs a newer route before it tries again.
bool RouteIsStale(absl::StatusCode code);

// A rank's call ended for a reason that the loss of a member can have: no answer came in time
// (UNAVAILABLE, DEADLINE_EXCEEDED), or this life of the rank is over (ABORTED). The job's next
// attempt may go well, so the rank waits for it. Every other error fails the job.
bool MayGoWellInNextAttempt(absl::StatusCode code);

// True when the pserver may no longer hold the job: another process has its place (NOT_FOUND), it
// is gone (UNAVAILABLE, DEADLINE_EXCEEDED), or it has other routes (FAILED_PRECONDITION). The code
// must come from a single call, without the retries of a stream.
bool PserverMayBeLost(absl::StatusCode code);

// The state store failed for a reason that may pass by itself: it gave no answer (UNAVAILABLE), or
// it has no room now (RESOURCE_EXHAUSTED).
bool StoreMayRecover(absl::StatusCode code);

// The pauses between tries: 10 ms, doubled each time, at most 1 s.
class Backoff {
 public:
  // The pause before the next try.
  absl::Duration Next();
  // A try succeeded.
  void Reset() { pause_ = absl::ZeroDuration(); }

 private:
  absl::Duration pause_ = absl::ZeroDuration();
};

// Measures how long a peer has given no answer.
//
// Silence begins when the first unanswered call returns, not when it starts. This process itself
// may have been stopped during the call; a peer that answers the next one was not silent.
class SilenceTimer {
 public:
  // The peer answered; its silence is over.
  void Answered() { since_.reset(); }
  // A call returned without an answer at `now`, a monotonic time. Returns how long the peer has
  // been silent: zero for the first such call.
  absl::Duration Unanswered(absl::Time now);
  // How long the peer has been silent at `now`: zero when it answered the last call.
  absl::Duration silent(absl::Time now) const {
    return since_.has_value() ? now - *since_ : absl::ZeroDuration();
  }

 private:
  std::optional<absl::Time> since_;
};

}  // namespace sluice
