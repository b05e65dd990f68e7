// Checks ParameterClient against strict fake pservers: routes, refusals, timeouts and sizes.
#include "client/parameter_client.h"

#include <gmock/gmock.h>

#include <limits>
#include <thread>

#include "tests/client/cluster_for_test.h"
#include "tests/client/fake_pserver.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class ParameterClientTest : public ::testing::Test {
 protected:
  ParameterClientTest()
      : job_(MakeJob(TestMode::kAsync, 2, 1)),
        world_(*CreateTableLayouts(job_.tables(), 3), job_.route()) {
    world_.instance = kInstance;
  }

  void Bind() {
    for (uint32_t p = 0; p < 2; ++p) {
      transport_.Bind(job_.route().pservers(p),
                      [this, p](std::shared_ptr<Stream> stream, const PeerIdentity&) {
                        return std::make_unique<FakeHandler>(&world_, p, std::move(stream));
                      });
    }
  }
  std::unique_ptr<ParameterClient> Client(absl::Duration timeout = absl::Seconds(20)) {
    ParameterClient::Options options = ClientOptions(job_, &transport_);
    options.limits.timeout = timeout;
    options.get_route = [this]() -> absl::StatusOr<Route> {
      MutexLock lock(&world_.mu);
      return world_.route;
    };
    auto client = ParameterClient::Create(std::move(options));
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
  static std::shared_ptr<TestValues> Ones(const ParameterClient& client, uint64_t keys) {
    std::vector<uint64_t> wanted;
    for (uint64_t k = 0; k < keys; ++k) wanted.push_back(k);
    auto values = std::make_shared<TestValues>(client, wanted);
    std::fill(values->rows.begin(), values->rows.end(), 1.0f);
    std::fill(values->dense.begin(), values->dense.end(), 1.0f);
    return values;
  }
  // Moves every shard, with its state, to the next pserver.
  void MoveAll() {
    MutexLock lock(&world_.mu);
    world_.route.set_generation(world_.route.generation() + 1);
    for (TableRoute& table : *world_.route.mutable_tables()) {
      for (uint32_t& owner : *table.mutable_owner()) owner = (owner + 1) % 2;
    }
  }

  // Each push is applied once, by the pserver that owns the shard at that time.
  void TrainWhileShardsMove() {
    Bind();
    auto client = Client();
    auto ones = Ones(*client, 40);
    for (int step = 1; step <= 12; ++step) {
      if (step % 4 == 0) MoveAll();
      ASSERT_TRUE(client->StartPush(TestValues::Push(ones, 1)).ok());
      const absl::Status status = client->WaitPushes(step % 3);
      ASSERT_TRUE(status.ok()) << status;
      auto seen = Ones(*client, 40);
      const absl::Status pulled = client->WaitPull(client->StartPull(seen->Pull()));
      ASSERT_TRUE(pulled.ok()) << pulled;
      if (step % 3 == 0) {
        ASSERT_EQ(seen->rows, std::vector<float>(seen->rows.size(), step));
        ASSERT_EQ(seen->dense, std::vector<float>(kElements, step));
      }
    }
    ASSERT_TRUE(client->EndEpoch(0).ok());
    MutexLock lock(&world_.mu);
    EXPECT_EQ(world_.violation, "");
    EXPECT_EQ(world_.shards.size(), 17u) << "empty shards are named too";
    for (const auto& [flat, shard] : world_.shards) EXPECT_EQ(shard.last, 12u);
  }

  JobSpec job_;
  FakePservers world_;
  InProcessTransport transport_;
};

TEST_F(ParameterClientTest, FollowsMovedShardsWhenRequestsAreRefused) {
  TrainWhileShardsMove();
  EXPECT_GT(world_.refusals, 0);
}

TEST_F(ParameterClientTest, FollowsMovedShardsWhenPartsAreRefused) {
  world_.any_generation = true;
  TrainWhileShardsMove();
  EXPECT_GT(world_.wrong_shards, 0);
}

