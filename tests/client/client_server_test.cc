// Checks ParameterClient against the real pserver core in all modes: in memory, and over every
// transport with cut streams.
#include <gtest/gtest.h>

#include <thread>

#include "common/base/clock.h"
#include "tests/client/all_networks.h"
#include "tests/client/cluster_for_test.h"
#include "tests/common/transport/faulty_transport.h"

namespace sluice {
namespace {

std::vector<uint64_t> AllKeys() {
  std::vector<uint64_t> keys;
  for (uint64_t k = 0; k < 64; ++k) keys.push_back(k * 0x9E3779B97F4A7C15u);
  return keys;
}

// A small whole number that depends on all arguments.
float Gradient(uint64_t step, uint64_t what) {
  return static_cast<float>(MixHash(step * 1000003 + what) % 7) - 3;
}

// The workers share the examples of a global step; each example has one key. A worker pushes the
// mean of its gradients.
std::shared_ptr<TestValues> StepGradient(const ParameterClient& client, uint64_t step,
                                         uint32_t begin, uint32_t end) {
  const auto all = AllKeys();
  std::vector<uint64_t> keys;
  for (uint32_t e = begin; e < end; ++e) keys.push_back(all[MixHash(step * 64 + e) % all.size()]);
  auto g = std::make_shared<TestValues>(client, keys);
  const float n = static_cast<float>(end - begin);
  for (uint32_t e = begin; e < end; ++e) {
    for (size_t i = 0; i < g->keys->keys.size(); ++i) {
      if (g->keys->keys[i] != keys[e - begin]) continue;
      for (uint32_t d = 0; d < kDim; ++d) g->rows[i * kDim + d] += Gradient(step, e * 8 + d) / n;
    }
    for (uint64_t i = 0; i < kElements; ++i) g->dense[i] += Gradient(step, e * 512 + i) / n;
  }
  return g;
}

struct ClientServerTables {
  std::vector<float> rows, dense;
  bool operator==(const ClientServerTables& o) const { return rows == o.rows && dense == o.dense; }
};

ClientServerTables ReadAllOf(ParameterClient* client) {
  TestValues all(*client, AllKeys());
  PullRequest request = all.Pull();
  request.evaluation = true;
  const absl::Status status = client->WaitPull(client->StartPull(std::move(request)));
  EXPECT_TRUE(status.ok()) << status;
  return {all.rows, all.dense};
}

constexpr uint64_t kClientServerSteps = 12;
constexpr uint32_t kExamples = 8;  // of a global step

void TrainSync(ParameterClient* client, uint32_t rank, uint32_t workers) {
  TestValues values(*client, AllKeys());
  ASSERT_TRUE(client->WaitPull(client->StartPull(values.Pull())).ok());
  for (uint64_t t = 0; t < kClientServerSteps; ++t) {
    const uint32_t share = kExamples / workers;
    auto gradient = StepGradient(*client, t, rank * share, (rank + 1) * share);
    const absl::Status pushed = client->PushStep(t, TestValues::Push(gradient, share));
    ASSERT_TRUE(pushed.ok()) << pushed;
    const bool last = t + 1 == kClientServerSteps;
    const absl::Status pulled =
        client->WaitPull(client->StartCommit(t, last ? PullRequest() : values.Pull()));
    ASSERT_TRUE(pulled.ok()) << pulled;
  }
  const absl::Status ended = client->EndEpoch(0);
  ASSERT_TRUE(ended.ok()) << ended;
}

// seed 0: no cuts.
ClientServerTables RunSync(uint32_t pservers, uint32_t workers, uint64_t seed, int* cuts = nullptr,
                           std::unique_ptr<TestNetwork> network = nullptr) {
  TestCluster cluster(MakeJob(TestMode::kSync, pservers, workers), std::move(network));
  FaultyTransport faulty(cluster.transport(), {seed, 9, 200});
  std::vector<std::unique_ptr<ParameterClient>> clients;
  for (uint32_t r = 0; r < workers; ++r) {
    clients.push_back(cluster.Client(r, seed == 0 ? nullptr : &faulty));
  }
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < workers; ++r) {
    threads.emplace_back([&, r] { TrainSync(clients[r].get(), r, workers); });
  }
  for (std::thread& thread : threads) thread.join();
  if (cuts != nullptr) *cuts = faulty.cuts();
  ClientServerTables tables = ReadAllOf(clients[0].get());
  clients.clear();
  return tables;
}

TEST(ClientServerTest, SyncGivesTheSameTablesForOneTwoAndFourWorkers) {
  const ClientServerTables one = RunSync(2, 1, 0);
  float sum = 0;
  for (float v : one.rows) sum += std::abs(v);
  EXPECT_GT(sum, 10) << "something was trained";
  EXPECT_EQ(one, RunSync(2, 2, 0));
  EXPECT_EQ(one, RunSync(2, 4, 0));
}

TEST(ClientServerTest, SyncGivesTheSameTablesOnOneAndThreePservers) {
  EXPECT_EQ(RunSync(1, 2, 0), RunSync(3, 2, 0));
}

class CutStreamsTest : public ::testing::TestWithParam<NetworkKind> {};
INSTANTIATE_TEST_SUITE_P(Transports, CutStreamsTest, ::testing::ValuesIn(AllNetworks()), NameOf);

TEST_P(CutStreamsTest, SyncGivesTheSameBits) {
  const ClientServerTables calm = RunSync(2, 2, 0);
  int all_cuts = 0;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    int cuts = 0;
    EXPECT_EQ(calm, RunSync(2, 2, seed, &cuts, GetParam().make())) << "seed " << seed;
    all_cuts += cuts;
  }
  EXPECT_GT(all_cuts, 8);
}

