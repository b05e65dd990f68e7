#include "cli/jobs/checkpoint_request.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/transport/retry.h"

namespace sluice::cli {
namespace {

constexpr uint32_t kCheckpointWaitMs = 5000;
constexpr absl::Duration kCheckpointPause = absl::Milliseconds(300);  // between two questions

}  // namespace

absl::StatusOr<CheckpointJobReply> RequestCheckpoint(const std::string& job_id, bool wait,
                                                     SchedulerClient* client, Clock* clock) {
  CheckpointJobRequest request;
  request.set_job_id(job_id);
  request.set_wait_ms(wait ? kCheckpointWaitMs : 0);
  SilenceTimer silence;
  for (;;) {
    const auto reply = client->CheckpointJob(request);
    if (!reply.ok()) {
      if (!GotNoAnswer(reply.status()) || silence.Unanswered(clock->Now()) >= kTakeoverPatience)
        return reply.status();
      // Another scheduler may answer next, and it does not know the number that this one gave.
      request.set_number(0);
      clock->Sleep(kCheckpointPause);
      continue;
    }
    silence.Answered();
    if (reply->done() && !reply->error().empty()) {
      return absl::InternalError(
          absl::StrCat("the checkpoint of job ", job_id, " failed: ", reply->error()));
    }
    if (reply->done() || !wait) return reply;
    // The next question is about the checkpoint that this one has started, and starts no other.
    request.set_number(reply->number());
  }
}

}  // namespace sluice::cli
