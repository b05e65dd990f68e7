// Async and Geo, over every transport: a pserver dies, and another one continues with its shards
// from a checkpoint while clients push. Every gradient and delta adds one to the same values of
// every shard, so that these count the frames of all ranks. The updates that are missing must be
// those that the pservers report as lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "common/saved_model/checkpoint.h"
#include "tests/client/all_networks.h"
#include "tests/client/cluster_for_test.h"

namespace sluice {
namespace {

constexpr uint32_t kPservers = 2, kRanks = 2, kKeys = 400;  // every shard has some of the keys

// Stands for the scheduler of a job whose pservers are lost.
class TakeoverTest : public testing::TestWithParam<std::tuple<TestMode, NetworkKind>> {
 protected:
  TakeoverTest() : job_(MakeJob(mode(), kPservers, kRanks)) {
    std::string pattern = testing::TempDir() + "/takeover_test.XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    job_.mutable_config()->mutable_checkpoint()->set_dir(root_);
    job_.mutable_config()->mutable_strategy()->mutable_a_sync_configs()->set_geo_merge(
        ASyncConfigs::SUM);
    pservers_.resize(kPservers);
    for (uint32_t p = 0; p < kPservers; ++p) Start(p);
    for (uint32_t rank = 0; rank < kRanks; ++rank) clients_.push_back(Client(rank));
  }
  ~TakeoverTest() override {
    clients_.clear();
    for (uint32_t p = 0; p < kPservers; ++p) Kill(p);
    std::filesystem::remove_all(root_);
  }