// The batch has no key of pserver 0, which has no dense block either.
TEST(ClientServerTest, CommitWaitsForPserversWithoutPulledKeys) {
  TestCluster cluster(MakeJob(TestMode::kSync, 2, 2));
  auto a = cluster.Client(0), b = cluster.Client(1);
  TestValues dense(*a, {});
  auto push = [](ParameterClient* client) {
    auto gradient = StepGradient(*client, 0, 0, 1);
    const absl::Status pushed = client->PushStep(0, TestValues::Push(gradient, 1));
    EXPECT_TRUE(pushed.ok()) << pushed;
  };
  push(a.get());
  push(b.get());
  PullRequest next;
  next.dense.push_back({kDense, dense.dense.data()});
  const auto ticket = a->StartCommit(0, std::move(next));
  // Its answer from pserver 0 can come only after b's commit there.
  std::shared_ptr<JobTables> first = cluster.pserver(0)->Find("job-1");
  const absl::Time deadline = Clock::Real()->Now() + absl::Seconds(60);
  while (first->parked_for_test() == 0 && Clock::Real()->Now() < deadline)
    std::this_thread::yield();
  EXPECT_EQ(first->parked_for_test(), 1u);
  const absl::Status other = b->WaitPull(b->StartCommit(0, PullRequest()));
  EXPECT_TRUE(other.ok()) << other;
  const absl::Status status = a->WaitPull(ticket);
  EXPECT_TRUE(status.ok()) << status;
}

// Each worker pushes gradients of whole numbers, so the sum over all of them is exact. `early`:
// dense gradients are sent before the rest.
void TrainAsync(ParameterClient* client, uint32_t rank, uint64_t pushes, int in_flight,
                bool early = false) {
  TestValues values(*client, AllKeys());
  auto ticket = client->StartPull(values.Pull());
  for (uint64_t t = 0; t < pushes; ++t) {
    const absl::Status pulled = client->WaitPull(ticket);
    ASSERT_TRUE(pulled.ok()) << pulled;
    auto gradient = StepGradient(*client, rank * 1000 + t, 0, 1);
    PullRequest next = values.Pull();
    PushRequest push = TestValues::Push(gradient, 1);
    if (early && t % 3 > 0) {
      PushRequest dense = push;
      dense.sparse.clear();
      push.dense.clear();
      const absl::Status sent = client->PushEarly(std::move(dense));
      ASSERT_TRUE(sent.ok()) << sent;
    }
    const absl::Status pushed = client->StartPush(std::move(push), &next, &ticket);
    ASSERT_TRUE(pushed.ok()) << pushed;
    const absl::Status waited = client->WaitPushes(in_flight);
    ASSERT_TRUE(waited.ok()) << waited;
  }
  ASSERT_TRUE(client->WaitPull(ticket).ok());
  const absl::Status ended = client->EndEpoch(0);
  ASSERT_TRUE(ended.ok()) << ended;
}

