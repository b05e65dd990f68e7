#include "scheduler/job/resume_point.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "common/saved_model/checkpoint.h"

namespace sluice {
namespace {

ResumePoint Point() {
  ResumePoint point;
  point.dir = "/c/step-9";
  CheckpointState* state = point.manifest.mutable_checkpoint();
  state->set_mode("sync");
  state->set_worker_num(2);
  state->set_global_batch(20);
  state->set_epoch(1);
  state->set_steps_done(4);
  state->set_steps_per_epoch(5);
  for (const uint64_t n : {1, 2}) {
    WorkerState* worker = state->add_workers();
    TrainReport* train = worker->mutable_train();
    train->set_examples(10 * n);
    train->set_dropped(n);
    train->set_bad_lines(n);
    train->set_loss_sum(0.5 * n);
    train->set_weight_sum(n);
    train->set_steps(4);
    train->mutable_stages()->set_compute(n);
    train->add_first_bad_lines("line");
    worker->set_net_state("net");
  }
  return point;
}

TEST(ResumePointTest, RanksKeepTheirStates) {
  const auto states = StatesOfRanks(Point().state(), 2);
  ASSERT_EQ(states.size(), 2u);
  EXPECT_EQ(states[0].train().examples(), 10u);
  EXPECT_EQ(states[1].train().examples(), 20u);
  EXPECT_EQ(states[1].net_state(), "net");
}

TEST(ResumePointTest, WithOtherRanksTheSumsGoToRankZero) {
  for (const uint32_t ranks : {1, 3}) {
    const auto states = StatesOfRanks(Point().state(), ranks);
    ASSERT_EQ(states.size(), ranks);
    const TrainReport& sum = states[0].train();
    EXPECT_EQ(sum.examples(), 30u);
    EXPECT_EQ(sum.dropped(), 3u);
    EXPECT_EQ(sum.bad_lines(), 3u);
    EXPECT_EQ(sum.loss_sum(), 1.5);
    EXPECT_EQ(sum.weight_sum(), 3);
    EXPECT_EQ(sum.steps(), 4u);  // all ranks do every step
    EXPECT_EQ(sum.stages().compute(), 3);
    EXPECT_EQ(sum.first_bad_lines_size(), 2);
    for (uint32_t rank = 1; rank < ranks; ++rank) EXPECT_FALSE(states[rank].has_train());
    // Each rank keeps the state of its network, and one more rank begins without.
    if (ranks == 3) {
      EXPECT_EQ(states[1].net_state(), "net");
      EXPECT_EQ(states[2].net_state(), "");
    }
  }
}

TEST(ResumePointTest, GeoStateStaysWithTheSameRanksOnly) {
  ResumePoint point = Point();
  point.manifest.mutable_checkpoint()->set_mode("geo");
  for (WorkerState& worker : *point.manifest.mutable_checkpoint()->mutable_workers())
    worker.mutable_file()->set_name("worker");
  EXPECT_TRUE(StatesOfRanks(point.state(), 2)[1].has_file());
  for (const uint32_t ranks : {1, 3}) {
    const auto states = StatesOfRanks(point.state(), ranks);
    EXPECT_FALSE(states[0].has_file());
    EXPECT_EQ(states[0].train().steps(), 8u) << "of all ranks";
  }
}

TEST(ResumePointTest, AsyncCountsMeanSteps) {
  ResumePoint point = Point();
  CheckpointState* state = point.manifest.mutable_checkpoint();
  state->set_mode("async");
  state->clear_global_batch();
  state->clear_steps_done();
  state->clear_steps_per_epoch();
  state->mutable_result()->set_global_step(100);
  EXPECT_EQ(MeanSteps(*state), 54u);  // (100 + 4 + 4) / 2
}

TEST(IsOfInstancesTest, TheNamesOfFilesTellWhoMadeACheckpoint) {
  const std::vector<uint64_t> instances = {7, 9};
  Manifest manifest;
  manifest.add_files()->set_name("table-0.shard");
  EXPECT_FALSE(IsOfInstances(manifest, instances));
  SavedFile* const file = manifest.add_files();
  const auto is_own = [&](const std::string& id) {
    file->set_name(absl::StrCat("job.", id, ".textproto"));
    return IsOfInstances(manifest, instances);
  };
  for (const uint64_t number : {1, 2, 1'000'000}) {
    EXPECT_TRUE(is_own(CheckpointSaveId(7, number))) << number;
    EXPECT_TRUE(is_own(CheckpointSaveId(9, number))) << number;
    EXPECT_FALSE(is_own(CheckpointSaveId(8, number))) << number;
  }
  EXPECT_FALSE(is_own(CheckpointSaveId(7, 0))) << "numbers begin at 1";
  file->set_name(absl::StrCat("a.b-0.", CheckpointSaveId(9, 3), ".shard"));
  EXPECT_TRUE(IsOfInstances(manifest, instances));
  EXPECT_FALSE(is_own("a"));
  file->set_name("job.textproto");  // a model that is no checkpoint
  EXPECT_FALSE(IsOfInstances(manifest, instances));
}

TEST(StepCountTest, StepsOfAllRanksBecomeTheMeanOfTheJob) {
  const StepCount fresh(nullptr, /*before=*/0, /*worker_num=*/2);
  EXPECT_EQ(fresh.At(0), 0u);
  EXPECT_EQ(fresh.At(415), 207u);
  EXPECT_EQ(StepCount(nullptr, /*before=*/416, 2).At(20), 218u);
}

TEST(StepCountTest, AJobWithOtherRanksCountsOnFromItsCheckpoint) {
  CheckpointState state;
  state.set_global_step(208);
  state.mutable_result()->set_global_step(200);
  for (const uint64_t steps : {100, 116}) state.add_workers()->mutable_train()->set_steps(steps);
  // Four ranks instead of two, in the epoch of the checkpoint and in the next one.
  const StepCount in_epoch(&state, /*before=*/200, /*worker_num=*/4);
  EXPECT_EQ(in_epoch.At(0), 208u) << "nobody has reported yet";
  EXPECT_EQ(in_epoch.At(216), 208u);
  EXPECT_EQ(in_epoch.At(216 + 40), 218u);
  EXPECT_EQ(StepCount(&state, /*before=*/616, 4).At(4), 259u);
}

}  // namespace
}  // namespace sluice
