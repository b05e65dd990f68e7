#include "scheduler/job_queue.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(decisions[2].reason, "waits for 1 free worker, 0 are free");
  EXPECT_FALSE(decisions[2].members_absent);
}

TEST(JobQueueTest, SmallJobDoesNotOvertake) {
  const auto decisions = DecideQueue({{"big", 3}, {"small", 1}}, Workers(1, 3));
  EXPECT_EQ(decisions[0].reason, "waits for 3 free workers, 1 is free");
  EXPECT_FALSE(decisions[1].start);
  EXPECT_EQ(decisions[1].reason, "waits for job big ahead of it in the queue");
}

TEST(JobQueueTest, AbsentWorkersAreToldFromBusyOnes) {
  const auto decisions = DecideQueue({{"a", 2}}, Workers(1, 1));
  EXPECT_TRUE(decisions[0].members_absent);
  EXPECT_EQ(decisions[0].reason, "waits for 2 free workers, 1 is free; 1 is registered");
}

TEST(JobQueueTest, MissingPserversAreNamed) {
  ClusterView view = Workers(4, 4);
  view.missing_pservers = {"pserver 1 (h:1) to register", "pserver 2 (h:2) to register"};
  const auto decisions = DecideQueue({{"a", 1}}, view);
  EXPECT_FALSE(decisions[0].start);
  EXPECT_TRUE(decisions[0].members_absent);
  EXPECT_EQ(decisions[0].reason,
            "waits for pserver 1 (h:1) to register and pserver 2 (h:2) to register");
}

}  // namespace
}  // namespace sluice