TEST_F(ParameterClientTest, ResentPipelinedPullNamesTheSameStep) {
  job_.mutable_config()->mutable_train()->set_pipeline_depth(3);
  MoveAll();  // the first requests are refused, and sent again with a new route
  Bind();
  auto client = Client();
  std::vector<std::shared_ptr<TestValues>> values;
  for (int i = 0; i < 4; ++i) values.push_back(Ones(*client, 3));
  std::vector<ParameterClient::Ticket> tickets;
  for (int i = 0; i < 3; ++i) tickets.push_back(client->StartPull(values[i]->Pull()));
  PullRequest next = values[3]->Pull();
  tickets.push_back(0);
  ASSERT_TRUE(client->StartPush(TestValues::Push(Ones(*client, 3), 1), &next, &tickets[3]).ok());
  for (const auto ticket : tickets) {
    const absl::Status status = client->WaitPull(ticket);
    ASSERT_TRUE(status.ok()) << status;
  }
  ASSERT_TRUE(client->WaitPushes(0).ok());
  PullRequest evaluation = values[0]->Pull();
  evaluation.evaluation = true;
  ASSERT_TRUE(client->WaitPull(client->StartPull(std::move(evaluation))).ok());
  MutexLock lock(&world_.mu);
  EXPECT_GT(world_.refusals, 0);
  EXPECT_GT(world_.pulls[1], 2) << "refused by at least one of the two pservers, and sent again";
  std::vector<uint64_t> named;
  for (const auto& [for_push, times] : world_.pulls) named.push_back(for_push);
  EXPECT_EQ(named, (std::vector<uint64_t>{0, 1, 2, 3, 4})) << "0: the evaluation's";
}

TEST_F(ParameterClientTest, CommitAsksEveryPserverForACheckpointAndItsPullSeesIt) {
  Bind();
  auto client = Client();
  auto ones = Ones(*client, 3), seen = Ones(*client, 3);
  EXPECT_EQ(client->checkpoint_seen(), 0u);
  for (uint64_t step = 0; step < 4; ++step) {
    ASSERT_TRUE(client->PushStep(step, TestValues::Push(ones, 1)).ok());
    // The last commit pulls nothing, like that of an epoch's last step.
    PullRequest next = step == 3 ? PullRequest() : seen->Pull();
    const uint64_t checkpoint = step == 1 ? 7 : step == 3 ? 8 : 0;
    const auto ticket = client->StartCommit(step, std::move(next), checkpoint);
    ASSERT_TRUE(client->WaitPull(ticket).ok());
    EXPECT_EQ(client->checkpoint_seen(), checkpoint);
    MutexLock lock(&world_.mu);
    for (uint32_t p = 0; p < 2; ++p) EXPECT_EQ(world_.checkpoints.at({p, step + 1}), checkpoint);
  }
}

TEST_F(ParameterClientTest, WaitsForAJobThatIsNotOpenYet) {
  Bind();
  world_.refuse_hellos = 4;
  auto client = Client();
  auto ones = Ones(*client, 3);
  const absl::Status status = client->WaitPull(client->StartPull(ones->Pull()));
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(ones->rows, std::vector<float>(ones->rows.size(), 0));
}

TEST_F(ParameterClientTest, TimeoutNamesPserverAndStep) {
  auto client = Client(absl::Seconds(1));  // no pserver listens
  auto ones = Ones(*client, 3);
  const absl::Status pulled = client->WaitPull(client->StartPull(ones->Pull()));
  EXPECT_EQ(pulled.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(pulled.message()),
              testing::AllOf(HasSubstr("step 1"), HasSubstr("pserver-1")));
  EXPECT_THAT(std::string(pulled.message()), HasSubstr("not connected: "));
  ASSERT_TRUE(client->StartPush(TestValues::Push(ones, 1)).ok());
  const absl::Status pushed = client->WaitPushes(0);
  EXPECT_EQ(pushed.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(pushed.message()), HasSubstr("push 1"));
}

TEST_F(ParameterClientTest, RefusesNonFiniteGradientsBeforeSendingAnything) {
  Bind();
  auto client = Client();
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    auto rows = Ones(*client, 50), dense = Ones(*client, 50);
    rows->rows[rows->rows.size() - 1] = bad;
    dense->dense[5] = bad;
    const absl::Status in_rows = client->StartPush(TestValues::Push(rows, 1));
    EXPECT_EQ(in_rows.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(in_rows.message()), HasSubstr("'emb'"));
    EXPECT_THAT(std::string(client->StartPush(TestValues::Push(dense, 1)).message()),
                HasSubstr("'dense'"));
  }
  ASSERT_TRUE(client->StartPush(TestValues::Push(Ones(*client, 2), 1)).ok());
  ASSERT_TRUE(client->WaitPushes(0).ok());
  MutexLock lock(&world_.mu);
  for (const auto& [flat, shard] : world_.shards) EXPECT_EQ(shard.last, 1u);
}

