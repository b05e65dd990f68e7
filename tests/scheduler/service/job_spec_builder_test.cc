#include "scheduler/service/job_spec_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/env.h"
#include "common/config/textproto_file.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobConfig JobWith(const std::string& strategy) {
  JobConfig job;
  EXPECT_TRUE(ParseTextproto(R"(
    data { format: CSV train_files: "/t.csv" csv { header: true } label { column: "l" } }
    features { name: "x" numeric {} }
    model { wide_deep { hidden_units: 4 } } )" +
                                 strategy,
                             "job", &job, nullptr)
                  .ok());
  return job;
}

TEST(JobSpecBuilderTest, WithoutPserversTheWorkersKeepTheTablesAndTheJobSaysSo) {
  const auto draft = BuildJobDraft(JobWith("strategy { a_sync: false }"), 0, Env::Real());
  ASSERT_TRUE(draft.ok()) << draft.status();
  EXPECT_EQ(draft->config.strategy().sync_configs().dense(), SyncConfigs::COLLECTIVE);
  EXPECT_THAT(draft->warnings, ElementsAre(HasSubstr("sync_configs.dense")));
  JobSpec spec;
  spec.mutable_tables()->Assign(draft->tables.begin(), draft->tables.end());
  const absl::Status placed = PlaceJob({}, &spec);
  ASSERT_TRUE(placed.ok()) << placed;
  EXPECT_EQ(spec.route().pservers_size(), 0);
  EXPECT_EQ(spec.route().tables_size(), spec.tables_size());
  for (const TableRoute& table : spec.route().tables()) EXPECT_THAT(table.owner(), IsEmpty());
  EXPECT_EQ(BuildJobDraft(JobWith(""), 0, Env::Real()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(JobSpecBuilderTest, WithPserversTheyKeepTheTables) {
  const auto draft = BuildJobDraft(JobWith("strategy { a_sync: false }"), 2, Env::Real());
  ASSERT_TRUE(draft.ok()) << draft.status();
  EXPECT_EQ(draft->config.strategy().sync_configs().dense(), SyncConfigs::PSERVER);
  EXPECT_THAT(draft->warnings, IsEmpty());
  // The scheduler was started again without pservers.
  JobSpec spec;
  spec.mutable_tables()->Assign(draft->tables.begin(), draft->tables.end());
  EXPECT_EQ(PlaceJob({}, &spec).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(PlaceJob({"a", "b"}, &spec).ok());
}

}  // namespace
}  // namespace sluice
