#include "scheduler/registry/job_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/scheduler/job_parts.h"

namespace sluice {
namespace {

ClusterView Workers(uint32_t free, uint32_t alive) {
  ClusterView view;
  view.free_workers = free;
  view.alive_workers = alive;
  return view;
}

TEST(JobQueueTest, SeveralJobsStartSideBySide) {
  const auto decisions = DecideQueue({{"a", 2}, {"b", 1}, {"c", 1}}, Workers(3, 3));
  EXPECT_TRUE(decisions[0].start);
  EXPECT_TRUE(decisions[1].start);
  EXPECT_FALSE(decisions[2].start);
  EXPECT_THAT(decisions[2].reason, testing::HasSubstr("1 free worker, 0"));
  EXPECT_FALSE(decisions[2].members_absent);
}

TEST(JobQueueTest, SmallJobDoesNotOvertake) {
  const auto decisions = DecideQueue({{"big", 3}, {"small", 1}}, Workers(1, 3));
  EXPECT_THAT(decisions[0].reason, testing::HasSubstr("3 free workers, 1"));
  EXPECT_FALSE(decisions[1].start);
  EXPECT_THAT(decisions[1].reason, testing::HasSubstr("job big"));
}

TEST(JobQueueTest, AbsentWorkersAreDistinguishedFromBusyOnes) {
  const auto decisions = DecideQueue({{"a", 2}}, Workers(1, 1));
  EXPECT_TRUE(decisions[0].members_absent);
  EXPECT_THAT(decisions[0].reason, testing::AllOf(testing::HasSubstr("2 free workers, 1 "),
                                                  testing::HasSubstr("1 is registered")));
}

TEST(JobQueueTest, MissingPserversAreNamed) {
  ClusterView view = Workers(4, 4);
  view.missing_pservers = {"pserver 1 (h:1) to register", "pserver 2 (h:2) to register"};
  const auto decisions = DecideQueue({{"a", 1}}, view);
  EXPECT_FALSE(decisions[0].start);
  EXPECT_TRUE(decisions[0].members_absent);
  EXPECT_THAT(decisions[0].reason, testing::AllOf(testing::HasSubstr(view.missing_pservers[0]),
                                                  testing::HasSubstr(view.missing_pservers[1])));
}

TEST(JobQueueTest, AProgramsJobWaitsForWorkersOfItsProgram) {
  ClusterView view = Workers(4, 4);
  view.programs["mine"] = {1, 2};
  view.programs["edited"] = {3, 3};
  const auto waits = DecideQueue({{"a", 2, "mine"}}, view);
  EXPECT_FALSE(waits[0].start);
  EXPECT_FALSE(waits[0].members_absent);
  EXPECT_THAT(waits[0].reason, testing::HasSubstr("2 free workers of its program, 1 is free"));
  view.programs["mine"] = {2, 2};
  // Each takes workers of its own kind.
  const auto start = DecideQueue({{"a", 2, "mine"}, {"b", 4}, {"c", 1, "mine"}}, view);
  EXPECT_TRUE(start[0].start);
  EXPECT_TRUE(start[1].start);
  EXPECT_FALSE(start[2].start);
  EXPECT_TRUE(DecideQueue({{"d", 1, "nobody"}}, view)[0].members_absent);
}

std::vector<std::string> Ids(const std::vector<JobQueue::Decided>& decided) {
  std::vector<std::string> ids;
  for (const auto& one : decided) ids.push_back(one.job->id());
  return ids;
}

TEST(JobQueueTest, OnlyChangesMakeTheQueueDue) {
  JobQueue queue;
  queue.MembersChanged();
  EXPECT_FALSE(queue.due()) << "nobody waits";
  const std::unique_ptr<Job> job = QueuedFor("a");
  queue.Add(job.get());
  EXPECT_TRUE(queue.due());
  queue.Decide(Workers(0, 0));
  EXPECT_FALSE(queue.due());
  queue.MembersChanged();
  EXPECT_TRUE(queue.due());
}

TEST(JobQueueTest, MembersChangeOnlyTheHead) {
  JobQueue queue;
  const std::unique_ptr<Job> a = QueuedFor("a"), b = QueuedFor("b"), c = QueuedFor("c");
  for (Job* job : {a.get(), b.get(), c.get()}) queue.Add(job);
  EXPECT_THAT(Ids(queue.Decide(Workers(0, 0))), testing::ElementsAre("a", "b", "c"));
  queue.MembersChanged();
  EXPECT_THAT(Ids(queue.Decide(Workers(0, 0))), testing::ElementsAre("a"));
  ASSERT_TRUE(queue.Remove(b.get()));
  EXPECT_FALSE(queue.Remove(b.get()));
  EXPECT_TRUE(queue.due());
  EXPECT_THAT(Ids(queue.Decide(Workers(0, 0))), testing::ElementsAre("a", "c"));
}

TEST(JobQueueTest, TheQueueIsBounded) {
  JobQueue queue;
  std::vector<std::unique_ptr<Job>> jobs;
  for (size_t i = 0; i < JobQueue::kMaxJobs; ++i) {
    EXPECT_FALSE(queue.full());
    jobs.push_back(QueuedFor(absl::StrCat("a-", i)));
    queue.Add(jobs.back().get());
  }
  EXPECT_TRUE(queue.full());
  queue.Remove(jobs[500].get());
  EXPECT_FALSE(queue.full());
}

}  // namespace
}  // namespace sluice
