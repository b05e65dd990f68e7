// Dense tables that workers keep, with an engine whose other ranks are made up by the test.
#include "worker/collective_dense_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "common/config/job_config.h"
#include "common/saved_model/checkpoint.h"
#include "tests/common/saved_model/memory_env.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A group of this rank and one other, which brings the gradient `other` with weight `other_weight`
// to every bucket.
class FakeCollective : public Collective {
 public:
  absl::StatusOr<std::string> Listen(uint64_t generation, uint32_t self, uint32_t ranks) override {
    listened = {generation, self, ranks};
    return std::string("card of 1");
  }
  absl::Status Join(uint64_t generation, const std::vector<std::string>& peers,
                    uint32_t self) override {
    joined = peers;
    return absl::OkStatus();
  }
  void Leave() override {}
  using Collective::WeightedMean;
  Ticket WeightedMean(uint64_t step, absl::Span<float> values, double weight, Wire wire) override {
    steps.push_back(step);
    wires.push_back(wire);
    sizes.push_back(values.size());
    weights.push_back(weight);
    const double total = weight + other_weight;
    for (size_t i = 0; i < values.size(); ++i) {
      const double theirs = i + 1 == values.size() ? 1.0 : other;
      const double mine = weight == 0 ? 0 : weight * values[i];
      values[i] = total == 0 ? 0 : static_cast<float>((mine + other_weight * theirs) / total);
    }
    return steps.size();
  }
  absl::Status Wait(Ticket ticket) override {
    waited.push_back(ticket);
    return wait_status;
  }
  absl::Status AllReduce(absl::Span<float>, Op) override { return Unused(); }
  absl::Status ReduceScatter(absl::Span<float>, Op) override { return Unused(); }
  // The other rank brings what this one brings.
  absl::Status AllGather(absl::Span<float> values) override {
    const size_t n = values.size() / 2, own = listened[1] * n;
    std::copy_n(values.begin() + own, n, values.begin() + (n - own));
    return absl::OkStatus();
  }
  absl::Status Broadcast(absl::Span<uint8_t>, uint32_t) override { return absl::OkStatus(); }
  absl::Status Barrier() override { return Unused(); }
  void Cancel() override { cancelled = true; }
  std::string WaitingFor() const override { return "rank 0"; }
  const char* name() const override { return "fake"; }

  static absl::Status Unused() { return absl::UnimplementedError("the tables do not use it"); }
  double other = 0, other_weight = 0;
  absl::Status wait_status;
  std::vector<uint64_t> listened, steps;
  std::vector<std::string> joined;
  std::vector<size_t> sizes;
  std::vector<double> weights;
  std::vector<Wire> wires;
  std::vector<Ticket> waited;
  bool cancelled = false;
};

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
  tables->CloseStep(1);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(Value(*tables, i), -4);  // (1 + 3 * 5) / 4
  ASSERT_TRUE(tables->Exchange(1, &gradients_, 1).ok());
  tables->CloseStep(2);
  tables->CloseStep(2);  // changes nothing
  EXPECT_EQ(Value(*tables, 0), -8);
  EXPECT_THAT(engine_->steps, ElementsAre(0, 0, 1, 1));
}

TEST_F(CollectiveDenseTablesTest, BucketsLeaveInOrderAsSoonAsTheyAreFull) {
  const auto tables = Make();
  // Buckets {2, 1} and {0}.
  tables->Ready(gradients_, 4, 0);
  tables->Ready(gradients_, 4, 2);
  EXPECT_THAT(engine_->sizes, IsEmpty()) << "the first bucket lacks a table";
  tables->Ready(gradients_, 4, 1);
  EXPECT_THAT(engine_->sizes, ElementsAre(5, 3));
  EXPECT_THAT(engine_->waited, IsEmpty());
  ASSERT_TRUE(tables->Exchange(0, &gradients_, 4).ok());
  EXPECT_THAT(engine_->sizes, ElementsAre(5, 3)) << "each leaves once";
  EXPECT_THAT(engine_->weights, ElementsAre(4, 4));
  EXPECT_THAT(engine_->waited, ElementsAre(1, 2));
}

TEST_F(CollectiveDenseTablesTest, BucketsTravelInTheWireTypeOfTheirTables) {
  spec_.mutable_tables(1)->set_wire_type(TableConfig::BF16);
  const auto tables = Make();
  ASSERT_TRUE(tables->Exchange(0, &gradients_, 4).ok());
  EXPECT_THAT(engine_->sizes, ElementsAre(2, 4, 3));  // {2}, {1} and {0}
  EXPECT_THAT(engine_->wires,
              ElementsAre(Collective::Wire::kF32, Collective::Wire::kBf16, Collective::Wire::kF32));
}

TEST_F(CollectiveDenseTablesTest, ARankWithoutExamplesTakesPartAndUpdatesAsTheOthersDo) {
  const auto tables = Make();
  engine_->other = 5;
  engine_->other_weight = 3;
  ASSERT_TRUE(tables->Exchange(0, nullptr, 0).ok());
  tables->CloseStep(1);
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
  tables->CloseStep(1);
  EXPECT_EQ(Value(*tables, 0), 8);
  EXPECT_TRUE(tables->Exchange(1, nullptr, 0).ok()) << "the step counts";
}

TEST_F(CollectiveDenseTablesTest, GradientsThatAreNotFiniteNeverLeave) {
  const auto tables = Make();
  gradients_.dense[1][2] = std::numeric_limits<float>::quiet_NaN();
  tables->Ready(gradients_, 1, 1);
  tables->Ready(gradients_, 1, 2);
  const absl::Status status = tables->Exchange(0, &gradients_, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("t3"));
  EXPECT_THAT(engine_->sizes, IsEmpty());
}

TEST_F(CollectiveDenseTablesTest, MeansThatOverflowFailTheStepAndNameTheTable) {
  const auto tables = Make();
  engine_->other = std::numeric_limits<double>::infinity();
  engine_->other_weight = 1;
  const absl::Status status = tables->Exchange(0, &gradients_, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("table 't1'"));
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
    tables->CloseStep(step + 1);
  }
  absl::StatusOr<std::vector<SavedFile>> files = absl::UnavailableError("not yet");
  auto rank0 = Make(/*rank=*/0);
  for (uint64_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(rank0->Exchange(step, &gradients_, 1).ok());
    rank0->CloseStep(step + 1);
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

TEST_F(CollectiveDenseTablesTest, CancelReachesTheEngine) {
  const auto tables = Make();
  tables->Cancel();
  EXPECT_TRUE(engine_->cancelled);
  EXPECT_EQ(tables->WaitingFor(), "rank 0");
}

}  // namespace
}  // namespace sluice
