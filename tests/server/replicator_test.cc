// Two pservers of one job in one process: the second keeps copies of the first one's shards.
#include "server/replicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "server/job_tables.h"
#include "server/replica_handler.h"
#include "tests/common/transport/in_process_transport.h"
#include "tests/server/test_worker.h"

namespace sluice {
namespace {

using testing::HasSubstr;

constexpr char kFollower[] = "127.0.0.1:7001";
constexpr char kSuccessor[] = "127.0.0.1:7002";

// Table "w" and the shards of "e" belong to pserver 0; pserver 1 only follows.
JobSpec Replicated(uint32_t workers, int k_steps = 0, uint32_t gradients_to_wait = 0) {
  JobSpec spec = MakeSpec(workers, true, k_steps);
  spec.mutable_config()->mutable_strategy()->mutable_a_sync_configs()->set_gradients_to_wait(
      gradients_to_wait);
  spec.mutable_route()->add_pservers(kFollower);
  spec.add_follower(1);
  spec.add_follower(0);
  for (uint32_t r = 0; r < workers; ++r) spec.add_incarnations(1);
  return spec;
}

class ReplicatorTest : public testing::Test {
 protected:
  ~ReplicatorTest() override {
    for (auto* job : {&primary_, &follower_, &successor_}) {
      if (*job != nullptr) (*job)->Close();
    }
    workers_.clear();
    transport_.Unbind(kFollower);
  }