ClientServerTables SumOfAll(const ParameterClient& client, uint32_t workers, uint64_t pushes) {
  TestValues sum(client, AllKeys());
  for (uint32_t rank = 0; rank < workers; ++rank) {
    for (uint64_t t = 0; t < pushes; ++t) {
      const auto g = StepGradient(client, rank * 1000 + t, 0, 1);
      for (size_t i = 0; i < sum.rows.size(); ++i) {
        const uint64_t key = sum.keys->keys[i / kDim];
        if (key == g->keys->keys[0]) sum.rows[i] -= g->rows[i % kDim];
      }
      for (uint64_t i = 0; i < kElements; ++i) sum.dense[i] -= g->dense[i];
    }
  }
  return {sum.rows, sum.dense};
}

TEST_P(CutStreamsTest, AsyncAppliesEachPushOnce) {
  constexpr uint32_t kWorkers = 2;
  constexpr uint64_t kPushes = 30;
  for (uint64_t seed = 0; seed <= 6; ++seed) {
    TestCluster cluster(MakeJob(TestMode::kAsync, 2, kWorkers), GetParam().make());
    FaultyTransport faulty(cluster.transport(), {seed, 9, 200});
    std::vector<std::unique_ptr<ParameterClient>> clients;
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < kWorkers; ++r) {
      clients.push_back(cluster.Client(r, seed == 0 ? nullptr : &faulty));
    }
    for (uint32_t r = 0; r < kWorkers; ++r) {
      threads.emplace_back([&, r] {
        TrainAsync(clients[r].get(), r, kPushes, static_cast<int>(seed % 3), seed > 3);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(ReadAllOf(clients[0].get()), SumOfAll(*clients[0], kWorkers, kPushes))
        << "seed " << seed;
    if (seed > 0) {
      EXPECT_GT(faulty.cuts(), 2);
    }
    clients.clear();
  }
}

TEST(ClientServerTest, EarlyPartIsAppliedBeforeTheRestAndTheFrameCountsOnce) {
  TestCluster cluster(MakeJob(TestMode::kAsync, 2, 1));
  auto client = cluster.Client(0);
  auto gradient = StepGradient(*client, 1, 0, 1);
  PushRequest push = TestValues::Push(gradient, 1), early = push;
  early.sparse.clear();
  ASSERT_TRUE(client->PushEarly(early).ok());
  EXPECT_EQ(client->PushEarly(early).code(), absl::StatusCode::kInvalidArgument) << "twice";
  const absl::Time end = Clock::Real()->Now() + absl::Seconds(20);
  while (ReadAllOf(client.get()).dense[0] != -gradient->dense[0] && Clock::Real()->Now() < end) {
  }
  const ClientServerTables before = ReadAllOf(client.get());
  for (uint64_t i = 0; i < kElements; ++i) ASSERT_EQ(before.dense[i], -gradient->dense[i]);
  for (float value : before.rows) ASSERT_EQ(value, 0);
  auto frames = [&](int p) { return cluster.pserver(p)->Report()[0].frames_applied(); };
  EXPECT_EQ(frames(0) + frames(1), 0u);

  EXPECT_EQ(client->StartPush(push).code(), absl::StatusCode::kInvalidArgument) << "twice";
  push.dense.clear();
  ASSERT_TRUE(client->StartPush(push).ok());
  ASSERT_TRUE(client->WaitPushes(0).ok());
  EXPECT_EQ(frames(0), 1u);
  EXPECT_EQ(frames(1), 1u);
  const ClientServerTables after = ReadAllOf(client.get());
  EXPECT_EQ(after.dense, before.dense);
  EXPECT_NE(after.rows, before.rows);
}

TEST(ClientServerTest, SyncJobRefusesAnEarlyPart) {
  TestCluster cluster(MakeJob(TestMode::kSync, 2, 1));
  auto client = cluster.Client(0);
  PushRequest early = TestValues::Push(StepGradient(*client, 0, 0, 1), 1);
  early.sparse.clear();
  ASSERT_TRUE(client->PushEarly(early).ok());
  const absl::Status status = client->WaitPushes(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_NE(status.message().find("async"), absl::string_view::npos) << status;
}

TEST(ClientServerTest, GeoExchangeAddsTheMeanOfDeltasAndReturnsTheMerge) {
  TestCluster cluster(MakeJob(TestMode::kGeo, 2, 2));
  auto a = cluster.Client(0), b = cluster.Client(1);
  auto exchange = [](ParameterClient* client, const std::vector<uint64_t>& keys, float row,
                     float dense) {
    auto delta = std::make_shared<TestValues>(*client, keys);
    std::fill(delta->rows.begin(), delta->rows.end(), row);
    std::fill(delta->dense.begin(), delta->dense.end(), dense);
    auto current = std::make_shared<TestValues>(*client, keys);
    const absl::Status status =
        client->WaitPull(client->StartExchange(TestValues::Push(delta, 1), current->Pull()));
    EXPECT_TRUE(status.ok()) << status;
    return current;
  };
  // 0 + 4/2 = 2; keys 1 and 2 become 3/2.
  auto first = exchange(a.get(), {1, 2}, 3, 4);
  EXPECT_EQ(first->Row(1, 0), 1.5f);
  EXPECT_EQ(first->Row(2, 3), 1.5f);
  EXPECT_EQ(first->dense[kElements - 1], 2);
  // Key 2: 1.5 + 1/2; key 3: 1/2; dense: 2 - 6/2.
  auto second = exchange(b.get(), {2, 3}, 1, -6);
  EXPECT_EQ(second->Row(2, 1), 2);
  EXPECT_EQ(second->Row(3, 1), 0.5f);
  EXPECT_EQ(second->dense[0], -1);
  // The first worker sees the other's additions only in the values that it sends.
  auto third = exchange(a.get(), {3}, 0, 0);
  EXPECT_EQ(third->Row(3, 0), 0.5f);
  EXPECT_EQ(third->dense[7], -1);
}

TEST_P(CutStreamsTest, GeoExchangesAreMergedOnce) {
  TestCluster cluster(MakeJob(TestMode::kGeo, 2, 1), GetParam().make());
  FaultyTransport faulty(cluster.transport(), {5, 6, 100});
  auto client = cluster.Client(0, &faulty);
  for (int round = 1; round <= 25; ++round) {
    auto delta = std::make_shared<TestValues>(*client, AllKeys());
    std::fill(delta->rows.begin(), delta->rows.end(), 1.0f);
    std::fill(delta->dense.begin(), delta->dense.end(), 2.0f);
    TestValues current(*client, AllKeys());
    const absl::Status status =
        client->WaitPull(client->StartExchange(TestValues::Push(delta, 1), current.Pull()));
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(current.rows, std::vector<float>(current.rows.size(), round)) << "round " << round;
    ASSERT_EQ(current.dense, std::vector<float>(kElements, 2.0f * round)) << "round " << round;
  }
  EXPECT_GT(faulty.cuts(), 2);
}

TEST(ClientServerTest, NewerIncarnationEndsTheOldOneWithAborted) {
  TestCluster cluster(MakeJob(TestMode::kAsync, 1, 1));
  auto old = cluster.Client(0);
  ReadAllOf(old.get());
  ParameterClient::Options options = ClientOptions(cluster.job(), cluster.transport());
  options.incarnation = 2;
  auto young = ParameterClient::Create(options);
  ASSERT_TRUE(young.ok());
  ReadAllOf(young->get());
  auto gradient = StepGradient(*old, 0, 0, 1);
  ASSERT_TRUE(old->StartPush(TestValues::Push(gradient, 1)).ok());
  const absl::Status status = old->WaitPushes(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
}

}  // namespace
}  // namespace sluice