  static TestMode mode() { return std::get<0>(GetParam()); }
  const std::string& AddressOf(uint32_t p) const {
    return job_.route().pservers(static_cast<int>(p));
  }
  void Start(uint32_t p) {
    JobResources resources;
    resources.clock = Clock::Real();
    resources.env = Env::Real();
    resources.available_memory = [] { return UINT64_MAX; };
    pservers_[p] = std::make_unique<Pserver>(resources);
    Reconcile(p);
    network_->Bind(AddressOf(p), [pserver = pservers_[p].get()](std::shared_ptr<Stream> stream,
                                                                const PeerIdentity&) {
      return pserver->NewHandler(std::move(stream));
    });
  }
  void Reconcile(uint32_t p) {
    google::protobuf::RepeatedPtrField<JobSpec> desired;
    *desired.Add() = job_;
    pservers_[p]->Reconcile(AddressOf(p), desired);
    pservers_[p]->WaitUntilOpenForTest();
    ASSERT_EQ(Report(p).error(), "");
  }
  HostedJob Report(uint32_t p) { return pservers_[p]->Report()[0]; }
  void Kill(uint32_t p) {
    if (pservers_[p] == nullptr) return;
    network_->Unbind(AddressOf(p));
    pservers_[p].reset();
  }
  // The route that clients get.
  absl::StatusOr<Route> GetRoute() {
    MutexLock lock(&mutex_);
    return route_;
  }
  void Publish() {
    MutexLock lock(&mutex_);
    route_ = job_.route();
  }
  // Kills pserver p, and starts another one for its shards, perhaps at another address.
  void Replace(uint32_t p, bool moves) {
    Kill(p);
    Route* const route = job_.mutable_route();
    route->add_vacant(p);
    Publish();
    if (moves)
      route->set_pservers(static_cast<int>(p), absl::StrCat("pserver-", p, "-", ++replaced_));
    route->clear_vacant();
    route->set_generation(route->generation() + 1);
    job_.mutable_takeover()->set_checkpoint(checkpoint_);
    NameLives();
    Start(p);
    Reconcile(1 - p);
    Publish();
    for (auto& client : clients_) client->NoteGeneration(route->generation());
  }
  void NameLives() {
    job_.clear_incarnations();
    for (const uint64_t life : lives_) job_.add_incarnations(life);
  }
  void AwaitHello(uint32_t p) {
    for (int i = 0; i < 12'000 && Report(p).awaited_ranks_size() > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_EQ(Report(p).awaited_ranks_size(), 0);
  }
  void Checkpoint() {
    Manifest manifest;
    *manifest.mutable_tables() = job_.tables();
    google::protobuf::RepeatedPtrField<CutOrder> orders;
    CutOrder* const order = orders.Add();
    order->set_job_id("job-1");
    order->set_instance(kInstance);
    order->set_over(number_);
    order->set_now(++number_);
    order->set_step(number_);
    for (uint32_t p = 0; p < kPservers; ++p) {
      pservers_[p]->SetCutOrders(orders);
      while (Report(p).cut().state() == HostedCut::WRITING) std::this_thread::yield();
      const HostedCut cut = Report(p).cut();
      ASSERT_EQ(cut.state(), HostedCut::WRITTEN) << cut.error();
      manifest.mutable_files()->MergeFrom(cut.files());
    }
    manifest.mutable_checkpoint()->set_global_step(number_);
    checkpoint_ = CheckpointFolder(root_, number_);
    const absl::Status made = CommitCheckpoint(checkpoint_, job_.config(), manifest, Env::Real(),
                                               CheckpointSaveId(kInstance, number_));
    ASSERT_TRUE(made.ok()) << made;
  }

  std::unique_ptr<ParameterClient> Client(uint32_t rank) {
    Publish();
    ParameterClient::Options options = ClientOptions(job_, network_->transport(), rank);
    options.incarnation = lives_[rank];
    options.get_route = [this] { return GetRoute(); };
    auto client = ParameterClient::Create(std::move(options));
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
  std::shared_ptr<TestValues> Values(float value) {
    std::vector<uint64_t> keys;
    for (uint64_t k = 0; k < kKeys; ++k) keys.push_back(k);
    auto values = std::make_shared<TestValues>(*clients_[0], keys);
    std::fill(values->rows.begin(), values->rows.end(), value);
    std::fill(values->dense.begin(), values->dense.end(), value);
    return values;
  }
  // Starts a push that counts one in every shard.
  void Push(uint32_t rank) {
    ++pushed_[rank];
    if (mode() == TestMode::kAsync) {
      PushRequest push = TestValues::Push(Values(-1), 1);
      push.position.task_id = 7;
      push.position.task_end = pushed_[rank];
      ASSERT_TRUE(clients_[rank]->StartPush(std::move(push)).ok());
      return;
    }
    auto answer = Values(0);
    PushRequest delta = TestValues::Push(Values(1), 1);
    delta.position.task_id = 7;
    delta.position.task_end = pushed_[rank];
    exchanges_[rank].push_back(
        {clients_[rank]->StartExchange(std::move(delta), answer->Pull()), answer});
  }
  void Wait(uint32_t rank, int in_flight = 0) {
    const absl::Status pushed = clients_[rank]->WaitPushes(in_flight);
    ASSERT_TRUE(pushed.ok()) << pushed;
    for (; exchanges_[rank].size() > static_cast<size_t>(in_flight); exchanges_[rank].pop_front()) {
      const absl::Status status = clients_[rank]->WaitPull(exchanges_[rank].front().first);
      ASSERT_TRUE(status.ok()) << status;
    }
  }
  // Frames that the shards lack, summed over the shards. Fails if one has more than were made.
  uint64_t Missing() {
    auto seen = Values(0);
    const absl::Status pulled = clients_[0]->WaitPull(clients_[0]->StartPull(seen->Pull()));
    EXPECT_TRUE(pulled.ok()) << pulled;
    const uint64_t all = pushed_[0] + pushed_[1] + ended_frames_;
    uint64_t missing = 0;
    std::map<uint32_t, float> by_shard;
    const TableLayout& emb = *clients_[0]->tables()[kEmb];
    for (size_t i = 0; i < seen->keys->keys.size(); ++i) {
      const uint32_t shard = emb.ShardOf(seen->keys->keys[i]);
      const auto first = by_shard.emplace(shard, seen->rows[i * kDim]).first;
      EXPECT_EQ(first->second, seen->rows[i * kDim]) << "a frame was applied in part";
    }
    EXPECT_EQ(by_shard.size(), 16u);
    by_shard[16] = seen->dense[0];
    for (const auto& [shard, count] : by_shard) {
      EXPECT_LE(count, all) << "shard " << shard << " has counted a frame twice";
      missing += all - static_cast<uint64_t>(count);
    }
    return missing;
  }
  uint64_t Lost() {
    uint64_t lost = 0;
    for (uint32_t p = 0; p < kPservers; ++p) lost += Report(p).updates_lost();
    return lost;
  }

  JobSpec job_;
  std::string root_, checkpoint_;
  uint64_t number_ = 0;
  int replaced_ = 0;
  std::vector<uint64_t> lives_ = std::vector<uint64_t>(kRanks, 1);
  Mutex mutex_;
  Route route_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Pserver>> pservers_;
  const std::unique_ptr<TestNetwork> network_ = std::get<1>(GetParam()).make();
  std::vector<std::unique_ptr<ParameterClient>> clients_;
  uint64_t pushed_[kRanks] = {};  // by the present lives
  uint64_t ended_frames_ = 0;     // of earlier lives
  std::deque<std::pair<ParameterClient::Ticket, std::shared_ptr<TestValues>>> exchanges_[kRanks];
};

TEST_P(TakeoverTest, WithoutACheckpointExactlyWhatWasAcknowledgedIsLost) {
  for (int step = 0; step < 5; ++step) {
    for (const uint32_t rank : {0, 1}) Push(rank);
  }
  for (const uint32_t rank : {0, 1}) Wait(rank);
  EXPECT_EQ(Missing(), 0u);
  Replace(1, /*moves=*/true);
  AwaitHello(1);  // of ranks that have nothing to send
  EXPECT_EQ(Lost(), 10u * 9) << "ten frames on eight sparse shards and the dense one";
  EXPECT_EQ(Missing(), Lost());
  for (const uint32_t rank : {0, 1}) Push(rank);
  for (const uint32_t rank : {0, 1}) Wait(rank);
  EXPECT_EQ(Missing(), 90u);
  EXPECT_EQ(Lost(), 90u);
}

TEST_P(TakeoverTest, FramesThatWereNotAcknowledgedAreSentAgainAndNotLost) {
  Push(0);
  Wait(0);
  Checkpoint();
  Push(0);
  Wait(0);
  Kill(1);
  for (int step = 0; step < 3; ++step) Push(0);
  Replace(1, /*moves=*/false);
  Wait(0);
  AwaitHello(1);
  EXPECT_EQ(Lost(), 9u) << "the second frame";
  EXPECT_EQ(Missing(), 9u);
}

TEST_P(TakeoverTest, PositionsAndLostUpdatesAreInTheNextCheckpoint) {
  for (int step = 0; step < 4; ++step) Push(0);
  Wait(0);
  Replace(1, true);
  AwaitHello(1);
  Checkpoint();
  const HostedCut cut = Report(1).cut();
  ASSERT_EQ(cut.least_size(), 2);
  EXPECT_EQ(cut.least(0).sequence(), 4u);
  EXPECT_EQ(cut.least(0).task_end(), 4u) << "the frame is lost, but not trained again";
  Push(0);
  Wait(0);
  EXPECT_EQ(Lost(), 36u);
  Replace(1, false);
  AwaitHello(1);
  EXPECT_EQ(Lost(), 45u) << "36 were lost before the checkpoint, nine since";
  EXPECT_EQ(Missing(), 45u);
}

TEST_P(TakeoverTest, CountsFramesThatEndedLivesDelivered) {
  for (int step = 0; step < 3; ++step) {
    for (const uint32_t rank : {0, 1}) Push(rank);
  }
  for (const uint32_t rank : {0, 1}) Wait(rank);
  Checkpoint();
  Push(0);
  Wait(0);
  // Rank 0 is replaced: all shards hold four frames of its first life.
  clients_[0].reset();
  lives_[0] = 5;
  EndedLife* const ended = job_.mutable_takeover()->add_ended();
  ended->set_incarnation(1);
  ended->set_sequence(4);
  job_.mutable_route()->set_generation(job_.route().generation() + 1);
  NameLives();
  for (const uint32_t p : {0, 1}) Reconcile(p);
  clients_[0] = Client(0);
  ended_frames_ = std::exchange(pushed_[0], 0);
  Push(0);
  Wait(0);
  EXPECT_EQ(Missing(), 0u);
  Replace(0, true);
  AwaitHello(0);
  EXPECT_EQ(Lost(), 16u) << "one frame of each life, on eight shards";
  EXPECT_EQ(Missing(), 16u);
  Push(0);
  Push(1);
  for (const uint32_t rank : {0, 1}) Wait(rank);
  EXPECT_EQ(Missing(), 16u);
}

// SLUICE_SEED=n runs only that seed.
TEST_P(TakeoverTest, CountsAreExactForRandomLosses) {
  const char* const replay = std::getenv("SLUICE_SEED");
  const uint64_t seed =
      replay != nullptr ? std::strtoull(replay, nullptr, 10) : std::random_device()();
  SCOPED_TRACE(testing::Message() << "SLUICE_SEED=" << seed);
  std::mt19937_64 random(seed);
  bool heard = true;
  for (int round = 0; round < 12; ++round) {
    for (int i = random() % 8; i > 0; --i) {
      const uint32_t rank = random() % kRanks;
      Push(rank);
      if (random() % 2 == 0) Wait(rank, static_cast<int>(random() % 3));
    }
    if (heard && random() % 3 == 0) Checkpoint();
    if (random() % 2 == 0) Replace(random() % kPservers, random() % 2 == 0);
    // Else another pserver may be lost before all ranks were heard. No checkpoint is made then.
    heard = random() % 3 > 0;
    for (const uint32_t p : {0, 1}) {
      if (heard) AwaitHello(p);
    }
  }
  for (const uint32_t rank : {0, 1}) Wait(rank);
  for (const uint32_t p : {0, 1}) AwaitHello(p);
  EXPECT_EQ(Missing(), Lost());
}

INSTANTIATE_TEST_SUITE_P(Modes, TakeoverTest,
                         testing::Combine(testing::Values(TestMode::kAsync, TestMode::kGeo),
                                          testing::ValuesIn(AllNetworks())),
                         [](const auto& info) {
                           const bool async = std::get<0>(info.param) == TestMode::kAsync;
                           return absl::StrCat(async ? "Async" : "Geo",
                                               std::get<1>(info.param).name);
                         });

}  // namespace
}  // namespace sluice
