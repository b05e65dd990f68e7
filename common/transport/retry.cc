#include "common/transport/retry.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace sluice {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(10);
constexpr absl::Duration kLongestPause = absl::Seconds(1);

}  // namespace

bool GotNoAnswer(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded;
}

bool MayBeAnsweredLater(const absl::Status& status) {
  if (GotNoAnswer(status)) return true;
  // "Received message larger than max (N vs. M)", "Sent message larger than max (N vs. M)": only
  // gRPC's text tells these from a lack of room.
  return absl::IsResourceExhausted(status) &&
         !absl::StrContains(status.message(), "message larger than max");
}

bool PserverNotReady(absl::StatusCode code) {
  // RESOURCE_EXHAUSTED of a stream is a full queue, too many streams, or no memory for one message.
  // All of these pass when other requests are done.
  return code == absl::StatusCode::kNotFound || code == absl::StatusCode::kUnavailable ||
         code == absl::StatusCode::kResourceExhausted;
}

bool RouteIsStale(absl::StatusCode code) { return code == absl::StatusCode::kFailedPrecondition; }

bool MayGoWellInNextAttempt(absl::StatusCode code) {
  // RESOURCE_EXHAUSTED is final here: tables that have outgrown the memory or max_rows would
  // outgrow them again in the next attempt.
  return GotNoAnswer(code) || code == absl::StatusCode::kAborted;
}

bool PserverMayBeLost(absl::StatusCode code) {
  return GotNoAnswer(code) || RouteIsStale(code) || code == absl::StatusCode::kNotFound;
}

bool StoreMayRecover(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kResourceExhausted;
}

absl::Duration Backoff::Next() {
  pause_ = std::min(std::max(pause_ * 2, kFirstPause), kLongestPause);
  return pause_;
}

absl::Duration SilenceTimer::Unanswered(absl::Time now) {
  if (!since_.has_value()) since_ = now;
  return now - *since_;
}

}  // namespace sluice
