#include "worker/make_dense_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/worker/fake_collective.h"
#include "tests/worker/fakes.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A job with a sparse table, and three dense ones of which workers keep some.
class MakeDenseTablesTest : public ::testing::Test {
 protected:
  absl::StatusOr<JobDenseTables> Make(const std::vector<bool>& on_workers) {
    std::vector<TableConfig> tables = {SgdTable("rows", TableConfig::SPARSE, 1, 1.0f)};
    for (size_t i = 0; i < on_workers.size(); ++i) {
      tables.push_back(SgdTable(absl::StrCat("dense", i), TableConfig::DENSE, 2, 1.0f));
      if (on_workers[i]) tables.back().set_update_at(TableConfig::COLLECTIVE);
    }
    model_ = std::make_unique<TablesModel>(tables);
    spec_.clear_tables();
    for (const TableConfig& table : tables) *spec_.add_tables() = table;
    spec_.set_worker_num(2);
    spec_.mutable_route()->set_generation(5);
    DenseTablesOptions options;
    options.model = model_.get();
    options.spec = &spec_;
    options.layouts = *CreateTableLayouts(spec_.tables(), /*seed=*/1);
    options.env = &env_;
    options.rejoins = rejoins_;
    options.group.rank = 1;
    if (has_engine_) {
      options.make_collective =
          [this](const JobConfig& config) -> absl::StatusOr<std::unique_ptr<Collective>> {
        configs_.push_back(config.name());
        if (!engine_.ok()) return engine_;
        return std::make_unique<FakeCollective>();
      };
    }
    return MakeDenseTables(std::move(options));
  }
  // By dense table: 1 if it is pulled from pservers.
  std::vector<int> Pulled(const DenseTables& tables) {
    StepBuffers buffers;
    buffers.dense.resize(3, std::vector<float>(2));
    PullRequest pull;
    tables.AddToPull(&buffers, &pull);
    std::vector<int> pulled(3);
    for (const auto& table : pull.dense) ++pulled[table.table - 1];
    return pulled;
  }

  MemoryEnv env_;
  JobSpec spec_;
  std::unique_ptr<TablesModel> model_;
  bool rejoins_ = false, has_engine_ = true;
  absl::Status engine_;
  std::vector<std::string> configs_;  // of the jobs for which an engine was made
};

TEST_F(MakeDenseTablesTest, TablesOfPserversNeedNoEngine) {
  has_engine_ = false;
  const auto made = Make({false, false, false});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(Pulled(*made->tables), ElementsAre(1, 1, 1));
  EXPECT_FALSE(made->tables->leaves_early());
  EXPECT_EQ(made->meetings, nullptr);
}

TEST_F(MakeDenseTablesTest, AnEngineIsMadeOnlyForTablesOfWorkers) {
  spec_.mutable_config()->set_name("a job");
  ASSERT_TRUE(Make({false, false, false}).ok());
  EXPECT_THAT(configs_, IsEmpty());
  ASSERT_TRUE(Make({true, true, true}).ok());
  EXPECT_THAT(configs_, ElementsAre("a job"));
}

TEST_F(MakeDenseTablesTest, WorkersKeepAllTables) {
  const auto made = Make({true, true, true});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(Pulled(*made->tables), ElementsAre(0, 0, 0));
  EXPECT_TRUE(made->tables->leaves_early());
  EXPECT_EQ(made->tables->ValuesOf({}).size(), 3u);
  ASSERT_NE(made->meetings, nullptr);
  EXPECT_EQ(made->meetings->rank(), 1u);
  EXPECT_EQ(made->meetings->ranks(), 2u);
}

TEST_F(MakeDenseTablesTest, BothKeepSome) {
  const auto made = Make({false, true, false});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(Pulled(*made->tables), ElementsAre(1, 0, 1));
  EXPECT_TRUE(made->tables->leaves_early());
  StepBuffers pulled;
  pulled.dense.resize(3, std::vector<float>(2));
  const std::vector<const float*> values = made->tables->ValuesOf(pulled);
  EXPECT_EQ(values[0], pulled.dense[0].data());
  EXPECT_NE(values[1], pulled.dense[1].data());
  EXPECT_EQ(values[2], pulled.dense[2].data());
  EXPECT_NE(made->meetings, nullptr);
}

TEST_F(MakeDenseTablesTest, ARankThatRejoinsHoldsNoTablesYet) {
  for (const bool rejoins : {false, true}) {
    rejoins_ = rejoins;
    const auto made = Make({false, true, true});
    ASSERT_TRUE(made.ok()) << made.status();
    PollRequest report;
    made->meetings->AddTo(&report);
    EXPECT_EQ(report.group().holds_tables(), !rejoins);
  }
}

TEST_F(MakeDenseTablesTest, RanksOfAJobThatOnlyEvaluatesDoNotMeet) {
  spec_.mutable_config()->set_evaluate_only(true);
  const auto made = Make({true, true, true});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->meetings, nullptr);
}

TEST_F(MakeDenseTablesTest, TablesOfWorkersNeedAnEngine) {
  engine_ = absl::UnavailableError("no shared memory");
  EXPECT_EQ(Make({true, false, false}).status(), engine_);
  has_engine_ = false;
  EXPECT_EQ(Make({true, false, false}).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace sluice