  JobResources Resources() {
    JobResources resources = TestResources(Clock::Real());
    resources.replica_transport = &transport_;
    resources.follower_patience = patience_;
    resources.on_report_changed = [this] {
      MutexLock lock(&mutex_);
      changed_.NotifyAll();
    };
    return resources;
  }
  std::shared_ptr<JobTables> OpenAt(const std::string& address, const JobSpec& spec,
                                    LoadProgress* progress = nullptr) {
    auto job = JobTables::Open(spec, address, Resources(), progress);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job : nullptr;
  }
  void BindFollower() {
    transport_.Bind(kFollower, [this](std::shared_ptr<Stream> stream, std::string) {
      return std::make_unique<ReplicaHandler>(std::move(stream),
                                              [this](const std::string&) { return follower_; });
    });
  }
  void Open(const JobSpec& spec) {
    spec_ = spec;
    primary_ = OpenAt(kSelf, spec);
    follower_ = OpenAt(kFollower, spec);
    BindFollower();
    ConnectWorkers(primary_);
  }
  void ConnectWorkers(std::shared_ptr<JobTables> job) {
    workers_.clear();
    for (uint32_t r = 0; r < spec_.worker_num(); ++r) {
      workers_.push_back(std::make_unique<TestWorker>(spec_, job, r));
      workers_.back()->set_generation(spec_.route().generation());
    }
  }
  template <typename Condition>
  void Await(Condition condition) {
    for (int i = 0; i < 2000 && !condition(); ++i) {
      MutexLock lock(&mutex_);
      changed_.WaitFor(&mutex_, std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(condition()) << primary_->Report().replication().ShortDebugString();
  }
  bool Complete() {
    const HostedJob report = follower_->Report();
    for (const ShardCopies& copies : report.copies()) {
      if (copies.pserver() == 0 && copies.complete()) return true;
    }
    return false;
  }
  uint64_t Push(int rank, uint64_t sequence, float value) {
    return workers_[rank]->Push({.sequence = sequence,
                                 .dense = {value, 2, 3, 4},
                                 .rows = {{5, {value, 0, -1}}, {sequence, {1, value, 1}}},
                                 .delta = geo_,
                                 .generation = spec_.route().generation()});
  }
  void Answered(int rank, uint64_t id) { workers_[rank]->stream()->Wait(id); }
  // Another process opens the shards of pserver 0.
  void TakeOver() {
    spec_.mutable_route()->set_generation(spec_.route().generation() + 1);
    spec_.mutable_route()->set_pservers(0, kSuccessor);
    spec_.mutable_takeover()->set_copies_at(kFollower);
    ASSERT_TRUE(follower_->UpdateRoute(spec_).ok());
    successor_ = OpenAt(kSuccessor, spec_);
  }

  InProcessTransport transport_;
  absl::Duration patience_ = absl::Seconds(30);
  bool geo_ = false;
  Mutex mutex_;
  CondVar changed_;
  JobSpec spec_;
  std::shared_ptr<JobTables> primary_, follower_, successor_;
  std::vector<std::unique_ptr<TestWorker>> workers_;
};

TEST_F(ReplicatorTest, AcknowledgesAloneUntilTheCopiesAreCompleteAndThenWaitsForThem) {
  patience_ = absl::InfiniteDuration();
  spec_ = Replicated(1);
  primary_ = OpenAt(kSelf, spec_);
  ConnectWorkers(primary_);
  EXPECT_TRUE(workers_[0]->stream()->Has(Push(0, 1, 1))) << "nobody follows yet";
  EXPECT_FALSE(primary_->Report().replication().complete());
  follower_ = OpenAt(kFollower, spec_);
  BindFollower();
  Await([&] { return Complete(); });
  Answered(0, Push(0, 2, 1));
  EXPECT_TRUE(primary_->Report().replication().complete());
  EXPECT_EQ(primary_->Report().replication().error(), "");
  // The follower is gone: nothing is acknowledged, also no repetition, until the copies are void.
  transport_.Unbind(kFollower);
  const uint64_t third = Push(0, 3, 1), again = Push(0, 3, 1);
  Await([&] { return !primary_->Report().replication().error().empty(); });
  EXPECT_TRUE(primary_->Report().replication().complete());
  EXPECT_FALSE(workers_[0]->stream()->Has(third));
  EXPECT_FALSE(workers_[0]->stream()->Has(again));
  EXPECT_EQ(workers_[0]->Dense().size(), 4u) << "pulls do not wait";
  spec_.mutable_route()->set_generation(2);
  spec_.set_follower(0, 0);
  ASSERT_TRUE(primary_->UpdateRoute(spec_).ok());
  Answered(0, third);
  Answered(0, again);
  EXPECT_FALSE(primary_->Report().replication().complete());
}

TEST_F(ReplicatorTest, ASilentFollowerIsGivenUp) {
  patience_ = absl::Milliseconds(100);
  Open(Replicated(1));
  Await([&] { return Complete(); });
  // One that takes no more after the copies are complete.
  struct Stopping : ReplicaHandler {
    using ReplicaHandler::ReplicaHandler;
    void OnMessage(Message message) override {
      if (!stopped) ReplicaHandler::OnMessage(message);
      stopped |= DecodeReplica(message)->header.complete();
    }
    bool stopped = false;
  };
  transport_.Unbind(kFollower);
  Await([&] { return !primary_->Report().replication().error().empty(); });
  for (const uint32_t follower : {0, 1}) {
    spec_.mutable_route()->set_generation(spec_.route().generation() + 1);
    spec_.set_follower(0, follower);
    ASSERT_TRUE(follower_->UpdateRoute(spec_).ok());
    ASSERT_TRUE(primary_->UpdateRoute(spec_).ok());
  }
  transport_.Bind(kFollower, [this](std::shared_ptr<Stream> stream, std::string) {
    return std::make_unique<Stopping>(std::move(stream),
                                      [this](const std::string&) { return follower_; });
  });
  Await([&] { return Complete(); });
  const uint64_t id = Push(0, 1, 1);
  Await([&] { return !primary_->Report().replication().error().empty(); });
  EXPECT_THAT(primary_->Report().replication().error(), HasSubstr("confirmed nothing"));
  EXPECT_FALSE(workers_[0]->stream()->Has(id));
}

TEST_F(ReplicatorTest, TheReportOfAFencedLifeWaitsForTheFollower) {
  Open(Replicated(1));
  Await([&] { return Complete(); });
  transport_.Unbind(kFollower);
  Push(0, 1, 1);
  Await([&] { return !primary_->Report().replication().error().empty(); });
  spec_.mutable_route()->set_generation(2);
  spec_.set_incarnations(0, 2);
  ASSERT_TRUE(primary_->UpdateRoute(spec_).ok());
  EXPECT_EQ(primary_->Report().generation(), 1u);
  spec_.mutable_route()->set_generation(3);
  spec_.set_follower(0, 0);
  ASSERT_TRUE(primary_->UpdateRoute(spec_).ok());
  EXPECT_EQ(primary_->Report().generation(), 3u);
  ASSERT_EQ(primary_->Report().ranks_size(), 1);
  EXPECT_EQ(primary_->Report().ranks(0).sequence(), 1u);
}

class TakeoverTest : public ReplicatorTest,
                     public testing::WithParamInterface<std::tuple<int, uint32_t>> {};

TEST_P(TakeoverTest, ASuccessorContinuesFromTheCopiesToTheBit) {
  const auto [k_steps, to_wait] = GetParam();
  geo_ = k_steps > 0;
  Open(Replicated(2, k_steps, to_wait));
  std::mt19937 random(7);
  uint64_t sequence[2] = {0, 0};
  const auto push = [&] {
    const int rank = static_cast<int>(random() % 2);
    return std::make_pair(rank, Push(rank, ++sequence[rank], 0.1f * (random() % 100)));
  };
  for (int i = 0; i < 20; ++i) push();
  Await([&] { return Complete(); });
  for (int i = 0; i < 25; ++i) {
    const auto [rank, id] = push();
    Answered(rank, id);
  }
  std::vector<uint64_t> keys;
  for (uint64_t key = 1; key < 40; ++key) keys.push_back(key);
  const std::vector<float> dense = workers_[0]->Dense();
  const Rows rows = workers_[0]->Sparse(keys);
  // The primary goes on, but nobody uses it any more.
  TakeOver();
  ASSERT_NE(successor_, nullptr);
  EXPECT_EQ(follower_->Report().copies_size(), 0) << "dropped before the successor serves anybody";
  ConnectWorkers(successor_);
  EXPECT_EQ(successor_->Report().awaited_ranks_size(), 0);
  EXPECT_EQ(successor_->Report().updates_lost(), 0u);
  for (const auto& table : {0, 1}) {
    Shard* const shard = successor_->shard_for_test(table, 0);
    ASSERT_NE(shard, nullptr);
    EXPECT_EQ(shard->LastPushed(0), sequence[0]);
    EXPECT_EQ(shard->LastPushed(1), sequence[1]);
  }
  EXPECT_EQ(workers_[0]->Dense(), dense);
  EXPECT_EQ(workers_[0]->Sparse(keys), rows);
}

INSTANTIATE_TEST_SUITE_P(Modes, TakeoverTest,
                         testing::Values(std::make_tuple(0, 0u), std::make_tuple(0, 4u),
                                         std::make_tuple(2, 0u)));

TEST_F(ReplicatorTest, APrimaryThatIsBelievedDeadAcknowledgesNothingOnceTheCopiesAreRead) {
  Open(Replicated(1));
  Await([&] { return Complete(); });
  Answered(0, Push(0, 1, 1));
  TakeOver();
  ASSERT_NE(successor_, nullptr);
  spec_.mutable_route()->set_generation(1);  // the old worker knows no other
  const uint64_t late = Push(0, 2, 1);
  Await([&] { return !primary_->Report().replication().error().empty(); });
  EXPECT_FALSE(workers_[0]->stream()->Has(late));
}

}  // namespace
}  // namespace sluice
