// A scheduler core that is restarted from the records of the one before.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/scheduler/fake_cluster.h"

namespace sluice {

class RestartTest : public testing::Test {
 protected:
  RestartTest() { Start(); }

  void Start() {
    StoredJobs stored = *ParseStoredJobs(Entries());
    SchedulerCore::Options options = FakeCluster::Options(2, 2);
    ++term_;
    options.first_id = options.first_version = term_ << 40;
    options.next = stored.next;
    options.pass_key =
        stored.next.pass_key().empty() ? absl::StrCat("key", term_) : stored.next.pass_key();
    options.draining = stored.draining;
    c_ = std::make_unique<FakeCluster>(std::move(options));
    for (const JobRecord& record : stored.jobs) {
      std::optional<RunHandover> run;
      if (auto left = stored.runs.extract(record.job_id()); adopts_ && !left.empty()) {
        run.emplace();
        run->run = std::move(left.mapped());
        run->began_at = BeginningOf(run->run);
      }
      absl::StatusOr<std::unique_ptr<const ResumePoint>> point = nullptr;
      if (const auto found = points_.find(record.job_id()); found != points_.end())
        point = std::move(found->second);
      c_->core_.RestoreJob(record, std::move(point), std::move(run), c_->now_);
    }
    for (const auto& [job_id, run] : stored.runs) c_->core_.ForgetRun(run);
  }
  std::vector<MetaStore::Entry> Entries() const {
    std::vector<MetaStore::Entry> entries;
    for (const auto& [key, value] : records_) entries.push_back({key, value});
    return entries;
  }
  // Applies the records that have changed.
  void Keep() {
    for (const MetaStore::Write& write : c_->core_.TakeRecords()) {
      if (write.value.has_value()) {
        records_[write.key] = *write.value;
      } else {
        records_.erase(write.key);
      }
    }
  }
  // The scheduler dies, and another begins. The members are still to register.
  void Restart() {
    Keep();
    Start();
    Keep();
  }
  std::string Submit(const JobConfig& config, std::unique_ptr<const ResumePoint> resume = nullptr) {
    auto job = c_->core_.operators().PrepareJob(config, {}, "/output", 1, {}, std::move(resume));
    EXPECT_TRUE(job.ok()) << job.status();
    for (const MetaStore::Write& write : c_->core_.operators().RecordsOf(**job))
      records_[write.key] = *write.value;
    return *c_->core_.operators().AddJob(*std::move(job), c_->now_);
  }
  std::string Run(const JobConfig& config, std::unique_ptr<const ResumePoint> resume = nullptr) {
    const std::string job_id = Submit(config, std::move(resume));
    c_->PollAll();
    EXPECT_EQ(c_->State(job_id), JOB_RUNNING);
    return job_id;
  }
  static JobConfig Config(uint32_t workers = 2) {
    JobConfig config = FakeCluster::Config(-1, workers);
    config.mutable_recovery()->set_max_losses(100);
    return config;
  }
  bool Draining(int member) {
    return c_->core_.operators().GetStatus(c_->now_).members(member).draining();
  }
  JobRecord Record(const std::string& job_id) {
    JobRecord record;
    EXPECT_TRUE(record.ParseFromString(records_["job/" + job_id]));
    return record;
  }
  void EndPhases(const std::string& job_id) {
    for (int number = 1; number < 5; ++number) {
      for (const uint32_t rank : {0, 1}) {
        PhaseReport report = number == 1 ? Indexed(50, rank) : Trained(number, 50);
        c_->Phase(job_id, rank, report).status().IgnoreError();
      }
    }
    c_->PollAll();
  }

  bool adopts_ = false;  // runs; else they are forgotten, as if their records were not there
  uint64_t term_ = 0;
  std::map<std::string, std::string> records_;
  std::map<std::string, absl::StatusOr<std::unique_ptr<const ResumePoint>>> points_;
  std::unique_ptr<FakeCluster> c_;
};

}  // namespace sluice
