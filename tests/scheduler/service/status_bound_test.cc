#include "scheduler/service/status_bound.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

ClusterStatus Status(int members, int jobs, size_t bytes_each) {
  ClusterStatus status;
  for (int i = 0; i < members; ++i) {
    MemberStatus* const member = status.add_members();
    member->set_rank(i);
    member->set_alive(true);
    member->set_doing(std::string(bytes_each, 'd'));
  }
  for (int i = 0; i < jobs; ++i) {
    JobStatus* const job = status.add_jobs();
    job->set_job_id(absl::StrCat("job-", i));
    job->mutable_config()->set_name(std::string(bytes_each, 'c'));
  }
  return status;
}

TEST(StatusBoundTest, ASmallStatusIsUnchanged) {
  const ClusterStatus before = Status(3, 3, 10);
  ClusterStatus after = before;
  BoundStatus(before.ByteSizeLong(), &after);
  EXPECT_EQ(after.SerializeAsString(), before.SerializeAsString());
}

TEST(StatusBoundTest, SingleShardsGoBeforeEverythingElse) {
  ClusterStatus status = Status(3, 3, 10);
  const ClusterStatus before = status;
  TableStatus* const table = status.mutable_members(0)->add_hosted()->add_tables();
  table->set_rows(7);
  for (int i = 0; i < 1000; ++i) table->add_each()->set_rows(i);
  BoundStatus(before.ByteSizeLong() + 100, &status);
  EXPECT_EQ(status.members(0).hosted(0).tables(0).each_size(), 0);
  EXPECT_EQ(status.members(0).hosted(0).tables(0).rows(), 7u);
  EXPECT_EQ(status.members_size(), 3);  // nothing else is missing
  EXPECT_TRUE(status.jobs(0).has_config());
}

TEST(StatusBoundTest, ConfigurationsGoFirstAndTheStatusSaysSo) {
  ClusterStatus status = Status(3, 3, 2000);
  BoundStatus(8000, &status);
  EXPECT_LE(status.ByteSizeLong(), 8000u);
  ASSERT_EQ(status.jobs_size(), 3);
  EXPECT_FALSE(status.jobs(0).has_config());
  ASSERT_EQ(status.members_size(), 4);
  EXPECT_EQ(status.members(3).role(), ROLE_SCHEDULER);
  EXPECT_NE(status.members(3).doing(), "");
}

TEST(StatusBoundTest, LongTextsAreCutBeforeJobsAreLeftOut) {
  ClusterStatus status = Status(2, 3, 10);
  status.mutable_jobs(1)->set_message(std::string(1 << 20, 'm'));
  status.mutable_jobs(1)->mutable_result()->set_message(std::string(1 << 20, 'm'));
  BoundStatus(100000, &status);
  EXPECT_LE(status.ByteSizeLong(), 100000u);
  ASSERT_EQ(status.jobs_size(), 3);
  EXPECT_GT(status.jobs(1).message().size(), 1000u);
  EXPECT_EQ(status.members_size(), 3) << "with the line that something is left out";
}

TEST(StatusBoundTest, MembersThatAreGoneLeaveBeforeThoseThatLive) {
  ClusterStatus status = Status(4, 2, 1000);
  for (const int rank : {0, 2}) status.mutable_members(rank)->set_alive(false);
  BoundStatus(3500, &status);
  EXPECT_LE(status.ByteSizeLong(), 3500u);
  ASSERT_EQ(status.members_size(), 3);
  EXPECT_EQ(status.members(0).rank(), 1u);
  EXPECT_EQ(status.members(1).rank(), 3u);
  EXPECT_EQ(status.jobs_size(), 2);
}

TEST(StatusBoundTest, AnyStatusFits) {
  ClusterStatus status = Status(100, 100, 10000);
  for (JobStatus& job : *status.mutable_jobs()) job.set_message(std::string(10000, 'm'));
  BoundStatus(50000, &status);
  EXPECT_LE(status.ByteSizeLong(), 50000u);
  EXPECT_GT(status.members_size(), 1);
  ASSERT_GT(status.jobs_size(), 0);
  EXPECT_EQ(status.jobs(status.jobs_size() - 1).job_id(), "job-99") << "the newest";
}

}  // namespace
}  // namespace sluice
