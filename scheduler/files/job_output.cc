#include "scheduler/files/job_output.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/files/job_folder.h"

namespace sluice {
namespace {

// The memory of a batch that may be dropped; 0: the action must be written.
size_t BatchBytes(const OutputAction& action) {
  switch (action.kind) {
    case OutputAction::kTrace:
      return sizeof(action) + action.trace.batch.SpaceUsedLong() +
             action.trace.member.SpaceUsedLong();
    case OutputAction::kScalars: {
      size_t bytes = sizeof(action);
      for (const Scalar& scalar : action.scalars) bytes += sizeof(scalar) + scalar.tag.size();
      return bytes;
    }
    default:
      return 0;
  }
}

}  // namespace

void JobOutput::Stop() {
  std::list<Lane> lanes;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    // Queued actions are still written: a lane ends when its queue is empty.
    for (Lane& lane : lanes_) lane.ends = true;
    changed_.NotifyAll();
    lanes.splice(lanes.end(), lanes_);  // the threads keep the addresses of their lanes
    lane_of_job_.clear();
  }
  for (Lane& lane : lanes) {
    if (lane.thread.joinable()) {
      lane.thread.join();
    } else {
      Run(&lane);  // there was no thread for it
    }
  }
}

void JobOutput::Add(std::vector<OutputAction> actions) {
  MutexLock lock(&mutex_);
  // Events without actions call this too, which is a chance to start the threads that lanes still
  // lack.
  if (stopping_ || (actions.empty() && !without_thread_)) return;
  JoinEnded();
  for (OutputAction& action : actions) {
    Lane* const lane = LaneOf(action);
    if (action.kind == OutputAction::kEnded && lane_of_job_.erase(action.job_id) > 0)
      lane->ends = true;
    Queue(std::move(action), lane);
  }
  StartThreads();
  changed_.NotifyAll();
}

void JobOutput::StartThreads() {
  if (!without_thread_) return;
  for (Lane& lane : lanes_) {
    if (lane.thread.joinable()) continue;
    try {
      lane.thread = std::thread([this, lane = &lane] { Run(lane); });
    } catch (const std::system_error&) {  // the process has its limit of threads
      return;
    }
  }
  without_thread_ = false;
}

void JobOutput::Queue(OutputAction action, Lane* lane) {
  const size_t bytes = BatchBytes(action);
  if (bytes > 0) {
    if (lane->batches >= options_.max_batches ||
        lane->batch_bytes + bytes > options_.max_batch_bytes) {
      ++(action.kind == OutputAction::kTrace ? lane->dropped_traces : lane->dropped_curves);
      return;
    }
    ++lane->batches;
    lane->batch_bytes += bytes;
  }
  lane->queue.push_back({std::move(action), bytes});
}

std::optional<OutputAction> JobOutput::Next(Lane* lane) {
  MutexLock lock(&mutex_);
  while (lane->queue.empty() && !lane->ends) changed_.Wait(&mutex_);
  if (lane->queue.empty()) return std::nullopt;
  Queued next = std::move(lane->queue.front());
  lane->queue.pop_front();
  if (next.batch_bytes > 0) --lane->batches;
  lane->batch_bytes -= next.batch_bytes;
  return std::move(next.action);
}

void JobOutput::TellDropped(const OutputAction& written, Lane* lane) {
  uint64_t traces = 0, curves = 0;
  {
    MutexLock lock(&mutex_);
    if (lane->batches > 0 && written.kind != OutputAction::kEnded) return;
    std::swap(traces, lane->dropped_traces);
    std::swap(curves, lane->dropped_curves);
  }
  if (traces + curves == 0) return;
  options_.on_warning(written.job_id,
                      absl::StrCat("the disk of the job's folder was too slow: ", traces,
                                   " batches of its trace and ", curves,
                                   " batches of its curves were dropped; see to the disk"));
}

JobOutput::Lane* JobOutput::LaneOf(const OutputAction& action) {
  // The end of a job of an earlier scheduler may have to wait for its folder.
  const bool shared = action.kind != OutputAction::kStarted && !action.again &&
                      lane_of_job_.count(action.job_id) == 0;
  Lane*& lane = lane_of_job_[shared ? "" : action.job_id];
  if (lane == nullptr) {
    lane = &lanes_.emplace_back();
    without_thread_ = true;
  }
  return lane;
}

