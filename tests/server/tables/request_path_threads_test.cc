// Runs many workers at once; the thread sanitizer finds races here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/common/base/fake_clock.h"
#include "tests/server/test_worker.h"

namespace sluice {
namespace {

using testing::ElementsAre;

constexpr uint32_t kRequestPathThreadsWorkers = 4;
constexpr uint64_t kSteps = 100;

class RequestPathThreadsTest : public testing::Test {
 protected:
  // Runs `body(worker, rank)` on one thread per rank, beside a thread that asks for reports.
  void RunWorkers(const JobSpec& spec, const std::function<void(TestWorker*, uint32_t)>& body) {
    job_ = JobTables::Open(spec, kSelf, TestResources(&clock_)).value();
    std::vector<std::unique_ptr<TestWorker>> workers;
    for (uint32_t r = 0; r < kRequestPathThreadsWorkers; ++r) {
      workers.push_back(std::make_unique<TestWorker>(spec, job_, r));
    }
    std::atomic<bool> done{false};
    std::thread reporter([&] {
      while (!done.load()) job_->Report();
    });
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < kRequestPathThreadsWorkers; ++r) {
      threads.emplace_back([&, r] { body(workers[r].get(), r); });
    }
    for (std::thread& t : threads) t.join();
    done.store(true);
    reporter.join();
  }

  FakeClock clock_;
  std::shared_ptr<JobTables> job_;
};

TEST_F(RequestPathThreadsTest, AsyncPushesAreEachAppliedOnce) {
  const JobSpec spec = MakeSpec(kRequestPathThreadsWorkers, true, 0);
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
  const float end = 1.0f - 0.5f * kRequestPathThreadsWorkers * kSteps;
  EXPECT_THAT(observer.Dense(), ElementsAre(end, end, end, end));
  EXPECT_EQ(observer.Sparse({3})[3][0], 0.25f - 0.5f * kRequestPathThreadsWorkers);
  EXPECT_EQ(job_->Report().frames_applied(), kRequestPathThreadsWorkers * kSteps);
}

TEST_F(RequestPathThreadsTest, SyncStepsCloseOnceEach) {
  const JobSpec spec = MakeSpec(kRequestPathThreadsWorkers, false, 0);
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

// A rank is fenced while its pushes are under way on its own thread. What is reported of it then
// never changes any more.
TEST_F(RequestPathThreadsTest, PositionsOfAFencedRankAreFinal) {
  const JobSpec spec = MakeSpec(kRequestPathThreadsWorkers, true, 0);
  for (int round = 0; round < 20; ++round) {
    std::atomic<uint64_t> pushed{0};
    HostedJob fenced;
    RunWorkers(spec, [&](TestWorker* worker, uint32_t rank) {
      if (rank == 1) {
        while (pushed.load() < static_cast<uint64_t>(round)) std::this_thread::yield();
        JobSpec later = spec;
        later.mutable_route()->set_generation(2);
        for (const uint64_t incarnation : {2, 1, 1, 1}) later.add_incarnations(incarnation);
        ASSERT_TRUE(job_->UpdateRoute(later).ok());
        fenced = job_->Report();
        return;
      }
      if (rank != 0) return;
      for (uint64_t s = 1; s <= kSteps; ++s, ++pushed)
        worker->Push({.sequence = s,
                      .dense = {1, 1, 1, 1},
                      .rows = {{s, {1, 1, 1}}},
                      .in_chunks = s % 2 == 0,
                      .task_id = s});
    });
    ASSERT_EQ(fenced.ranks_size(), static_cast<int>(kRequestPathThreadsWorkers));
    EXPECT_EQ(job_->Report().ranks(0).sequence(), fenced.ranks(0).sequence());
    uint64_t least = kSteps;
    for (uint32_t shard = 0; shard < 4; ++shard)
      least = std::min(least, job_->shard_for_test(1, shard)->Positions()[0].sequence());
    const uint64_t dense = job_->shard_for_test(0, 0)->Positions()[0].sequence();
    EXPECT_EQ(fenced.ranks(0).sequence(), std::min(least, dense));
    EXPECT_LE(dense, least + 1) << "a frame comes to all shards before the next one";
    TestWorker observer(spec, job_, 0, 2);
    observer.set_generation(2);
    EXPECT_EQ(observer.Dense()[0], 1.0f - 0.5f * dense);
  }
}

TEST_F(RequestPathThreadsTest, LockStepLetsEveryWorkerFinish) {
  JobSpec spec = MakeSpec(kRequestPathThreadsWorkers, true, 0);
  spec.mutable_config()->mutable_strategy()->mutable_a_sync_configs()->set_max_staleness(0);
  RunWorkers(spec, [](TestWorker* worker, uint32_t rank) {
    // Ranks have different numbers of steps. The end of a rank's epoch releases the ranks that
    // continue.
    const uint64_t steps = kSteps * (rank + 1) / kRequestPathThreadsWorkers;
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
