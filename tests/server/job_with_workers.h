// A test's job on one pserver, with a worker for each rank.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "server/shards/shard_threads.h"
#include "server/tables/job_tables.h"
#include "tests/common/base/fake_clock.h"
#include "tests/server/test_worker.h"

namespace sluice {

class JobWithWorkers : public testing::Test {
 protected:
  void Open(const JobSpec& spec, ShardThreads* threads = nullptr) {
    spec_ = spec;
    JobResources resources = TestResources(&clock_);
    resources.shard_threads = threads;
    auto job = JobTables::Open(spec, kSelf, resources);
    ASSERT_TRUE(job.ok()) << job.status();
    job_ = *job;
    for (uint32_t r = 0; r < spec.worker_num(); ++r) {
      workers_.push_back(std::make_unique<TestWorker>(spec, job_, r));
      ASSERT_EQ(workers_.back()->hello().code, 0);
    }
  }
  TestWorker& worker(int rank) { return *workers_[rank]; }
  const Answer& Push(int rank, const TestWorker::PushArgs& args) {
    return worker(rank).Get(worker(rank).Push(args));
  }

  FakeClock clock_;
  JobSpec spec_;
  std::shared_ptr<JobTables> job_;
  std::vector<std::unique_ptr<TestWorker>> workers_;
};

}  // namespace sluice
