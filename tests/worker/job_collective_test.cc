#include "worker/job_collective.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(JobCollectiveTest, TheAddressIsTheOneThatReachesThePeer) {
  EXPECT_EQ(AddressTowards("127.0.0.1:4000"), "127.0.0.1");
  EXPECT_EQ(AddressTowards("localhost:4000").substr(0, 1),
            AddressTowards("localhost:1").substr(0, 1));
  EXPECT_EQ(AddressTowards("[::1]:4000"), "::1");
  EXPECT_EQ(AddressTowards("no port"), "");
  EXPECT_EQ(AddressTowards("no-such-host.invalid:1"), "");
}

TEST(JobCollectiveTest, EveryEngineOfTheConfigurationExists) {
  JobConfig config;
  config.mutable_train()->set_step_timeout_s(5);
  Identity identity;
  identity.scheduler = "127.0.0.1:4000,127.0.0.1:4001";
  for (const auto engine : {SyncConfigs::AUTO, SyncConfigs::SHM, SyncConfigs::TWO_LEVEL}) {
    config.mutable_strategy()->mutable_sync_configs()->set_engine(engine);
    const auto made = MakeJobCollective(config, identity);
    EXPECT_TRUE(made.ok() || made.status().code() == absl::StatusCode::kUnimplemented)
        << SyncConfigs::Engine_Name(engine) << ": " << made.status();
  }
}

}  // namespace
}  // namespace sluice