TEST_F(ParameterClientTest, AcknowledgedIsTheNewestPushThatAllPserversHave) {
  Bind();
  auto client = Client();
  EXPECT_EQ(client->acknowledged(), 0u);
  for (uint64_t push = 1; push <= 3; ++push) {
    ASSERT_TRUE(client->StartPush(TestValues::Push(Ones(*client, 20), 1)).ok());
    ASSERT_TRUE(client->WaitPushes(0).ok());
    EXPECT_EQ(client->acknowledged(), push);
  }
  {
    MutexLock lock(&world_.mu);
    world_.silent = true;
  }
  ASSERT_TRUE(client->StartPush(TestValues::Push(Ones(*client, 20), 1)).ok());
  EXPECT_EQ(client->acknowledged(), 3u);
}

TEST_F(ParameterClientTest, LongFramesAreCutBetweenParts) {
  Bind();
  auto client = Client();
  auto ones = Ones(*client, 400000);  // 9.6 MB on two pservers
  auto seen = Ones(*client, 400000);
  PullRequest next = seen->Pull();
  ParameterClient::Ticket ticket;
  ASSERT_TRUE(client->StartPush(TestValues::Push(ones, 1), &next, &ticket).ok());
  const absl::Status status = client->WaitPull(ticket);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(seen->rows, ones->rows);
  EXPECT_EQ(seen->dense, ones->dense);
  ASSERT_TRUE(client->WaitPushes(0).ok());
  MutexLock lock(&world_.mu);
  EXPECT_EQ(world_.violation, "");
  EXPECT_EQ(world_.messages, 2 + 16) << "two Hellos, eight messages to each";
}

TEST_F(ParameterClientTest, PartBeyondTheMessageLimitFailsAtOnceAndIsNamed) {
  Bind();
  ParameterClient::Options options = ClientOptions(job_, &transport_);
  options.limits.max_message_bytes = 20000;
  auto ones = [&] { return ParameterClient::Create(options).value(); };
  auto small = ones();
  ASSERT_TRUE(small->StartPush(TestValues::Push(Ones(*small, 300), 1)).ok());
  EXPECT_TRUE(small->WaitPushes(0).ok());
  options.incarnation = 2;
  auto client = ones();
  // About 3,000 keys per shard, each of 24 bytes with its values.
  ASSERT_TRUE(client->StartPush(TestValues::Push(Ones(*client, 48000), 1)).ok());
  const absl::Status pushed = client->WaitPushes(0);
  EXPECT_EQ(pushed.code(), absl::StatusCode::kInvalidArgument) << pushed;
  EXPECT_THAT(std::string(pushed.message()), HasSubstr("'emb'"));
  EXPECT_THAT(std::string(pushed.message()), HasSubstr("limits.max_message_mib allows 20000"));
  options.incarnation = 3;
  auto reader = ones();
  auto many = Ones(*reader, 48000);
  PullRequest request;
  request.sparse.push_back({kEmb, many->keys, many->rows.data()});
  const absl::Status pulled = reader->WaitPull(reader->StartPull(std::move(request)));
  EXPECT_EQ(pulled.code(), absl::StatusCode::kInvalidArgument) << pulled;
  EXPECT_THAT(std::string(pulled.message()), HasSubstr("a pull"));
}

TEST_F(ParameterClientTest, WaitingForDescribesAWaitThatCancelEnds) {
  Bind();
  world_.silent = true;
  auto client = Client();
  auto ones = Ones(*client, 3);
  EXPECT_EQ(client->WaitingFor(), "");
  absl::Status status;
  std::thread waiter([&] { status = client->WaitPull(client->StartPull(ones->Pull())); });
  while (client->WaitingFor().empty()) std::this_thread::yield();
  EXPECT_THAT(client->WaitingFor(), HasSubstr("pull for step 1"));
  client->Cancel();
  waiter.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(client->WaitPushes(0).code(), absl::StatusCode::kOk) << "nothing to wait for";
  EXPECT_EQ(client->StartPush(TestValues::Push(ones, 1)).code(), absl::StatusCode::kCancelled);
}

