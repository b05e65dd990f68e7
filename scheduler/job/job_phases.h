// Holds a job's list of phases, and which ranks have ended the present one.
//
//   training        INDEX  (TRAIN e  [EVAL e])*  [SAVE]  FINISH
//   save: BEST      INDEX  (TRAIN e  [EVAL e  SAVE e])*  FINISH
//   evaluate only   INDEX  EVAL  FINISH
//   resumed         as training, from TRAIN of the checkpoint's epoch on
//
// With save: BEST, SAVE e is left out unless evaluation e is the best so far. A job that stops
// early leaves out the rest of its training. One whose program ends it goes from TRAIN e to the
// last evaluation.
//
// Invariants: phase numbers are 1, 2, ...; a phase is issued when every rank has ended the one
// before.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// `config` is effective. Numbers, kinds and epochs only; the rest is known when a phase is issued.
// A resumed job begins to train in `first_epoch`.
std::vector<Phase> ListPhases(const JobConfig& config, uint32_t first_epoch = 0);

// True when an evaluation follows this epoch (from 0).
bool IsEvaluatedAfter(const JobConfig& config, uint32_t epoch);

class JobPhases {
 public:
  JobPhases(std::vector<Phase> phases, uint32_t worker_num);

  const Phase& current() const { return phases_[current_]; }
  // For fields that are known only when the phase starts (step counts, folder).
  Phase* mutable_current() { return &phases_[current_]; }
  bool over() const { return current().kind() == Phase::FINISH; }

  bool Ended(uint32_t rank) const { return ended_[rank]; }
  // True when this is the rank's first report that the present phase has ended. False for a
  // repetition, such as a report on an earlier phase. INVALID_ARGUMENT for a phase that was not
  // issued.
  // REQUIRES: rank < worker_num.
  absl::StatusOr<bool> IsNews(uint32_t rank, uint64_t number) const;
  void MarkEnded(uint32_t rank) { ended_[rank] = true; }
  bool AllEnded() const;
  // True when a TRAIN phase is the present one or will come.
  bool TrainsMore() const;
  std::vector<uint32_t> Missing() const;  // ranks that have not ended the present phase
  // REQUIRES: AllEnded() and not over().
  void Advance();
  // Leaves out what remains of the training. The final SAVE follows, if there is one and `save` is
  // set; else FINISH.
  void SkipTraining(bool save);
  // Leaves out all that remains before the last evaluation.
  // REQUIRES: there is one.
  void SkipToLastEvaluation();
  // Makes the phase with this number the present one, which no rank has ended. DATA_LOSS: there is
  // no such phase.
  absl::Status GoTo(uint64_t number);

 private:
  std::vector<Phase> phases_;
  size_t current_ = 0;
  std::vector<bool> ended_;
};

const char* PhaseName(Phase::Kind kind);  // "index", "train", "eval", "save", "finish"

}  // namespace sluice