void JobOutput::JoinEnded() {
  for (auto it = lanes_.begin(); it != lanes_.end();) {
    if (!it->ended) {
      ++it;
      continue;
    }
    it->thread.join();  // returns at once: an ended thread does not take the lock again
    it = lanes_.erase(it);
  }
}

void JobOutput::Run(Lane* lane) {
  std::unique_ptr<JobFolder> folder;
  bool failed = false;
  while (const std::optional<OutputAction> next = Next(lane)) {
    const OutputAction& action = *next;
    // A lane that several jobs share uses a new JobFolder for each of them.
    if (folder == nullptr) {
      const auto end = std::chrono::steady_clock::now() + options_.folder_wait;
      folder = std::make_unique<JobFolder>(
          options_.env, options_.host, [this, end] { return Pause(end); }, options_.staging);
    }
    if (action.kind != OutputAction::kEnded) {
      Write(action, folder.get(), &failed);
      PassOnWarnings(action.job_id, folder.get());
      TellDropped(action, lane);
      continue;
    }
    TellDropped(action, lane);
    End(action, std::move(folder));
  }
  MutexLock lock(&mutex_);
  lane->ended = true;
}

bool JobOutput::Pause(std::chrono::steady_clock::time_point end) {
  MutexLock lock(&mutex_);
  if (!stopping_) changed_.WaitFor(&mutex_, std::chrono::milliseconds(100));
  return !stopping_ && std::chrono::steady_clock::now() < end;
}

void JobOutput::Write(const OutputAction& action, JobFolder* folder, bool* failed) {
  absl::Status status;
  switch (action.kind) {
    case OutputAction::kStarted:
      status = folder->Begin(action);
      if (const ThinCurves* const earlier = folder->earlier_curves();
          status.ok() && options_.on_curves && earlier != nullptr && earlier->point_count() > 0) {
        options_.on_curves(action.job_id, *earlier);
      }
      if (status.ok() && options_.on_begun) options_.on_begun(action.job_id);
      break;
    case OutputAction::kScalars:
      folder->AddScalars(action);
      return;
    case OutputAction::kTrace:
      folder->AddTrace(action);
      return;
    case OutputAction::kCheckpoint: {
      std::string warning;
      status = folder->Checkpoint(action, &warning);
      options_.on_checkpoint(action, status, warning);
      // A job that has lost its folder can save nothing more.
      if (absl::IsAborted(status)) break;
      return;
    }
    case OutputAction::kModels:
      folder->KeepModels(action);
      return;
    case OutputAction::kDiscard:
      folder->Discard(action);
      return;
    case OutputAction::kEnded:
      return;  // End writes it
  }
  // One failure ends the job. The ones that follow from it would only repeat it.
  if (status.ok() || *failed) return;
  *failed = true;
  options_.on_failed(action.job_id, status);
}

absl::Status JobOutput::EndFolder(const OutputAction& action, JobFolder* folder) {
  using Clock = std::chrono::steady_clock;
  const bool done = action.result.status() == "done";
  const Clock::time_point end = done ? Clock::time_point::max() : Clock::now() + options_.away_wait;
  std::chrono::milliseconds pause = options_.away_pause;
  // A job that could not begin has nothing to lose, and its mistake may be the name of the place.
  const bool begun = action.again || folder->claimed();
  for (;;) {
    absl::Status status = folder->End(action);
    if (!folder->IsAway(status) || !begun) return status;
    options_.on_away(action.job_id, status);
    const Clock::time_point next = std::min(end, Clock::now() + pause);
    while (Pause(next)) {
    }
    if (Clock::now() >= end) return status;
    if (Clock::now() < next) {
      return absl::AbortedError(absl::StrCat(
          "the scheduler ends before the place of the output answers: ", status.message(),
          "; a scheduler that is started again with the same --state_store writes the "
          "result"));
    }
    pause = std::min(2 * pause, options_.longest_away_pause);
  }
}

void JobOutput::End(const OutputAction& action, std::unique_ptr<JobFolder> folder) {
  const absl::Status status = EndFolder(action, folder.get());
  PassOnWarnings(action.job_id, folder.get());
  // Unlock the folder first: whoever hears of the end may start the next job in it.
  folder = nullptr;
  options_.on_ended(action.job_id, status);
}

void JobOutput::PassOnWarnings(const std::string& job_id, JobFolder* folder) {
  for (const std::string& warning : folder->TakeWarnings()) options_.on_warning(job_id, warning);
}

}  // namespace sluice