TEST_F(ParameterClientTest, ADroppedPullWritesNothingAndLeavesRoom) {
  Bind();
  world_.silent = true;
  auto client = Client();
  const auto ticket = [&] {
    auto ones = Ones(*client, 3);
    return client->StartPull(ones->Pull());
  }();  // its arrays are freed here, as by a caller that has dropped it
  client->DropPull(ticket);
  {
    MutexLock lock(&world_.mu);
    world_.silent = false;
  }
  auto ones = Ones(*client, 3);
  ASSERT_TRUE(client->StartPush(TestValues::Push(ones, 1)).ok());
  ASSERT_TRUE(client->WaitPushes(0).ok());
  auto seen = Ones(*client, 3);
  ASSERT_TRUE(client->WaitPull(client->StartPull(seen->Pull())).ok());
  EXPECT_FALSE(client->WaitPull(ticket).ok());
}

TEST_F(ParameterClientTest, DestructionReleasesTheMemoryOfOutstandingRequests) {
  Bind();
  world_.silent = true;
  std::weak_ptr<TestValues> held;
  {
    auto client = Client();
    auto ones = Ones(*client, 30);
    held = ones;
    ASSERT_TRUE(client->StartPush(TestValues::Push(std::move(ones), 1)).ok());
    EXPECT_FALSE(held.expired()) << "the frame keeps its values";
  }
  EXPECT_TRUE(held.expired());
}

TEST_F(ParameterClientTest, SavesTheShardsOfEveryPserver) {
  Bind();
  job_.mutable_route()->set_generation(3);
  job_.mutable_route()->add_pservers("idle");  // owns no shard, and nothing listens there
  for (uint32_t p = 0; p < 2; ++p) {
    transport_.RegisterUnary(job_.route().pservers(p), "/sluice.Pserver/SaveShards",
                             [p](const std::string& text) -> absl::StatusOr<std::string> {
                               SaveShardsRequest request;
                               if (!request.ParseFromString(text) || request.job_id() != "job-1" ||
                                   request.instance() != kInstance || request.save_id() != "5a" ||
                                   request.generation() != 3) {
                                 return absl::InvalidArgumentError("not for this job");
                               }
                               if (request.directory() == "full" && p == 1)
                                 return absl::DataLossError("disk full");
                               SaveShardsReply reply;
                               reply.add_files()->set_name(std::to_string(1 - p));
                               return reply.SerializeAsString();
                             });
  }
  auto client = Client();
  const auto files = client->SaveShards("model", "5a");
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->size(), 2u);
  EXPECT_EQ((*files)[0].name(), "0");
  EXPECT_EQ((*files)[1].name(), "1");
  const auto failed = client->SaveShards("full", "5a");
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(failed.status().message()),
              testing::AllOf(HasSubstr(job_.route().pservers(1)), HasSubstr("disk full")));
}

TEST_F(ParameterClientTest, SavesAgainWhereAPserverHadNoRoomForTheCallButNotForEver) {
  int calls = 0, refusals = 2;
  for (int p = 0; p < 2; ++p) {
    transport_.RegisterUnary(job_.route().pservers(p), "/sluice.Pserver/SaveShards",
                             [&, p](const std::string&) -> absl::StatusOr<std::string> {
                               if (p == 1 && ++calls <= refusals)
                                 return absl::ResourceExhaustedError("memory limit");
                               return SaveShardsReply().SerializeAsString();
                             });
  }
  auto client = Client();
  EXPECT_TRUE(client->SaveShards("model", "5a").ok());
  EXPECT_EQ(calls, 3);
  refusals = 1 << 20;
  client = Client(absl::Milliseconds(300));
  EXPECT_TRUE(absl::IsResourceExhausted(client->SaveShards("model", "5a").status()));
}

TEST_F(ParameterClientTest, BoundsPushesWithoutWaits) {
  auto client = Client();
  auto ones = Ones(*client, 1);
  absl::Status status;
  for (int i = 0; i < 2000 && status.ok(); ++i)
    status = client->StartPush(TestValues::Push(ones, 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

}  // namespace
}  // namespace sluice
