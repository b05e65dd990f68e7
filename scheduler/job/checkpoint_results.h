// What has become of a job's checkpoints: the newest complete one, the outcomes of the last few,
// counts and errors for the status, and the folders of those that were given up and must go.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "proto/model.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

class CheckpointResults {
 public:
  struct Outcome {
    uint64_t number = 0;
    std::string error;  // empty: complete
    std::string dir;
    uint64_t step = 0;
    uint64_t followed_by = 0;  // a demanded one: the number that replaces it; 0: none does
  };
  // A checkpoint or export that was given up and whose files must be removed.
  struct Discard {
    uint64_t number = 0;
    uint64_t step = 0;
    std::string why;  // it was given up; only the first time
    uint64_t instance = 0;
    bool is_export = false;
  };

  // root: the folder of the checkpoints.
  CheckpointResults(std::string root, absl::Time now);

  // The newest complete checkpoint was cut at `cut_at`, before these results began. `of_job`: by
  // this job. `instance`: of the run that has made it, if lost shards may continue there.
  void SetNewest(const Manifest& manifest, absl::Time cut_at, bool of_job,
                 std::optional<uint64_t> instance);
  // Continues the counts of an earlier scheduler, and the time in which the job has made none.
  void Continue(const CheckpointStatus& before, absl::Time now);

  // A number that was used up before its checkpoint had begun.
  void Skip(uint64_t number, const std::string& error, uint64_t followed_by);
  // The checkpoint is in force.
  void Complete(uint64_t number, Manifest manifest, uint64_t instance, absl::Time begun_at,
                absl::Time now);
  // The checkpoint was given up. `counts`: as failed. Its files go twice: at once, to free the
  // space, and again when every writer has stopped, since a pserver that has not heard of it yet
  // may create another file.
  void GiveUp(const Discard& given_up, bool counts, uint64_t followed_by, absl::Time now);
  void DiscardFiles(const Discard& given_up, absl::Time now);
  // By then the writers of all that was given up have stopped.
  absl::Time writers_stop_at() const { return writers_stop_at_; }
  // As if one were given up now.
  void ExpectWriters(absl::Time now);

  // The number that has taken the place of a demanded one; `number` itself when none has.
  uint64_t Followed(uint64_t number) const;
  // Null while the checkpoint is not over, or when too many others have followed.
  const Outcome* OutcomeOf(uint64_t number) const;
  // Returns what is due, or everything: a job that has ended writes no more, and its files must go
  // now, because the scheduler may end soon.
  std::vector<Discard> TakeDiscards(absl::Time now, bool all);
  // Returns, once, the warning about the first failure after a success.
  std::string TakeWarning() { return std::exchange(warning_, ""); }

  // True when the newest complete one is of the end of this epoch, or of this global step, and the
  // run has not begun before it (GoBack).
  bool IsOfEnd(uint32_t epoch) const { return newest_end_ == epoch; }
  bool IsOfStep(uint64_t step) const { return newest_at_ == step; }
  // The run begins after `step` global steps, and trains to ends that it may have reached before.
  void GoBack(uint64_t step);

  uint64_t newest_step() const { return newest_.step(); }
  // Null: this job has completed none.
  const Manifest* newest_manifest() const { return complete_ ? &*complete_ : nullptr; }
  uint64_t newest_instance() const { return complete_instance_; }
  // Without `doing`. age_s: until there is a checkpoint, the age of the job, if `has_rules`.
  CheckpointStatus status(bool has_rules, absl::Time now) const;

 private:
  void Add(Outcome outcome);

  const std::string root_;
  std::deque<Outcome> outcomes_;                          // the newest, by rising numbers
  std::vector<std::pair<absl::Time, Discard>> discards_;  // due at that time
  absl::Time writers_stop_at_ = absl::InfinitePast();
  std::optional<Manifest> complete_;  // the newest
  uint64_t complete_instance_ = 0;
  std::optional<uint32_t> newest_end_;
  std::optional<uint64_t> newest_at_;
  CheckpointStatus newest_;  // step, bytes, seconds, made, failed, last_error, dir
  absl::Time newest_cut_at_;
  absl::Time first_run_at_;  // of the job, as far as is known
  std::string warning_;
};

}  // namespace sluice
