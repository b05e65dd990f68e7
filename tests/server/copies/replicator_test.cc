// Two pservers of one job in one process: the second keeps copies of the first one's shards.
#include "server/copies/replicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "server/service/replica_handler.h"
#include "server/tables/job_tables.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/transport/in_process_transport.h"
#include "tests/server/replicated_job.h"
#include "tests/server/test_worker.h"

namespace sluice {
namespace {

using testing::HasSubstr;

// Has no memory for one message once `full` is set.
class FullTransport : public Transport {
 public:
  explicit FullTransport(Transport* to) : to_(to) {}
  std::unique_ptr<Stream> Connect(const PserverAddress& to, StreamCallbacks callbacks) override {
    return std::make_unique<FullStream>(this, to_->Connect(to, std::move(callbacks)));
  }
  absl::StatusOr<std::string> Call(const PserverAddress& to, const std::string& method,
                                   const std::string& request, absl::Duration timeout) override {
    return to_->Call(to, method, request, timeout);
  }
  std::atomic<bool> full{false};

 private:
  class FullStream : public Stream {
   public:
    FullStream(FullTransport* transport, std::unique_ptr<Stream> to)
        : transport_(transport), to_(std::move(to)) {}
    void Send(Message message) override {
      if (transport_->full.exchange(false)) throw std::bad_alloc();
      to_->Send(std::move(message));
    }
    void Close() override { to_->Close(); }

   private:
    FullTransport* const transport_;
    const std::unique_ptr<Stream> to_;
  };

