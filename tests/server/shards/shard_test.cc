// Checks what shards of both kinds share, on a block of four values that begin at 1. Its rule is
// SGD with learning rate 0.5.
#include "server/shards/shard.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/server/replicated_job.h"

namespace sluice {
namespace {

UpdatePolicy PolicyOf(Mode mode, uint32_t gradients_to_wait = 1) {
  UpdatePolicy policy;
  policy.mode = mode;
  policy.worker_num = 2;
  policy.gradients_to_wait = gradients_to_wait;
  return policy;
}

std::unique_ptr<Shard> NewBlock(const UpdatePolicy& policy) {
  return MakeDenseShard(LayoutsOf(MakeSpec(policy.worker_num, true, 0))[0], 0, policy);
}

// One push; `frame` is rank, incarnation, sequence and weight.
PartStatus StatusOfPush(Shard* block, const FrameId& frame, float gradient) {
  return PushToBlock(block, frame, gradient).status;
}

float ValueOf(Shard* block) { return ValuesOf(block)[3]; }

uint64_t AllocatedBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST(ShardTest, RankStateBytesIsWhatAShardAllocatesForItsRanks) {
  for (UpdatePolicy policy : {PolicyOf(Mode::kSync), PolicyOf(Mode::kAsync), PolicyOf(Mode::kGeo),
                              PolicyOf(Mode::kAsync, /*gradients_to_wait=*/3)}) {
    policy.worker_num = 100'000;
    const TableLayouts layouts = LayoutsOf(MakeSpec(policy.worker_num, true, 0));
    const uint64_t before = AllocatedBytes();
    if (before == 0) GTEST_SKIP() << "this allocator does not count";
    const auto block = MakeDenseShard(layouts[0], 0, policy);
    const auto allocated = static_cast<double>(AllocatedBytes() - before);
    EXPECT_NEAR(allocated / Shard::RankStateBytes(policy), 1, 0.01);
  }
}

TEST(ShardTest, AsyncAppliesEachFrameOfTheNewestLifeOnceAndInOrder) {
  const auto block = NewBlock(PolicyOf(Mode::kAsync));
  EXPECT_EQ(StatusOfPush(block.get(), {0, 1, 1, 1}, 2), PART_OK);
  EXPECT_EQ(ValueOf(block.get()), 0.0f);
  EXPECT_EQ(StatusOfPush(block.get(), {0, 1, 1, 1}, 2), PART_OK) << "repeated";
  const ApplyResult gap = PushToBlock(block.get(), {0, 1, 3, 1}, 2);
  EXPECT_EQ(gap.status, PART_OUT_OF_ORDER);
  EXPECT_EQ(gap.last_sequence, 1u);
  EXPECT_EQ(ValueOf(block.get()), 0.0f);
  EXPECT_EQ(StatusOfPush(block.get(), {0, 2, 1, 1}, 2), PART_OK) << "a new life begins at 1";
  EXPECT_EQ(StatusOfPush(block.get(), {0, 1, 2, 1}, 2), PART_STALE_INCARNATION);
  EXPECT_EQ(StatusOfPush(block.get(), {1, 1, 1, 1}, 2), PART_OK);
  EXPECT_EQ(ValueOf(block.get()), -2.0f);
  block->Fence(1, 5);
  EXPECT_EQ(StatusOfPush(block.get(), {1, 4, 1, 1}, 2), PART_STALE_INCARNATION);
  const std::vector<RankPosition> positions = block->Positions();
  ASSERT_EQ(positions.size(), 2u);
  EXPECT_EQ(positions[0].incarnation(), 2u);
  EXPECT_EQ(positions[0].sequence(), 1u);
  EXPECT_EQ(positions[1].incarnation(), 1u) << "of the last frame, not of the fence";
}

TEST(ShardTest, SyncBuffersTheOpenStepAloneAndAppliesItsMeanWhenItCloses) {
  const auto block = NewBlock(PolicyOf(Mode::kSync));
  EXPECT_EQ(StatusOfPush(block.get(), {0, 1, 1, 1}, 2), PART_OK);
  EXPECT_EQ(StatusOfPush(block.get(), {1, 1, 1, 3}, 6), PART_OK);
  EXPECT_EQ(StatusOfPush(block.get(), {0, 1, 2, 1}, 2), PART_OUT_OF_ORDER) << "step 1 is open";
  EXPECT_EQ(StatusOfPush(block.get(), {0, 2, 1, 1}, 100), PART_OK)
      << "a later life repeats the step";
  EXPECT_EQ(ValueOf(block.get()), 1.0f);
  block->CloseStep(1);
  EXPECT_EQ(ValueOf(block.get()), -1.5f);  // (1 x 2 + 3 x 6) / 4 = 5
  // A part without values still counts, with its examples.
  PushPart empty;
  EXPECT_EQ(StatusOfPush(block.get(), {0, 2, 2, 1}, 4), PART_OK);
  EXPECT_EQ(block->Apply({1, 1, 2, 3}, &empty).status, PART_OK);
  EXPECT_EQ(block->LastPushed(0), 2u);
  EXPECT_EQ(block->LastPushed(1), 2u);
  block->CloseStep(2);
  EXPECT_EQ(ValueOf(block.get()), -2.0f);  // 1 x 4 / 4 = 1
  block->CloseStep(3);
  EXPECT_EQ(ValueOf(block.get()), -2.0f) << "a step leaves nothing to the next one";
}

TEST(ShardTest, HeldGradientsAreAppliedAsTheirMeanWhenThereAreEnoughOrAtAFlush) {
  const auto block = NewBlock(PolicyOf(Mode::kAsync, /*gradients_to_wait=*/3));
  EXPECT_EQ(StatusOfPush(block.get(), {0, 1, 1, 1}, 2), PART_OK);
  EXPECT_EQ(StatusOfPush(block.get(), {1, 1, 1, 3}, 6), PART_OK);
  EXPECT_EQ(ValueOf(block.get()), 1.0f);
  block->Flush();
  EXPECT_EQ(ValueOf(block.get()), -1.5f);
  block->Flush();
  EXPECT_EQ(ValueOf(block.get()), -1.5f);
  for (const uint64_t sequence : {2, 3}) {
    EXPECT_EQ(StatusOfPush(block.get(), {0, 1, sequence, 1}, 1), PART_OK);
    EXPECT_EQ(ValueOf(block.get()), -1.5f);
  }
  EXPECT_EQ(StatusOfPush(block.get(), {1, 1, 2, 1}, 1), PART_OK);
  EXPECT_EQ(ValueOf(block.get()), -2.0f);
}

TEST(ShardTest, GeoAddsEachDeltaOnceTimesTheMergeScale) {
  UpdatePolicy policy = PolicyOf(Mode::kGeo);
  policy.merge_scale = 0.25;
  const auto block = NewBlock(policy);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(StatusOfPush(block.get(), {0, 1, 1, 1}, 4), PART_OK);
  EXPECT_EQ(ValueOf(block.get()), 2.0f);
  EXPECT_EQ(StatusOfPush(block.get(), {1, 1, 1, 0}, 4), PART_OK);
  EXPECT_EQ(ValueOf(block.get()), 3.0f) << "the weight of a delta does not count";
}

TEST(ShardTest, FtrlKeepsItsWeightsWhenTheScheduleLowersTheRate) {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  *tables.Add() = MakeSpec(1, true, 0).tables(0);
  OptimizerConfig* const ftrl = tables[0].mutable_optimizer();
  ftrl->mutable_ftrl();
  ftrl->set_learning_rate(0.5f);
  LearningRateSchedule::Exponential* const decay = ftrl->mutable_schedule()->mutable_exponential();
  decay->set_steps(3), decay->set_rate(1e-6f), decay->set_staircase(true);
  *ftrl = WithDefaults(*ftrl);
  const TableLayouts layouts = *CreateTableLayouts(tables, 1);
  for (const Mode mode : {Mode::kSync, Mode::kAsync}) {
    UpdatePolicy policy = PolicyOf(mode);
    policy.worker_num = 1;
    const auto block = MakeDenseShard(layouts[0], 0, policy);
    std::vector<float> values;
    for (uint64_t step = 1; step <= 5; ++step) {
      EXPECT_EQ(StatusOfPush(block.get(), {0, 1, step, 1}, 2), PART_OK);
      if (mode == Mode::kSync) block->CloseStep(step);
      values.push_back(ValueOf(block.get()));
    }
    EXPECT_NEAR(values[0], 1 - 2 * 0.5 / (1 + 2), 1e-6);
    EXPECT_LT(values[2], values[0]);
    EXPECT_NEAR(values[3], values[2], 1e-6);
    EXPECT_NEAR(values[4], values[2], 1e-6);
  }
}

TEST(ShardTest, ASeedBringsWhatWaitsAndMustBeOfSuchAShard) {
  const UpdatePolicy policy = PolicyOf(Mode::kAsync, /*gradients_to_wait=*/3);
  const auto block = NewBlock(policy);
  EXPECT_EQ(StatusOfPush(block.get(), {0, 4, 1, 3}, 6), PART_OK);
  ShardSeed seed;
  HeldSum held;
  block->BeginSeed(nullptr, nullptr, &seed, &held);
  EXPECT_EQ(held.sums, std::vector<double>(4, 18.0));
  const auto copy = NewBlock(policy);
  ASSERT_TRUE(copy->RestoreSeed(seed, held).ok());
  for (Shard* shard : {block.get(), copy.get()}) {
    EXPECT_EQ(StatusOfPush(shard, {0, 3, 2, 1}, 2), PART_STALE_INCARNATION);
    EXPECT_EQ(StatusOfPush(shard, {0, 4, 2, 1}, 2), PART_OK);
    shard->Flush();
    EXPECT_EQ(ValueOf(shard), -1.5f);
  }
  UpdatePolicy more = policy;
  more.worker_num = 3;
  EXPECT_TRUE(absl::IsInvalidArgument(NewBlock(more)->RestoreSeed(seed, held)));
  EXPECT_TRUE(absl::IsInvalidArgument(NewBlock(PolicyOf(Mode::kAsync))->RestoreSeed(seed, held)))
      << "it does not wait for gradients";
  held.sums.pop_back();
  EXPECT_TRUE(absl::IsInvalidArgument(NewBlock(policy)->RestoreSeed(seed, held)));
}

TEST(ShardTest, AfterTheEndOfASeedChangesGoToNoLog) {
  UpdatePolicy policy = PolicyOf(Mode::kAsync);
  policy.replicated = true;
  const auto block = NewBlock(policy);
  const auto log = std::make_shared<ChangeLog>(1 << 20);
  ShardSeed seed;
  HeldSum held;
  Message message;
  block->BeginSeed(log, nullptr, &seed, &held);
  EXPECT_EQ(StatusOfPush(block.get(), {0, 1, 1, 1}, 1), PART_OK);  // set aside
  block->EndSeed();
  EXPECT_EQ(StatusOfPush(block.get(), {0, 1, 2, 1}, 1), PART_OK);
  log->Release(block->table().id(), block->index());
  EXPECT_EQ(log->end(), 0u);
  EXPECT_FALSE(log->Next(&message));
  // Another image: its changes follow it.
  block->BeginSeed(log, nullptr, &seed, &held);
  EXPECT_EQ(StatusOfPush(block.get(), {0, 1, 3, 1}, 1), PART_OK);
  EXPECT_EQ(StatusOfPush(block.get(), {0, 1, 3, 1}, 1), PART_OK) << "repeated: no change";
  EXPECT_FALSE(log->Next(&message)) << "the image is under way";
  log->Release(block->table().id(), block->index());
  ASSERT_TRUE(log->Next(&message));
  const ReplicaHeader header = DecodeReplica(message)->header;
  ASSERT_EQ(header.changes_size(), 1);
  EXPECT_EQ(header.changes(0).at().sequence(), 3u);
  EXPECT_EQ(log->end(), 1u);
}

// A rank sends a large part to one shard after the other.
TEST(ShardTest, PlacesOfASyncStepKeepNoMemoryOfLargerSteps) {
  const TableLayouts layouts = LayoutsOf(MakeSpec(2, false, 0, /*num_shards=*/1));
  UpdatePolicy policy = PolicyOf(Mode::kSync);
  policy.worker_num = 1;
  const auto shard = MakeSparseShard(layouts[1], 0, policy);
  PushPart scratch;
  const auto step = [&](uint64_t sequence, uint32_t rows) {
    shard->LendMemory(0, &scratch);
    scratch.rows = rows;
    scratch.keys.resize(rows);
    scratch.values.assign(3 * rows, 1.0f);
    for (uint32_t i = 0; i < rows; ++i) scratch.keys[i] = i;
    ASSERT_EQ(shard->Apply({0, 1, sequence, 1}, &scratch).status, PART_OK);
    EXPECT_LT(scratch.values.capacity(), 6000u) << "the part stays in its place";
    shard->CloseStep(sequence);
  };
  step(1, 1000);
  step(2, 100'000);
  step(3, 1000);
  step(4, 1000);
  PushPart place;
  shard->LendMemory(0, &place);
  EXPECT_GE(place.values.capacity(), 3000u) << "kept for the next step";
  EXPECT_LT(place.values.capacity(), 20'000u);
  EXPECT_LT(place.keys.capacity(), 8000u);
}

TEST(PushPartTest, KeepsTheMemoryOfUsualPartsBetweenMessages) {
  PushPart part;
  part.keys.resize(100'000);
  part.values.resize(1'000'000);
  part.Shrink();
  EXPECT_EQ(part.keys.size(), 100'000u);
  EXPECT_EQ(part.values.size(), 1'000'000u);
  part.keys.resize(1'000'000);
  part.values.resize(2'000'000);
  part.Shrink();
  const std::shared_ptr<uint8_t[]> bytes(new uint8_t[8]);
  part.wire.emplace_back(bytes.get(), 8, bytes);
  part.message = PayloadReader(part.wire);
  part.Shrink();
  EXPECT_EQ(part.keys.capacity(), 0u);
  EXPECT_EQ(part.values.capacity(), 0u);
  EXPECT_EQ(bytes.use_count(), 1);
}

// A rank sends a large part, which is refused, to one shard after the other.
TEST(ShardTest, PlacesOfASyncStepTakeNoMemoryOfRefusedParts) {
  const TableLayouts layouts = LayoutsOf(MakeSpec(2, false, 0, /*num_shards=*/1));
  UpdatePolicy policy = PolicyOf(Mode::kSync);
  policy.worker_num = 1;
  const auto shard = MakeSparseShard(layouts[1], 0, policy),
             other = MakeSparseShard(layouts[1], 0, policy);
  PushPart scratch, place;
  shard->LendMemory(0, &scratch);
  scratch.rows = 100'000;
  scratch.keys.resize(scratch.rows);
  scratch.values.resize(3 * scratch.rows);
  ASSERT_EQ(shard->Apply({0, 1, /*sequence=*/7, 1}, &scratch).status, PART_OUT_OF_ORDER);
  other->LendMemory(0, &scratch);
  EXPECT_LE(scratch.values.capacity(), 1024u);
  other->LendMemory(0, &place);
  EXPECT_LE(place.values.capacity(), 1024u);
  EXPECT_LE(place.keys.capacity(), 1024u);
}

}  // namespace
}  // namespace sluice
