// One worker's part in the calls that all ranks of a program make together (Gather).
//
// A call goes to the scheduler, which answers when every rank has made it. A thread of this class
// asks and asks again, so that the program's thread can look for signals, and can stop waiting,
// while the scheduler does not answer.
//
// A rank that was withdrawn before the first batch asks again as the rank that it becomes: nothing
// is trained yet that it could lose. At the end of an epoch its call ends instead, because the
// epoch may be trained again.
//
// Thread safety: one thread, the program's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "proto/scheduler.pb.h"

namespace sluice {

class ProgramGroup {
 public:
  struct Options {
    // Asks the scheduler. Waits for at most the wait_ms of the request, and for the answer.
    std::function<absl::StatusOr<GatherReply>(const GatherRequest&)> ask;
    // The job, rank, incarnation and pass of this worker at present; nothing: it has no job yet.
    std::function<std::optional<GatherRequest>()> self;
    Clock* clock = nullptr;                          // outlives the group
    absl::Duration pause = absl::Milliseconds(100);  // after a question that was answered early
  };
  explicit ProgramGroup(Options options);
  // Waits for the answer of the question that is under way.
  ~ProgramGroup();

  struct Call {
    uint32_t epochs_done = 0;  // 0: before the first batch
    uint32_t number = 0;       // of the call there
    std::string what;          // the same on all ranks
    std::string data;
    std::optional<uint32_t> rank;  // that gives the data; nothing: any
  };
  // Begins a call. It replaces the one before, if that is not over.
  void Begin(Call call);
  // Says once that this rank is there, without a wait for the others.
  void Pass(Call call);
  // What the ranks have given, by rank; nothing: not all have given yet, ask again. ABORTED: this
  // worker has become another rank, or its rank is withdrawn at the end of an epoch, which is
  // trained again. Other errors are the scheduler's answer. Waits at most `at_most`.
  // REQUIRES: Begin was called.
  using Given = std::vector<std::string>;
  absl::StatusOr<std::optional<Given>> Await(absl::Duration at_most);
  // Nobody waits for the call any more.
  void Drop();

 private:
  void Run();
  void Put(Call call, bool once);
  // One question. Nothing: ask again. *heard: the scheduler has answered it.
  std::optional<absl::StatusOr<Given>> Ask(const Call& call, uint32_t wait_ms, bool* heard);

  const Options options_;
  Mutex mutex_;
  CondVar changed_;
  uint64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;  // the number of those that have begun
  std::optional<Call> call_ ABSL_GUARDED_BY(mutex_);
  bool once_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::StatusOr<Given>> result_ ABSL_GUARDED_BY(mutex_);  // of call_
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice
