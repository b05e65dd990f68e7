// Dense tables that workers keep, with an engine whose other ranks are made up by the test.
#include "worker/dense/collective_dense_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <utility>

#include "common/config/job_config.h"
#include "common/saved_model/checkpoint.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/worker/fake_collective.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CollectiveDenseTablesTest : public testing::Test {
 protected:
  CollectiveDenseTablesTest() {
    spec_.set_worker_num(2);
    spec_.set_instance(77);
    spec_.mutable_route()->set_generation(5);
    spec_.mutable_config()->set_output_dir("/out");
    SyncConfigs* const sync = spec_.mutable_config()->mutable_strategy()->mutable_sync_configs();
    sync->set_fuse_mb(32);
    sync->set_fuse_layers(2);
    for (const uint64_t size : {2, 3, 1}) {
      TableConfig* const table = spec_.add_tables();
      table->set_name(absl::StrCat("t", size));
      table->set_kind(TableConfig::DENSE);
      table->add_shape(size);
      table->mutable_optimizer()->mutable_sgd();
      table->mutable_optimizer()->set_learning_rate(1);
      table->set_update_at(TableConfig::COLLECTIVE);
      gradients_.dense.emplace_back(size, 1.0f);
    }
  }
  // Of rank `rank`.
  std::unique_ptr<CollectiveDenseTables> Make(uint32_t rank = 0) {
    auto engine = std::make_unique<FakeCollective>();
    engine_ = engine.get();
    CollectiveDenseTables::Options options;
    options.tables = *CreateTableLayouts(spec_.tables(), 1);
    options.spec = &spec_;
    options.group.rank = rank;
    options.collective = std::move(engine);
    options.env = &env_;
    auto tables = CollectiveDenseTables::Create(std::move(options));
    EXPECT_TRUE(tables.ok()) << tables.status();
    RankMeetings* const meetings = (*tables)->meetings();
    if (meetings == nullptr) return *std::move(tables);
    RankGroupCards cards;
    cards.set_generation(5);
    cards.add_cards("a");
    cards.add_cards("card of 1");
    meetings->Ask(5, cards);
    EXPECT_TRUE(meetings->Meet(0).ok());
    return *std::move(tables);
  }
  float Value(const DenseTables& tables, size_t i) const {
    return tables.ValuesOf(StepBuffers())[i][0];
  }

  JobSpec spec_;
  MemoryEnv env_;
  FakeCollective* engine_ = nullptr;
  StepBuffers gradients_;  // all 1
};

TEST_F(CollectiveDenseTablesTest, MeetsTheOtherRanksInItsGeneration) {
  const auto tables = Make(/*rank=*/1);
  EXPECT_THAT(engine_->listened, ElementsAre(5, 1, 2));
  EXPECT_THAT(engine_->joined, ElementsAre("a", "card of 1"));
}

TEST_F(CollectiveDenseTablesTest, NothingOfItGoesToPservers) {
  const auto tables = Make();
  PullRequest pull;
  PushRequest push;
  tables->AddToPull(&gradients_, &pull);
  tables->AddToPush(&gradients_, &push);
  EXPECT_THAT(pull.dense, IsEmpty());
  EXPECT_THAT(push.dense, IsEmpty());
}

TEST_F(CollectiveDenseTablesTest, UpdatesWithTheWeightedMeanOnceTheStepHasClosed) {
  const auto tables = Make();
  engine_->other = 5;
  engine_->other_weight = 3;
  ASSERT_TRUE(tables->Exchange(0, &gradients_, /*weight=*/1).ok());
  EXPECT_EQ(Value(*tables, 0), 0) << "the step has not closed yet";
  EXPECT_TRUE(tables->CloseStep(1).ok());
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(Value(*tables, i), -4);  // (1 + 3 * 5) / 4
  ASSERT_TRUE(tables->Exchange(1, &gradients_, 1).ok());
  EXPECT_TRUE(tables->CloseStep(2).ok());
  EXPECT_TRUE(tables->CloseStep(2).ok());  // changes nothing
  EXPECT_EQ(Value(*tables, 0), -8);
  EXPECT_THAT(engine_->steps, ElementsAre(0, 0, 1, 1));
}

TEST_F(CollectiveDenseTablesTest, GradientsLeaveWhenTheyAreReadyAndTheRestWithSend) {
  const auto tables = Make();
  // Buckets {2, 1} and {0}.
  tables->Ready(gradients_, 4, 2);
  tables->Ready(gradients_, 4, 1);
  EXPECT_THAT(engine_->sizes, ElementsAre(5));
  tables->Send(0, &gradients_, 4);
  EXPECT_THAT(engine_->sizes, ElementsAre(5, 3));
  EXPECT_THAT(engine_->waited, IsEmpty()) << "the rank has a push to wait for";
  ASSERT_TRUE(tables->Exchange(0, &gradients_, 4).ok());
  EXPECT_THAT(engine_->sizes, ElementsAre(5, 3)) << "each leaves once";
  EXPECT_THAT(engine_->weights, ElementsAre(4, 4));
  EXPECT_THAT(engine_->waited, ElementsAre(1, 2));
}

TEST_F(CollectiveDenseTablesTest, BucketsHoldAtMostFuseMb) {
  constexpr uint64_t kElements = 200'000;  // 0.76 MiB
  for (size_t i = 0; i < 3; ++i) {
    spec_.mutable_tables(i)->set_shape(0, kElements);
    gradients_.dense[i].assign(kElements, 1.0f);
  }
  SyncConfigs* const sync = spec_.mutable_config()->mutable_strategy()->mutable_sync_configs();
  sync->set_fuse_mb(1);
  const auto unfused = Make();
  ASSERT_TRUE(unfused->Exchange(0, &gradients_, 1).ok());
  // Every bucket carries one value more, which says whether any rank had examples.
  EXPECT_THAT(engine_->sizes, ElementsAre(kElements + 1, kElements + 1, kElements + 1));
  sync->set_fuse_mb(32);
  const auto fused = Make();
  ASSERT_TRUE(fused->Exchange(0, &gradients_, 1).ok());
  EXPECT_THAT(engine_->sizes, ElementsAre(kElements + 1, 2 * kElements + 1))
      << "the first one is small";
}

TEST_F(CollectiveDenseTablesTest, NothingIsSentForAnyStepButTheNextOne) {
  const auto tables = Make();
  tables->Send(1, &gradients_, 4);
  EXPECT_THAT(engine_->sizes, IsEmpty());
  ASSERT_TRUE(tables->Exchange(0, &gradients_, 4).ok());
  tables->Ready(gradients_, 4, 2);
  tables->Ready(gradients_, 4, 1);
  tables->Send(0, &gradients_, 4);
  EXPECT_EQ(engine_->sizes.size(), 2u) << "the rank has the means already";
}

TEST_F(CollectiveDenseTablesTest, ARankWithoutExamplesTakesPartAndUpdatesAsTheOthersDo) {
  const auto tables = Make();
  engine_->other = 5;
  engine_->other_weight = 3;
  tables->Send(0, nullptr, 0);
  EXPECT_THAT(engine_->weights, ElementsAre(0, 0));
  ASSERT_TRUE(tables->Exchange(0, nullptr, 0).ok());
  EXPECT_TRUE(tables->CloseStep(1).ok());
  EXPECT_EQ(Value(*tables, 2), -5);
}

TEST_F(CollectiveDenseTablesTest, AStepWithoutAnyExampleUpdatesNothing) {
  for (int i = 0; i < spec_.tables_size(); ++i) {
    TableConfig* const table = spec_.mutable_tables(i);
    table->mutable_optimizer()->mutable_sgd();
    table->mutable_optimizer()->set_weight_decay(0.5f);  // moves values even without a gradient
    table->mutable_initializer()->set_constant(8);
  }
  const auto tables = Make();
  ASSERT_TRUE(tables->Exchange(0, nullptr, 0).ok());
  EXPECT_TRUE(tables->CloseStep(1).ok());
  EXPECT_EQ(Value(*tables, 0), 8);
  EXPECT_TRUE(tables->Exchange(1, nullptr, 0).ok()) << "the step counts";
}

