#include "worker/service/job_member.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"

namespace sluice {
namespace {

WorkerAssignment AssignmentWithATable() {
  WorkerAssignment assignment;
  assignment.set_rank(2);
  assignment.set_incarnation(5);
  JobSpec* const job = assignment.mutable_job();
  job->set_job_id("job-7");
  job->set_instance(99);
  job->mutable_config()->mutable_train()->set_pipeline_depth(3);
  job->mutable_config()->mutable_train()->set_step_timeout_s(7);
  job->mutable_config()->mutable_train()->set_seed(11);
  TableConfig* const dense = job->add_tables();
  dense->set_name("dense");
  dense->set_kind(TableConfig::DENSE);
  dense->add_shape(8);
  dense->mutable_initializer()->mutable_normal()->set_stddev(1);
  dense->mutable_optimizer()->mutable_sgd();
  dense->mutable_optimizer()->set_learning_rate(1);
  job->mutable_route()->set_generation(4);
  return assignment;
}

JobMember MemberOf(WorkerAssignment assignment) {
  JobMember::Options options;
  options.assignment = std::move(assignment);
  return JobMember(std::move(options));
}

TEST(JobMemberTest, WaitsAsLongAsALostWorkerMayBeReplaced) {
  WorkerAssignment assignment = AssignmentWithATable();
  RecoveryConfig* const recovery = assignment.mutable_job()->mutable_config()->mutable_recovery();
  recovery->set_wait_s(30);
  recovery->set_max_losses(2);
  EXPECT_EQ(MemberOf(assignment).ClientOptions()->limits.timeout, absl::Seconds(37));
  recovery->set_max_losses(0);
  EXPECT_EQ(MemberOf(assignment).ClientOptions()->limits.timeout, absl::Seconds(7));
}

TEST(JobMemberTest, TakesIdentityTablesRouteAndLimitsFromTheAssignment) {
  const auto options = MemberOf(AssignmentWithATable()).ClientOptions();
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->job_id, "job-7");
  EXPECT_EQ(options->instance, 99u);
  EXPECT_EQ(options->rank, 2u);
  EXPECT_EQ(options->incarnation, 5u);
  EXPECT_EQ(options->pipeline_depth, 3u);
  EXPECT_EQ(options->limits.timeout, absl::Seconds(7));
  EXPECT_EQ(options->route.generation(), 4u);
  ASSERT_EQ(options->tables.size(), 1u);
  EXPECT_EQ(options->tables[0]->name(), "dense");
}

TEST(JobMemberTest, RequestsShowThePassOfTheRank) {
  WorkerAssignment assignment = AssignmentWithATable();
  assignment.set_pass("secret");
  const auto shows = [](const auto& request) {
    EXPECT_EQ(request.job_id(), "job-7");
    EXPECT_EQ(request.rank(), 2u);
    EXPECT_EQ(request.incarnation(), 5u);
    EXPECT_EQ(request.pass(), "secret");
  };
  shows(MemberOf(assignment).RouteRequest());
  shows(MemberOf(assignment).PhaseRequest());
  HeldJob held;
  MemberOf(assignment).Describe(&held);
  shows(held);
  EXPECT_EQ(held.instance(), 99u);
}

TEST(JobMemberTest, JobSeedGivesTheInitialValues) {
  WorkerAssignment assignment = AssignmentWithATable();
  const auto a = MemberOf(assignment).ClientOptions();
  assignment.mutable_job()->mutable_config()->mutable_train()->set_seed(12);
  const auto b = MemberOf(assignment).ClientOptions();
  ASSERT_TRUE(a.ok() && b.ok());
  std::vector<float> first(8), second(8);
  a->tables[0]->InitialElements(0, 8, first.data());
  b->tables[0]->InitialElements(0, 8, second.data());
  EXPECT_NE(first, second);
}

TEST(JobMemberTest, RefusesATableWithoutAShape) {
  WorkerAssignment assignment = AssignmentWithATable();
  assignment.mutable_job()->mutable_tables(0)->clear_shape();
  EXPECT_EQ(MemberOf(assignment).ClientOptions().status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
