#include "python/core/program_group.h"

#include <algorithm>
#include <utility>

#include "common/transport/retry.h"

namespace sluice {
namespace {

// A question is over soon after nobody needs its answer any more.
constexpr uint32_t kWaitMs = 200;

}  // namespace

ProgramGroup::ProgramGroup(Options options)
    : options_(std::move(options)), thread_([this] { Run(); }) {}

ProgramGroup::~ProgramGroup() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void ProgramGroup::Begin(Call call) { Put(std::move(call), /*once=*/false); }

void ProgramGroup::Pass(Call call) { Put(std::move(call), /*once=*/true); }

void ProgramGroup::Put(Call call, bool once) {
  MutexLock lock(&mutex_);
  ++calls_;
  call_ = std::move(call);
  once_ = once;
  result_.reset();
  changed_.NotifyAll();
}

absl::StatusOr<std::optional<ProgramGroup::Given>> ProgramGroup::Await(absl::Duration at_most) {
  MutexLock lock(&mutex_);
  // Once: the caller asks again.
  if (!result_.has_value()) changed_.WaitFor(&mutex_, absl::ToChronoNanoseconds(at_most));
  if (!result_.has_value()) return std::nullopt;
  if (!result_->ok()) return result_->status();
  return std::optional<Given>(**result_);
}

void ProgramGroup::Drop() {
  MutexLock lock(&mutex_);
  call_.reset();
  result_.reset();
}

void ProgramGroup::Run() {
  for (;;) {
    Call call;
    uint64_t number = 0;
    bool once = false;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && (!call_.has_value() || result_.has_value())) changed_.Wait(&mutex_);
      if (stopping_) return;
      call = *call_;
      number = calls_;
      once = once_;
    }
    const absl::Time begin = options_.clock->Now();
    bool heard = false;
    std::optional<absl::StatusOr<Given>> result = Ask(call, once ? 0 : kWaitMs, &heard);
    const bool soon = !result.has_value() && options_.clock->Now() - begin < options_.pause;
    MutexLock lock(&mutex_);
    if (stopping_) return;
    // Another call may have begun meanwhile.
    if (number != calls_ || !call_.has_value()) continue;
    if (once && heard) {
      call_.reset();
      continue;
    }
    result_ = std::move(result);
    if (result_.has_value()) {
      changed_.NotifyAll();
    } else if (soon) {
      changed_.WaitFor(&mutex_, absl::ToChronoNanoseconds(options_.pause));
    }
  }
}

std::optional<absl::StatusOr<ProgramGroup::Given>> ProgramGroup::Ask(const Call& call,
                                                                     uint32_t wait_ms,
                                                                     bool* heard) {
  std::optional<GatherRequest> request = options_.self();
  if (!request.has_value()) return std::nullopt;
  if (call.rank.has_value() && *call.rank != request->rank())
    return absl::AbortedError("this worker has another rank now");
  request->set_epochs_done(call.epochs_done);
  request->set_number(call.number);
  request->set_what(call.what);
  request->set_data(call.data);
  request->set_wait_ms(wait_ms);
  const absl::StatusOr<GatherReply> reply = options_.ask(*request);
  if (reply.ok()) {
    *heard = true;
    if (!reply->ready()) return std::nullopt;
    return Given(reply->data().begin(), reply->data().end());
  }
  const absl::Status& status = reply.status();
  // The worker itself hears of the end of its job, and of that of the scheduler.
  if (MayBeAnsweredLater(status) || absl::IsCancelled(status) || absl::IsNotFound(status))
    return std::nullopt;
  if (absl::IsAborted(status) && call.epochs_done == 0) return std::nullopt;
  *heard = true;
  return status;
}

}  // namespace sluice
