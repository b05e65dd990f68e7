// Runs many workers at once; the thread sanitizer finds races here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/server/test_worker.h"

namespace sluice {
namespace {

using testing::ElementsAre;

constexpr uint32_t kWorkers = 4;
constexpr uint64_t kSteps = 100;

class JobTablesThreadsTest : public testing::Test {
 protected:
  // Runs `body(worker, rank)` on one thread per rank, beside a thread that asks for reports.
  void RunWorkers(const JobSpec& spec, const std::function<void(TestWorker*, uint32_t)>& body) {
    job_ = JobTables::Open(spec, kSelf, TestResources(&clock_)).value();
    std::vector<std::unique_ptr<TestWorker>> workers;
    for (uint32_t r = 0; r < kWorkers; ++r) {
      workers.push_back(std::make_unique<TestWorker>(spec, job_, r));
    }
    std::atomic<bool> done{false};
    std::thread reporter([&] {
      while (!done.load()) job_->Report();
    });
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < kWorkers; ++r) {
      threads.emplace_back([&, r] { body(workers[r].get(), r); });
    }
    for (std::thread& t : threads) t.join();
    done.store(true);
    reporter.join();
  }

  FakeClock clock_;
  std::shared_ptr<JobTables> job_;
};

TEST_F(JobTablesThreadsTest, AsyncPushesAreEachAppliedOnce) {
  const JobSpec spec = MakeSpec(kWorkers, true, 0);
  RunWorkers(spec, [](TestWorker* worker, uint32_t) {
    for (uint64_t s = 1; s <= kSteps; ++s) {
      const TestWorker::PushArgs push{.sequence = s,
                                      .dense = {1, 1, 1, 1},
                                      .rows = {{s, {1, 1, 1}}, {7, {1, 1, 1}}},
                                      .pull_dense = true};
      worker->Push(push);
      worker->Push(push);  // as after a reconnect
    }
  });
  TestWorker observer(spec, job_, 0);
  const float end = 1.0f - 0.5f * kWorkers * kSteps;
  EXPECT_THAT(observer.Dense(), ElementsAre(end, end, end, end));
  EXPECT_EQ(observer.Sparse({3})[3][0], 0.25f - 0.5f * kWorkers);
  EXPECT_EQ(job_->Report().frames_applied(), kWorkers * kSteps);
}

TEST_F(JobTablesThreadsTest, SyncStepsCloseOnceEach) {
  const JobSpec spec = MakeSpec(kWorkers, false, 0);
  RunWorkers(spec, [](TestWorker* worker, uint32_t rank) {
    for (uint64_t s = 1; s <= kSteps; ++s) {
      worker->stream()->Wait(worker->Push(
          {.sequence = s, .weight = 1.0 + rank, .dense = {2, 2, 2, 2}, .rows = {{s, {4, 4, 4}}}}));
      const Answer& answer = worker->stream()->Wait(worker->Commit(s));
      ASSERT_EQ(answer.dense[0], 1.0f - s);
    }
  });
  EXPECT_EQ(job_->Report().rows(), kSteps);
}

TEST_F(JobTablesThreadsTest, LockStepLetsEveryWorkerFinish) {
  JobSpec spec = MakeSpec(kWorkers, true, 0);
  spec.mutable_config()->mutable_strategy()->mutable_a_sync_configs()->set_max_staleness(0);
  RunWorkers(spec, [](TestWorker* worker, uint32_t rank) {
    // Ranks have different numbers of steps. The end of a rank's epoch releases the ranks that go
    // on.
    const uint64_t steps = kSteps * (rank + 1) / kWorkers;
    for (uint64_t s = 1; s <= steps; ++s) {
      worker->stream()->Wait(worker->PullDense());
      worker->stream()->Wait(worker->Push({.sequence = s, .dense = {1, 1, 1, 1}}));
    }
    worker->stream()->Wait(worker->EndEpoch(0));
  });
  EXPECT_EQ(job_->Report().frames_applied(), 25u + 50 + 75 + 100);
}

}  // namespace
}  // namespace sluice
