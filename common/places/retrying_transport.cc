#include "common/places/retrying_transport.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr absl::Duration kMostAskedPause = absl::Seconds(30);
// A clock's sleep cannot be ended: a pause is made of short ones.
constexpr absl::Duration kLongestSleep = absl::Milliseconds(50);

// The place could not answer now. 409: another write of the same object is under way.
bool IsBusy(int status) {
  return status == 408 || status == 409 || status == 429 || status == 500 || status == 502 ||
         status == 503 || status == 504;
}

}  // namespace

bool RetryingTransport::Pause(absl::Duration pause) {
  while (pause > absl::ZeroDuration() && !stopped_.load(std::memory_order_relaxed)) {
    const absl::Duration part = std::min(pause, kLongestSleep);
    options_.clock->Sleep(part);
    pause -= part;
  }
  return !stopped_.load(std::memory_order_relaxed);
}

absl::StatusOr<HttpResponse> RetryingTransport::Send(const HttpRequest& request) {
  const absl::Status stopped = absl::CancelledError("the process ends");
  if (stopped_.load(std::memory_order_relaxed)) return stopped;
  const absl::Time last_begin =
      options_.clock->Now() + options_.most_time +
      options_.most_time_per_byte * (request.range_bytes + request.body.size());
  absl::Duration pause = options_.pause;
  for (int attempt = 1;; ++attempt) {
    const absl::Time begin = options_.clock->Now();
    absl::StatusOr<HttpResponse> answer = base_->Send(request);
    PlaceUse& use = *options_.use;
    use.requests.fetch_add(1, std::memory_order_relaxed);
    use.bytes_sent.fetch_add(request.body.size(), std::memory_order_relaxed);
    if (attempt > 1) use.retries.fetch_add(1, std::memory_order_relaxed);
    use.nanoseconds.fetch_add(absl::ToInt64Nanoseconds(options_.clock->Now() - begin),
                              std::memory_order_relaxed);
    absl::Duration asked;
    if (answer.ok()) {
      use.bytes.fetch_add(answer->body.size(), std::memory_order_relaxed);
      const bool cut = answer->status == 206 && request.range_bytes > 0 &&
                       answer->body.size() != request.range_bytes;
      if (cut) {
        answer = absl::UnavailableError(absl::StrCat("the answer has ", answer->body.size(), " of ",
                                                     request.range_bytes, " bytes"));
      } else if (!IsBusy(answer->status)) {
        return answer;
      } else {
        int seconds = 0;
        if (absl::SimpleAtoi(answer->Header("retry-after"), &seconds))
          asked = std::min(kMostAskedPause, absl::Seconds(std::max(0, seconds)));
      }
    }
    if (!answer.ok() && !absl::IsUnavailable(answer.status())) return answer;
    const absl::Duration wait = asked + pause * options_.draw();
    const bool late = attempt > 1 && options_.clock->Now() + wait > last_begin;
    if (attempt >= options_.tries || late) {
      if (answer.ok()) return answer;
      return absl::UnavailableError(
          absl::StrCat(answer.status().message(), " (tried ", attempt, " times)"));
    }
    if (!Pause(wait)) return stopped;
    pause = std::min(pause * 2, options_.most_pause);
  }
}

}  // namespace sluice
