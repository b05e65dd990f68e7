#include "cli/submit_job.h"

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/random_id.h"
#include "common/base/status_macros.h"
#include "common/transport/retry.h"

namespace sluice::cli {

absl::StatusOr<SubmitJobReply> SubmitJob(SchedulerClient* client, const SubmitJobRequest& request,
                                         absl::Duration patience,
                                         const std::function<absl::Status()>& check_cluster) {
  const std::string request_id = absl::StrCat(absl::Hex(RandomId(), absl::kZeroPad16));
  const absl::Time end = Clock::Real()->Now() + patience;
  for (;;) {
    auto reply = client->SubmitJobAs(request_id, request);
    if (!GotNoAnswer(reply.status()) || Clock::Real()->Now() >= end) return reply;
    if (check_cluster) SLUICE_RETURN_IF_ERROR(check_cluster());
    Clock::Real()->Sleep(absl::Milliseconds(100));
  }
}

}  // namespace sluice::cli
