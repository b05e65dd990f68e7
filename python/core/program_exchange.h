// Where the training thread and the program's thread meet: the one hands over a step, the other
// computes it and hands the result back.
//
// The program's thread is the one that runs the user's loop. It is the only one that holds Python's
// interpreter lock, and this class knows nothing of Python.
//
// Invariants:
// - At most one turn is open. Whoever has taken it may use the memory behind it until it answers or
//   fails; meanwhile Run does not return, whatever happens to the job.
// - After End or Fail no turn is ever handed over, and after Leave none that trains.
//
// Thread safety: safe from any thread. Run is called by one thread at a time, and so are Take and
// Answer.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "model/net/dense_net.h"
#include "python/core/slot_rows.h"
#include "python/core/turn_gradients.h"

namespace sluice {

// One batch for the program, the question for its state, or the end of an epoch. Pointers are valid
// until it has answered. Of the first three one is set; none: the training of the epoch has ended.
struct ProgramTurn {
  TurnGradients* gradients = nullptr;  // it trains
  float* logits = nullptr;             // [B]; it evaluates
  // It gives the state that it keeps beside the tables. Such a turn has no batch.
  std::string* state = nullptr;
  // An evaluation: the program adds its own metrics. A later sum of a name is added to the first
  // one.
  std::vector<MetricSum>* sums = nullptr;
  // The first turn of an attempt of the job that trains or ends an epoch, or the first one that
  // evaluates if a state is restored: the program goes on from `restored`; null: from where it
  // began.
  bool begins = false;
  const std::string* restored = nullptr;
  const NetInput* input = nullptr;
  const SlotRows* rows = nullptr;
  uint64_t seed = 0;
  uint32_t epoch = 0;  // from 0

  bool trains() const { return gradients != nullptr; }
  bool saves() const { return state != nullptr; }
  bool ends_epoch() const { return !trains() && !saves() && logits == nullptr; }
};

class ProgramExchange {
 public:
  // ---- The training thread.

  // Hands the turn over and waits for the answer, which it returns. CANCELLED: `cancelled` was set
  // before the program took the turn. OUT_OF_RANGE: the program has left its loop before this step.
  // The error of Fail: the program cannot go on.
  // `meanwhile`: called on this thread every kMeanwhile while it waits. If it fails, the turn is
  // withdrawn, and its error is returned.
  using Meanwhile = std::function<absl::Status()>;
  absl::Status Run(const ProgramTurn& turn, const std::atomic<bool>& cancelled,
                   const Meanwhile& meanwhile = nullptr);
  // Call after `cancelled` of a Run was set: it then looks. A turn that is taken is not touched.
  void Wake();
  // The job has ended, well or not: there are no more turns.
  void End(absl::Status how);

  // Whether the program has a state beside the tables, so that turns may ask for it. Known once a
  // batch was answered.
  bool keeps_state() const { return keeps_state_; }

  // ---- The program's thread.

  // Call before the first Take.
  void KeepState() { keeps_state_ = true; }

  // Waits at most `at_most` for a turn and takes it. Null: none yet; ask again. OUT_OF_RANGE: the
  // job has ended well. Any other error: it has ended with this error.
  // REQUIRES: the last turn is answered.
  absl::StatusOr<const ProgramTurn*> Take(absl::Duration at_most);
  // Whether the program may go on waiting for other ranks. ABORTED: not in this turn, which was
  // withdrawn. Other errors as of Take.
  absl::Status MayWait();
  // Hands the turn back.
  // REQUIRES: a turn is taken.
  void Answer(absl::Status result);
  // The program has left its loop: it takes no turn that trains any more, and a turn that it has
  // taken is no step. It goes on to take those of evaluations.
  void Leave();
  // The program cannot go on: an open turn, and every later one, ends with this error.
  void Fail(absl::Status why);

 private:
  static constexpr absl::Duration kMeanwhile = absl::Milliseconds(20);
  absl::Status Offer(const ProgramTurn& turn);
  // Waits at most `at_most` for the result of the turn; nothing: there is none yet. `withdrawn`:
  // not OK, the error with which the turn is withdrawn.
  std::optional<absl::Status> AwaitAnswer(const std::atomic<bool>& cancelled,
                                          const absl::Status& withdrawn, absl::Duration at_most);

  enum class State { kIdle, kOffered, kTaken, kAnswered };

  std::atomic<bool> keeps_state_{false};  // a flag only; it guards no data
  Mutex mutex_;
  CondVar changed_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kIdle;
  ProgramTurn turn_ ABSL_GUARDED_BY(mutex_);
  absl::Status answer_ ABSL_GUARDED_BY(mutex_);
  bool withdrawn_ ABSL_GUARDED_BY(mutex_) = false;  // nobody needs the answer of the turn
  bool left_ ABSL_GUARDED_BY(mutex_) = false;       // by Leave
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
