#include "worker/service/program_end.h"

#include "common/daemon/control_plane.h"
#include "common/transport/retry.h"

namespace sluice {
namespace {

constexpr absl::Duration kAskAgain = absl::Milliseconds(200);

}  // namespace

void ProgramEnd::Set(const EarlyEnd& end) {
  // First: a wait that the callback ends looks at it.
  end_.Set(end);
  if (options_.ends) options_.ends(end);
}

EndJobRequest ProgramEnd::Request() const {
  EndJobRequest request;
  request.set_job_id(options_.job_id);
  const MemberKey key = options_.key();
  request.set_member_id(key.id);
  request.set_secret(key.secret);
  request.set_rank(options_.rank);
  request.set_incarnation(options_.incarnation);
  return request;
}

absl::Status ProgramEnd::CancelJob() {
  EndJobRequest request = Request();
  request.set_cancels(true);
  return options_.scheduler->EndJob(request);
}

absl::Status ProgramEnd::EndTraining(uint64_t steps) {
  SilenceTimer silence;
  for (;;) {
    if (*options_.cancelled) return absl::CancelledError("the job was cancelled");
    // Anew each time: the process may have registered again.
    EndJobRequest request = Request();
    request.set_last_step(steps);
    const absl::Status told = options_.scheduler->EndJob(request);
    if (told.ok()) {
      EarlyEnd end;
      end.set_last_step(steps);
      Set(end);
      return absl::OkStatus();
    }
    // NOT_FOUND: a scheduler that was started again does not know this process yet.
    if ((!MayBeAnsweredLater(told) && !absl::IsNotFound(told)) ||
        silence.Unanswered(options_.clock->Now()) > options_.patience) {
      return told;
    }
    options_.clock->Sleep(kAskAgain);
  }
}

}  // namespace sluice
