// Parts of a checkpoint, and a job with two pservers and two ranks that makes checkpoints.
#pragma once

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/saved_model/saved_model.h"
#include "scheduler/job/job_checkpoints.h"

namespace sluice {

inline constexpr absl::Time kStart = absl::UnixEpoch();

inline absl::Time At(double seconds) { return kStart + absl::Seconds(seconds); }

inline HostedCut Hosted(HostedCut::State state, uint64_t number, uint64_t step,
                        uint64_t written = 0) {
  HostedCut cut;
  cut.set_checkpoint(number);
  cut.set_state(state);
  cut.set_step(step);
  cut.set_written_bytes(written);
  if (state == HostedCut::FAILED) cut.set_error("no space left on the device");
  if (state == HostedCut::WRITTEN) {
    SavedFile* file = cut.add_files();
    file->set_name(absl::StrCat("of-", number, ".shard"));
    file->set_bytes(100);
  }
  return cut;
}

inline WorkerCut Worker(uint32_t rank, uint64_t number, uint64_t step) {
  WorkerCut cut;
  cut.set_rank(rank);
  cut.set_checkpoint(number);
  cut.set_step(step);
  cut.mutable_state()->mutable_train()->set_examples(10 * (rank + 1));
  return cut;
}

inline CheckpointState State(uint64_t step) {
  CheckpointState state;
  state.set_mode("sync");
  state.set_global_step(step);
  state.set_epoch(2);
  state.set_steps_done(step);
  state.set_steps_per_epoch(step + 1);
  state.mutable_result()->set_epochs(2);
  return state;
}

// The end of an epoch (from 0) of two ranks, as their reports say.
inline JobCheckpoints::EpochEnd End(uint32_t epoch, uint64_t step, bool last = false,
                                    Mode mode = Mode::kSync) {
  JobCheckpoints::EpochEnd end;
  end.epoch = epoch;
  end.step = step;
  end.last = last;
  end.state.set_mode(ModeName(mode));
  end.state.set_epoch(epoch);
  for (const uint32_t rank : {0, 1}) {
    WorkerState state;
    state.mutable_train()->set_examples(100 * (rank + 1));
    end.workers.push_back(state);
    if (mode != Mode::kSync) *end.state.add_workers() = state;
  }
  return end;
}

// Checkpoints of a job with two pservers, two ranks, 10 steps an epoch and 10 epochs.
class JobCheckpointsTest : public testing::Test {
 protected:
  JobCheckpoints Make(uint64_t every_steps, double every_s = 0, uint32_t every_epochs = 0,
                      uint64_t first_step = 0, bool at_end = false) {
    JobCheckpoints::Options options;
    options.config.set_every_steps(every_steps);
    options.config.set_every_s(every_s);
    options.config.set_every_epochs(every_epochs);
    options.config.set_at_end(at_end);
    options.root = "/ckpt";
    options.worker_num = options.pserver_num = 2;
    options.first_step = first_step;
    return JobCheckpoints(options, kStart);
  }
  // All parts of checkpoint `number` but those of the last rank.
  static void BringMost(JobCheckpoints* c, uint64_t number, uint64_t step, absl::Time now) {
    c->TakeHosted(0, Hosted(HostedCut::WRITTEN, number, step), now);
    EXPECT_TRUE(c->needs_state());
    c->SetState(State(step), now);
    c->TakeHosted(1, Hosted(HostedCut::WRITING, number, step), now);
    c->TakeWorker(Worker(0, number, step), now);
    c->TakeHosted(1, Hosted(HostedCut::WRITTEN, number, step), now);
  }
  // Completes checkpoint `number`, whose cut is at `from` and whose end is at `to`.
  static void Complete(JobCheckpoints* c, uint64_t number, uint64_t step, absl::Time from,
                       absl::Time to) {
    BringMost(c, number, step, from);
    c->TakeWorker(Worker(1, number, step), from);
    ASSERT_TRUE(c->TakeCommit().has_value());
    c->Committed(number, absl::OkStatus(), to);
  }
};

}  // namespace sluice