TEST_F(CollectiveDenseTablesTest, ExchangeTellsThatAGradientIsNotFinite) {
  const auto tables = Make();
  gradients_.dense[1][2] = std::numeric_limits<float>::quiet_NaN();
  tables->Ready(gradients_, 1, 1);
  tables->Send(0, &gradients_, 1);
  const absl::Status status = tables->Exchange(0, &gradients_, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("t3"));
  EXPECT_THAT(engine_->sizes, IsEmpty());
}

TEST_F(CollectiveDenseTablesTest, AJobThatOnlyEvaluatesMeetsNobody) {
  spec_.mutable_config()->set_evaluate_only(true);
  const auto tables = Make();
  EXPECT_THAT(engine_->listened, IsEmpty());
  EXPECT_EQ(tables->meetings(), nullptr);
}

TEST_F(CollectiveDenseTablesTest, ALostRankEndsTheExchangeWithoutAnUpdate) {
  const auto tables = Make();
  engine_->wait_status = absl::UnavailableError("rank 1 has ended");
  EXPECT_EQ(tables->Exchange(0, &gradients_, 1).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Value(*tables, 0), 0);
}

TEST_F(CollectiveDenseTablesTest, AStepOtherThanTheNextOneIsRefused) {
  const auto tables = Make();
  EXPECT_EQ(tables->Exchange(1, &gradients_, 1).code(), absl::StatusCode::kInternal);
}

TEST_F(CollectiveDenseTablesTest, ARankWritesTheFilesFromWhichAllRanksContinue) {
  const auto tables = Make();
  for (uint64_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(tables->Exchange(step, &gradients_, 1).ok());
    EXPECT_TRUE(tables->CloseStep(step + 1).ok());
  }
  absl::StatusOr<std::vector<SavedFile>> files = absl::UnavailableError("not yet");
  auto rank0 = Make(/*rank=*/0);
  for (uint64_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(rank0->Exchange(step, &gradients_, 1).ok());
    EXPECT_TRUE(rank0->CloseStep(step + 1).ok());
  }
  rank0->SaveCheckpoint(2, 3, [&](auto saved) { files = std::move(saved); });
  rank0.reset();  // waits for the files
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->size(), 3u);
  Manifest manifest;
  manifest.set_global_step(3);
  for (const TableConfig& table : spec_.tables()) *manifest.add_tables() = table;
  for (const SavedFile& file : *files) *manifest.add_files() = file;
  manifest.mutable_checkpoint()->set_mode("sync");
  manifest.mutable_checkpoint()->set_global_step(3);
  const std::string folder = CheckpointFolder(CheckpointRoot(spec_.config()), 3);
  ASSERT_TRUE(CommitCheckpoint(folder, JobConfig(), manifest, &env_, CheckpointSaveId(77, 2)).ok());
  spec_.mutable_restore()->set_directory(folder);
  spec_.mutable_restore()->set_step(3);
  const auto resumed = Make(/*rank=*/1);
  EXPECT_EQ(Value(*resumed, 0), Value(*tables, 0));
  EXPECT_TRUE(resumed->Exchange(3, &gradients_, 1).ok());
}

TEST_F(CollectiveDenseTablesTest, OnlyRank0WritesTheModel) {
  const auto files = Make(/*rank=*/0)->SaveModel("/out/model", "0123456789abcdef");
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->size(), 3u);
  EXPECT_THAT(*Make(/*rank=*/1)->SaveModel("/out/model", "0123456789abcdef"), IsEmpty());
}

TEST_F(CollectiveDenseTablesTest, NobodyWaitsWhileGradientsLeave) {
  const auto tables = Make();
  tables->Send(0, &gradients_, 1);
  EXPECT_EQ(tables->WaitingFor(), "");
  EXPECT_TRUE(tables->Exchange(0, &gradients_, 1).ok());
  EXPECT_EQ(tables->WaitingFor(), "rank 0") << "what the engine says";
}

TEST_F(CollectiveDenseTablesTest, CancelReachesTheEngine) {
  const auto tables = Make();
  tables->Cancel();
  EXPECT_TRUE(engine_->cancelled);
  EXPECT_EQ(tables->WaitingFor(), "rank 0");
}

}  // namespace
}  // namespace sluice