  Transport* const to_;
};

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
    resources.replica_transport = &full_;
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
    transport_.Bind(kFollower, [this](std::shared_ptr<Stream> stream, const PeerIdentity&) {
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
    for (int i = 0; i < 6000 && !condition(); ++i) {
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
  FullTransport full_{&transport_};
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
  patience_ = absl::Seconds(2);
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
  transport_.Bind(kFollower, [this](std::shared_ptr<Stream> stream, const PeerIdentity&) {
    return std::make_unique<Stopping>(std::move(stream),
                                      [this](const std::string&) { return follower_; });
  });
  Await([&] { return Complete(); });
  const uint64_t id = Push(0, 1, 1);
  Await([&] { return !primary_->Report().replication().error().empty(); });
  EXPECT_THAT(primary_->Report().replication().error(), HasSubstr("confirmed nothing"));
  EXPECT_FALSE(workers_[0]->stream()->Has(id));
}

TEST_F(ReplicatorTest, WithoutMemoryForChangesTheStreamEndsAndTheJobGoesOn) {
  Open(Replicated(1));
  Await([&] { return Complete(); });
  full_.full = true;
  const uint64_t id = Push(0, 1, 1);
  Await([&] { return !primary_->Report().replication().error().empty(); });
  EXPECT_THAT(primary_->Report().replication().error(), HasSubstr("no memory"));
  EXPECT_FALSE(workers_[0]->stream()->Has(id)) << "the follower lacks it";
  for (const uint32_t follower : {0, 1}) {
    spec_.mutable_route()->set_generation(spec_.route().generation() + 1);
    spec_.set_follower(0, follower);
    ASSERT_TRUE(follower_->UpdateRoute(spec_).ok());
    ASSERT_TRUE(primary_->UpdateRoute(spec_).ok());
  }
  Answered(0, id);
  Await([&] { return Complete(); });
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

// A successor that continues from copies with the rows would bring them back.
TEST_F(ReplicatorTest, DeletedRowsAreOnlyGoneWhenTheFollowerHasDeletedThem) {
  std::string root = testing::TempDir() + "/replicator_test.XXXXXX";
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  JobSpec spec = Replicated(1);
  spec.mutable_config()->mutable_checkpoint()->set_dir(root);
  Open(spec);
  Await([&] { return Complete(); });
  for (const uint64_t sequence : {1, 2}) Answered(0, Push(0, sequence, 1));
  const auto erase = [&](uint64_t number, uint64_t key) {
    CutOrder order;
    order.set_now(number);
    order.set_step(number);
    order.mutable_deletion()->set_id(number);
    order.mutable_deletion()->set_at(number);
    order.mutable_deletion()->set_table(1);
    order.mutable_deletion()->add_keys(key);
    primary_->SetCutOrder(order);
  };
  const auto state = [&] { return primary_->Report().cut().state(); };
  erase(1, 5);
  Await([&] { return state() == HostedCut::WRITTEN; });
  EXPECT_EQ(primary_->Report().cut().deletion(), 1u);
  EXPECT_EQ(primary_->Report().cut().deleted(), 1u);

  transport_.Unbind(kFollower);
  Await([&] { return !primary_->Report().replication().error().empty(); });
  erase(2, 1);
  ASSERT_TRUE(primary_->SaveShards(root + "/model").ok()) << "waits for the checkpoint's files";
  EXPECT_EQ(state(), HostedCut::WRITING) << "the copies have the row of key 1";
  EXPECT_EQ(primary_->Report().cut().files_size(), 0);

  BindFollower();
  TakeOver();
  ConnectWorkers(successor_);
  EXPECT_EQ(workers_[0]->Sparse({5})[5], std::vector<float>(3, kInitialSparse));
  EXPECT_NE(workers_[0]->Sparse({1})[1], std::vector<float>(3, kInitialSparse));
  EXPECT_NE(workers_[0]->Sparse({2})[2], std::vector<float>(3, kInitialSparse));
  // The scheduler has given the copies up.
  spec_.mutable_route()->set_generation(spec_.route().generation() + 1);
  spec_.mutable_route()->set_pservers(0, kSelf);
  spec_.set_follower(0, 0);
  ASSERT_TRUE(primary_->UpdateRoute(spec_).ok());
  EXPECT_EQ(state(), HostedCut::WRITTEN);
  EXPECT_GT(primary_->Report().cut().files_size(), 0);
  std::filesystem::remove_all(root);
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
  // The primary continues, but nobody uses it any more.
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

// A replicator by itself. Its follower answers the hello, and confirms what it is told to.
class ReplicatorAloneTest : public testing::Test {
 protected:
  // Moves by itself at each look, once it may.
  class MovingClock : public FakeClock {
   public:
    absl::Time Now() override {
      Advance(absl::Milliseconds(step_ms_.load()));
      return FakeClock::Now();
    }
    absl::Time Peek() { return FakeClock::Now(); }
    void Move(int64_t step_ms) { step_ms_ = step_ms; }

   private:
    std::atomic<int64_t> step_ms_{0};
  };
  struct Follower : StreamHandler {
    Follower(ReplicatorAloneTest* test, std::shared_ptr<Stream> to)
        : test(test), stream(std::move(to)) {}
    void OnMessage(Message message) override {
      const auto decoded = DecodeReplica(std::move(message));
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      if (decoded->header.has_hello()) ++test->hellos_;
      if (decoded->header.has_hello() ? !test->answers_hello_ : !test->confirms_) return;
      if (test->garbles_) return stream->Send({Slice::FromString("\x16")});
      bytes += decoded->payload.remaining();
      ReplicaHeader answer;
      answer.set_confirmed(std::min<uint64_t>(decoded->header.position(), test->confirms_up_to_));
      if (test->claims_all_) answer.set_confirmed(UINT64_MAX);
      answer.set_seed_bytes(UINT64_MAX);
      stream->Send(EncodeReplica(answer, {}));
    }
    void OnClosed() override {}
    ReplicatorAloneTest* const test;
    const std::shared_ptr<Stream> stream;
    uint64_t bytes = 0;
  };

  ReplicatorAloneTest() {
    transport_.Bind(kFollower, [this](std::shared_ptr<Stream> stream, const PeerIdentity&) {
      return std::make_unique<Follower>(this, std::move(stream));
    });
    options_.job_id = "job";
    options_.transport = &transport_;
    options_.clock = &clock_;
    options_.writer = &writer_;
    options_.turn = &turn_;
    options_.available_memory = [] { return UINT64_MAX; };
    options_.await_checkpoint = [this] { ++images_; };
    options_.may_seed = [] { return true; };
    options_.on_change = [this] {
      MutexLock lock(&mutex_);
      changes_.push_back(clock_.Peek());
      changed_.NotifyAll();
    };
    options_.patience = absl::Seconds(2);
  }
  ~ReplicatorAloneTest() override {
    EndClaim();
    if (replicator_ != nullptr) replicator_->Close();
    if (claiming_.joinable()) claiming_.join();
    transport_.Unbind(kFollower);
  }

  void Start(std::vector<std::shared_ptr<Shard>> shards = {}) {
    replicator_ = std::make_unique<Replicator>(options_, std::move(shards));
    replicator_->TakeSpec(Replicated(1), 0);
  }
  std::shared_ptr<Shard> NewShard() {
    UpdatePolicy policy;
    policy.replicated = true;
    return MakeSparseShard(LayoutsOf(MakeSpec(1, true, 0))[1], 0, policy);
  }
  static void Change(Shard* shard, uint64_t sequence) {
    PushPart part;
    EXPECT_EQ(shard->Apply({0, 1, sequence, 1}, &part).status, PART_OK);
  }
  // Each of the first `n` images is interrupted by the claim of a checkpoint. It lives until
  // EndClaim was called.
  void ClaimDuringImages(int n) {
    options_.available_memory = [this, n] {  // asked for when the image begins
      if (claims_ >= n) return UINT64_MAX;
      ++claims_;
      if (claiming_.joinable()) claiming_.join();
      claiming_ = std::thread([this] {
        const SeedTurn::Claim claim(&turn_);
        MutexLock lock(&mutex_);
        claimed_ = true;
        changed_.NotifyAll();
        while (!may_end_) changed_.Wait(&mutex_);
      });
      while (!turn_.ClaimedForTest()) std::this_thread::yield();
      return UINT64_MAX;
    };
  }
  void AwaitClaim() {
    MutexLock lock(&mutex_);
    while (!claimed_) changed_.Wait(&mutex_);
  }
  void EndClaim() {
    MutexLock lock(&mutex_);
    may_end_ = true;
    changed_.NotifyAll();
  }
  // The times of the first `n` changes of the report.
  std::vector<absl::Time> AwaitChanges(size_t n) {
    MutexLock lock(&mutex_);
    for (int i = 0; i < 6000 && changes_.size() < n; ++i)
      changed_.WaitFor(&mutex_, std::chrono::milliseconds(10));
    EXPECT_GE(changes_.size(), n);
    return changes_;
  }
  Replication Report() {
    HostedJob report;
    replicator_->FillReport(&report);
    return report.replication();
  }
  // Makes an answer wait, and returns where it will be.
  std::shared_ptr<FakeStream> Acknowledge(uint64_t id, const Replicator::Mark& changes) {
    auto stream = std::make_shared<FakeStream>();
    auto reply = std::make_unique<ReplyWriter>(stream, id);
    reply->set_acknowledges(changes);
    replicator_->Acknowledge(1, std::move(reply), {1});
    return stream;
  }

  InProcessTransport transport_;
  MovingClock clock_;
  CutWriter writer_;
  SeedTurn turn_;
  std::atomic<int> hellos_{0}, images_{0};
  std::atomic<uint64_t> confirms_up_to_{UINT64_MAX};
  std::atomic<bool> answers_hello_{true}, confirms_{false}, claims_all_{false}, garbles_{false};
  Mutex mutex_;
  CondVar changed_;
  std::vector<absl::Time> changes_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> claims_{0};
  std::thread claiming_;
  bool claimed_ ABSL_GUARDED_BY(mutex_) = false, may_end_ ABSL_GUARDED_BY(mutex_) = false;
  Replicator::Options options_;
  std::unique_ptr<Replicator> replicator_;
};

TEST_F(ReplicatorAloneTest, AClosedJobAcknowledgesNothingThatTheFollowerMayLack) {
  Start();
  AwaitChanges(1);
  ASSERT_TRUE(Report().complete());
  const Replicator::Mark changes = replicator_->ChangesNow();
  const auto before = Acknowledge(7, changes);
  EXPECT_FALSE(before->Has(7));
  std::thread closing([this] { replicator_->Close(); });
  closing.join();
  // A request that was under way when the job was closed.
  const auto late = Acknowledge(8, changes);
  ASSERT_TRUE(before->Has(7));
  ASSERT_TRUE(late->Has(8));
  EXPECT_EQ(before->answers[7].code, static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(late->answers[8].code, static_cast<int>(absl::StatusCode::kNotFound));
}

TEST_F(ReplicatorAloneTest, AnAnswerWaitsOnlyForTheChangesOfItsRequest) {
  confirms_ = true;
  confirms_up_to_ = 2;  // `complete` and the first change
  auto shard = NewShard();
  Start({shard});
  AwaitChanges(1);
  std::vector<Replicator::Mark> changes;
  for (uint64_t sequence = 1; sequence <= 2; ++sequence) {
    Change(shard.get(), sequence);
    changes.push_back(replicator_->ChangesNow());
    replicator_->Pump();
  }
  // The later request is answered first.
  const auto second = Acknowledge(2, changes[1]);
  const auto first = Acknowledge(1, changes[0]);
  first->Wait(1);
  EXPECT_EQ(first->answers[1].code, 0);
  EXPECT_FALSE(second->Has(2));
}

TEST_F(ReplicatorAloneTest, AFollowerConfirmsNothingThatIsStillToCome) {
  claims_all_ = true;  // in its answer to the hello, which is the only one
  auto shard = NewShard();
  Start({shard});
  AwaitChanges(1);
  ASSERT_TRUE(Report().complete());
  Change(shard.get(), 1);
  EXPECT_FALSE(Acknowledge(1, replicator_->ChangesNow())->Has(1));
}

TEST_F(ReplicatorAloneTest, AnswersThatAreNoMessagesEndTheStream) {
  garbles_ = true;
  auto shard = NewShard();
  Start({shard});
  AwaitChanges(1);
  EXPECT_FALSE(Report().complete());
  EXPECT_NE(Report().error(), "");
}

TEST_F(ReplicatorAloneTest, AnswersThatWaitAreBounded) {
  options_.worker_num = 2;
  Start();
  AwaitChanges(1);
  const Replicator::Mark changes = replicator_->ChangesNow();
  std::vector<std::shared_ptr<FakeStream>> streams;
  for (size_t i = 0; i < 2 * Replicator::kKeptPerRank; ++i) {
    streams.push_back(Acknowledge(1, changes));
    EXPECT_FALSE(streams.back()->Has(1));
  }
  const auto one_more = Acknowledge(1, changes);
  ASSERT_TRUE(one_more->Has(1));
  EXPECT_EQ(one_more->answers[1].code, static_cast<int>(absl::StatusCode::kResourceExhausted));
}

TEST_F(ReplicatorAloneTest, SetsNoChangesAsideForAFollowerThatDoesNotAnswer) {
  answers_hello_ = false;
  auto shard = NewShard();
  Start({shard});
  clock_.Move(/*step_ms=*/250);
  AwaitChanges(1);
  EXPECT_NE(Report().error(), "");
  EXPECT_EQ(images_, 0);
}

TEST_F(ReplicatorAloneTest, AnImageThatIsGivenUpKeepsNoChanges) {
  confirms_ = true;
  options_.max_behind_bytes = 1024;
  ClaimDuringImages(1);
  auto shard = NewShard();
  Start({shard});
  AwaitClaim();
  for (uint64_t sequence = 1; sequence <= 20; ++sequence) Change(shard.get(), sequence);
  EndClaim();
  AwaitChanges(1);
  EXPECT_TRUE(Report().complete()) << Report().error();
  EXPECT_EQ(hellos_, 1) << "the log was not closed";
}

TEST_F(ReplicatorAloneTest, AnImageThatCheckpointsInterruptAgainAndAgainIsFinished) {
  confirms_ = true;
  ClaimDuringImages(20);
  auto shard = NewShard();
  Start({shard});
  EndClaim();
  AwaitChanges(1);
  if (!Report().complete()) AwaitChanges(2);
  EXPECT_TRUE(Report().complete());
  EXPECT_LT(claims_, 10);
}

TEST_F(ReplicatorAloneTest, APrimaryThatWasStoppedDoesNotTakeItsFollowerForSilent) {
  Start();
  AwaitChanges(1);
  const absl::Time resumed = clock_.Peek() + absl::Hours(1);
  clock_.Advance(absl::Hours(1));
  clock_.Move(/*step_ms=*/250);
  EXPECT_GE(AwaitChanges(2)[1], resumed + options_.patience);
  EXPECT_THAT(Report().error(), HasSubstr("confirmed nothing"));
}

}  // namespace
}  // namespace sluice
