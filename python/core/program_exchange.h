// Where the training thread and the program's thread meet: the one hands over a step, the other
// computes it and hands the result back.
//
// The program's thread is the one that runs the user's loop. It is the only one that holds Python's
// interpreter lock, and this class knows nothing of Python.
//
// Invariants:
// - At most one turn is open. Whoever has taken it may use the memory behind it until it answers or
//   fails; meanwhile Run does not return, whatever happens to the job.
// - After End or Fail no turn is ever handed over.
//
// Thread safety: safe from any thread. Run is called by one thread at a time, and so are Take and
// Answer.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "model/net/dense_net.h"
#include "python/core/slot_rows.h"

namespace sluice {

// One batch for the program. Pointers are valid until it has answered.
struct ProgramTurn {
  // Null: the program computes logits for an evaluation; else it trains.
  NetGradients* gradients = nullptr;
  float* logits = nullptr;  // [B]; only for an evaluation
  const NetInput* input = nullptr;
  const SlotRows* rows = nullptr;
  uint64_t seed = 0;
  uint32_t epoch = 0;  // from 0

  bool trains() const { return gradients != nullptr; }
};

class ProgramExchange {
 public:
  // ---- The training thread.

  // Hands the turn over and waits for the answer, which it returns. CANCELLED: `cancelled` was set
  // before the program took the turn. The error of Fail: the program cannot go on.
  absl::Status Run(const ProgramTurn& turn, const std::atomic<bool>& cancelled);
  // Call after `cancelled` of a Run was set: it then looks. A turn that is taken is not touched.
  void Wake();
  // The job has ended, well or not: there are no more turns.
  void End(absl::Status how);

  // ---- The program's thread.

  // Waits at most `at_most` for a turn and takes it. Null: none yet; ask again. OUT_OF_RANGE: the
  // job has ended well. Any other error: it has ended with this error.
  // REQUIRES: the last turn is answered.
  absl::StatusOr<const ProgramTurn*> Take(absl::Duration at_most);
  // Hands the turn back.
  // REQUIRES: a turn is taken.
  void Answer(absl::Status result);
  // The program cannot go on: an open turn, and every later one, ends with this error.
  void Fail(absl::Status why);

 private:
  enum class State { kIdle, kOffered, kTaken, kAnswered };

  Mutex mutex_;
  CondVar changed_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kIdle;
  ProgramTurn turn_ ABSL_GUARDED_BY(mutex_);
  absl::Status answer_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
