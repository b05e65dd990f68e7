#include "worker/service/job_collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/common/security/test_certificates.h"

namespace sluice {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(JobCollectiveTest, TheAddressIsTheOneThatReachesThePeer) {
  EXPECT_EQ(AddressTowards("127.0.0.1:4000"), "127.0.0.1");
  EXPECT_EQ(AddressTowards("localhost:4000").substr(0, 1),
            AddressTowards("localhost:1").substr(0, 1));
  EXPECT_EQ(AddressTowards("[::1]:4000"), "::1");
  EXPECT_EQ(AddressTowards("no port"), "");
  EXPECT_EQ(AddressTowards("no-such-host.invalid:1"), "");
}

TEST(JobCollectiveTest, TheAddressMayReachAnyOfTheSchedulers) {
  EXPECT_EQ(AddressTowardsAny("127.0.0.1:4000,[::1]:4000"), "127.0.0.1");
  EXPECT_EQ(AddressTowardsAny("no-such-host.invalid:1,127.0.0.1:4000"), "127.0.0.1");
  EXPECT_EQ(AddressTowardsAny("no-such-host.invalid:1,no-such-host.invalid:2"), "");
  EXPECT_EQ(AddressTowardsAny(""), "");
}

TEST(JobCollectiveTest, AJobBetweenHostsNeedsOneSchedulerThatCanBeReached) {
  JobConfig config;
  config.mutable_train()->set_step_timeout_s(5);
  config.mutable_strategy()->mutable_sync_configs()->set_engine(SyncConfigs::GLOO);
  Identity identity;
  identity.scheduler = "no-such-host.invalid:4000,127.0.0.1:4001";
  const auto reached = MakeJobCollective(config, identity, ComputeDevice());
  if (reached.status().code() == absl::StatusCode::kUnimplemented)
    GTEST_SKIP() << reached.status();  // a build without Gloo
  EXPECT_TRUE(reached.ok()) << reached.status();
  identity.scheduler = "no-such-host.invalid:4000,no-such-host.invalid:4001";
  const auto made = MakeJobCollective(config, identity, ComputeDevice());
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.status().message(), HasSubstr(identity.scheduler));
  // AUTO works inside the host; its card says why it has no address.
  config.mutable_strategy()->mutable_sync_configs()->set_engine(SyncConfigs::AUTO);
  const auto inside = MakeJobCollective(config, identity, ComputeDevice());
  ASSERT_TRUE(inside.ok()) << inside.status();
  const auto card = (*inside)->Listen(1, 0, 2);
  ASSERT_TRUE(card.ok()) << card.status();
  EXPECT_THAT(*card, HasSubstr(identity.scheduler));
}

TEST(JobCollectiveTest, EnginesOfOneHostAreMade) {
  JobConfig config;
  config.mutable_train()->set_step_timeout_s(5);
  Identity identity;
  identity.scheduler = "127.0.0.1:4000,127.0.0.1:4001";
  for (const auto engine : {SyncConfigs::AUTO, SyncConfigs::SHM, SyncConfigs::TWO_LEVEL}) {
    config.mutable_strategy()->mutable_sync_configs()->set_engine(engine);
    const auto made = MakeJobCollective(config, identity, ComputeDevice());
    EXPECT_TRUE(made.ok() || made.status().code() == absl::StatusCode::kUnimplemented)
        << SyncConfigs::Engine_Name(engine) << ": " << made.status();
  }
}

TEST(JobCollectiveTest, AJobMayWaitForLongerThanAGroup) {
  JobConfig config;
  config.mutable_train()->set_step_timeout_s(24 * 60 * 60);
  config.mutable_recovery()->set_wait_s(120);
  Identity identity;
  identity.scheduler = "127.0.0.1:4000";
  const auto made = MakeJobCollective(config, identity, ComputeDevice());
  EXPECT_TRUE(made.ok()) << made.status();
}

TEST(JobCollectiveTest, NcclIsRefusedForAWorkerThatComputesOnTheCpu) {
  JobConfig config;
  config.mutable_train()->set_step_timeout_s(5);
  config.mutable_strategy()->mutable_sync_configs()->set_engine(SyncConfigs::NCCL);
  Identity identity;
  identity.scheduler = "127.0.0.1:4000";
  EXPECT_EQ(MakeJobCollective(config, identity, ComputeDevice()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(JobCollectiveTest, WithTlsNothingLeavesTheHostUnlessTheClusterAllowsIt) {
  const TestCertificates certificates("job_collective");
  JobConfig config;
  config.mutable_train()->set_step_timeout_s(5);
  Identity identity;
  identity.scheduler = "127.0.0.1:4000";
  identity.credentials = *GrpcCredentials::Create(certificates.Of(PeerRole::kWorker));
  for (const auto engine : {SyncConfigs::GLOO, SyncConfigs::TWO_LEVEL}) {
    config.mutable_strategy()->mutable_sync_configs()->set_engine(engine);
    EXPECT_EQ(MakeJobCollective(config, identity, ComputeDevice()).status().code(),
              absl::StatusCode::kPermissionDenied);
  }
  // Inside a host it may be used; a card without addresses ends the group on several hosts.
  config.mutable_strategy()->mutable_sync_configs()->set_engine(SyncConfigs::AUTO);
  auto made = MakeJobCollective(config, identity, ComputeDevice());
  ASSERT_TRUE(made.ok()) << made.status();
  const auto card = (*made)->Listen(1, 0, 2);
  ASSERT_TRUE(card.ok()) << card.status();
  EXPECT_THAT(*card, AnyOf(HasSubstr("plain_collective"), HasSubstr("libgloo")));
  identity.cluster.mutable_security()->set_plain_collective(true);
  made = MakeJobCollective(config, identity, ComputeDevice());
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(*(*made)->Listen(1, 0, 2), Not(HasSubstr("plain_collective")));
}

TEST(JobCollectiveTest, TheNumberOfCommunicatorsIsPassedOn) {
  JobConfig config;
  config.mutable_train()->set_step_timeout_s(5);
  config.mutable_strategy()->mutable_sync_configs()->set_engine(SyncConfigs::SHM);
  Identity identity;
  identity.scheduler = "127.0.0.1:4000";
  std::vector<size_t> sizes;
  for (const uint32_t comm_num : {0, 1, 4}) {
    config.mutable_strategy()->mutable_sync_configs()->set_comm_num(comm_num);
    const auto made = MakeJobCollective(config, identity, ComputeDevice());
    ASSERT_TRUE(made.ok()) << made.status();
    sizes.push_back((*made)->Listen(1, 0, 1)->size());
  }
  EXPECT_LT(sizes[1], sizes[0] + 10);
  EXPECT_GT(sizes[2], 3 * sizes[1]) << "a card for each communicator";
}

}  // namespace
}  // namespace sluice
