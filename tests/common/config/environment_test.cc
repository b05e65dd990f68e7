#include "common/config/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string RefusalOf(const char* name, const char* value) {
  setenv(name, value, 1);
  const absl::Status status = CheckEnvironment();
  unsetenv(name);
  EXPECT_EQ(status.ok(), status.message().empty());
  return std::string(status.message());
}

TEST(EnvironmentTest, VariablesThatAProgramReadsAreAccepted) {
  for (const char* name : {"SLUICE_BATCH_SIZE", "SLUICE_A_SYNC", "SLUICE_RANK", "SLUICE_ADMIN_BIND",
                           "SLUICE_TEST_BIN_DIR", "SLUICEFOO", "MY_SLUICE_FOO"}) {
    EXPECT_EQ(RefusalOf(name, "1"), "");
  }
}

TEST(EnvironmentTest, AnUnknownOneIsRefusedWithTheNearestOrAll) {
  EXPECT_THAT(RefusalOf("SLUICE_BATCHSIZE", "4"),
              AllOf(HasSubstr("SLUICE_BATCHSIZE=4: "), HasSubstr("mean 'SLUICE_BATCH_SIZE'?")));
  EXPECT_THAT(RefusalOf("SLUICE_RNAK", "0"), HasSubstr("mean 'SLUICE_RANK'?"));
  EXPECT_THAT(RefusalOf("SLUICE_FOO", "4"),
              AllOf(HasSubstr("SLUICE_A_SYNC, "), HasSubstr(", SLUICE_LOG_DIR, ")));
  EXPECT_THAT(RefusalOf("SLUICE_batch_size", "4"), HasSubstr("SLUICE_batch_size"));
}

TEST(EnvironmentTest, AnEmptyOneIsNotSet) { EXPECT_EQ(RefusalOf("SLUICE_FOO", ""), ""); }

}  // namespace
}  // namespace sluice
