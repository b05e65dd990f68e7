#include "worker/data/task_leases.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/transport/retry.h"

namespace sluice {
namespace {

constexpr absl::Duration kShort = absl::Seconds(1);
constexpr uint32_t kMostWanted = 64;
constexpr size_t kMostFinished = 1000;

}  // namespace

TaskLeases::TaskLeases(const JobContext& context, uint32_t epoch, Pace* pace)
    : context_(context), epoch_(epoch), pace_(pace != nullptr ? pace : &own_pace_) {}

void TaskLeases::Trained(uint64_t task_id, uint64_t examples) {
  MutexLock lock(&mutex_);
  trained_.emplace_back(task_id, examples);
}

bool TaskLeases::has_reports() {
  MutexLock lock(&mutex_);
  return !trained_.empty();
}

TaskLeases::Reports TaskLeases::TakeReports() {
  MutexLock lock(&mutex_);
  const size_t n = std::min(trained_.size(), kMostFinished);
  const auto end = trained_.begin() + static_cast<ptrdiff_t>(n);
  Reports taken(trained_.begin(), end);
  // The next requests report those that are left.
  trained_.erase(trained_.begin(), end);
  return taken;
}

absl::StatusOr<NextTaskReply> TaskLeases::AskScheduler(const Reports& finished) {
  NextTaskRequest request;
  request.set_job_id(context_.spec->job_id());
  request.set_rank(context_.rank);
  request.set_incarnation(context_.incarnation);
  request.set_pass(context_.pass);
  request.set_epoch(epoch_);
  for (const auto& [task, examples] : finished) {
    if (request.finished_task() == 0) {
      request.set_finished_task(task);
      request.set_finished_examples(examples);
    } else {
      NextTaskRequest::Finished* const more = request.add_more_finished();
      more->set_task(task);
      more->set_examples(examples);
    }
  }
  Pace pace;
  pace.asked_at = context_.clock->Now();
  if (pace.asked_at - pace_->asked_at < kShort)
    pace.wants = std::min(2 * pace_->wants, kMostWanted);
  request.set_wants(pace.wants);
  // A retried call keeps its number. If the reply with a task was lost, the scheduler sends the
  // same task again.
  request.set_number(++calls_);
  SilenceTimer silence;
  for (;;) {
    absl::StatusOr<NextTaskReply> reply = context_.scheduler->NextTask(request);
    if (reply.ok() && reply->kind() == NextTaskReply::TASK) *pace_ = pace;
    if (reply.ok() && reply->kind() != NextTaskReply::WAIT) return reply;
    if (*context_.cancelled) return absl::CancelledError("the job was cancelled");
    if (reply.ok()) {
      // The call was answered with WAIT, so that the next one is a new call.
      if (!reply->same_number()) request.set_number(++calls_);
      silence.Answered();
    } else if (!MayBeAnsweredLater(reply.status()) ||
               silence.Unanswered(context_.clock->Now()) > context_.scheduler_patience) {
      return reply.status();
    }
    context_.clock->Sleep(absl::Milliseconds(100));
  }
}

absl::StatusOr<std::optional<DataTask>> TaskLeases::Next() {
  if (leased_.empty()) {
    const Reports finished = TakeReports();
    SLUICE_ASSIGN_OR_RETURN(NextTaskReply reply, AskScheduler(finished));
    // After the reply: until then the scheduler may not know of the tasks.
    for (const auto& one : finished) context_.stats->TaskAcknowledged(one.first);
    if (reply.kind() == NextTaskReply::EPOCH_DONE) return std::nullopt;
    leased_.push_back(std::move(*reply.mutable_task()));
    leased_.insert(leased_.end(), reply.more().begin(), reply.more().end());
  }
  DataTask next = std::move(leased_.front());
  leased_.pop_front();
  return next;
}

}  // namespace sluice
