#include "cli/hosts/own_folder.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace sluice::cli {
namespace {

TEST(OwnFolderTest, GoesWithItsProcessAndTakesAbandonedOnesAlong) {
  const std::string base = std::string(testing::TempDir()) + "/own_folder";
  std::filesystem::create_directories(base + "/sluice-own-guard-killed");
  std::ofstream(base + "/sluice-own-guard-killed/key") << "secret";
  std::filesystem::create_directories(base + "/another");
  const char* const before = getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  setenv("TMPDIR", base.c_str(), 1);
  {
    const auto first = OwnFolder::Make("guard");
    ASSERT_TRUE(first.ok()) << first.status();
    std::ofstream((*first)->path() + "/key") << "secret";
    struct stat info;
    ASSERT_EQ(stat((*first)->path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700U);
    EXPECT_FALSE(std::filesystem::exists(base + "/sluice-own-guard-killed"));
    const auto second = OwnFolder::Make("tls");
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_TRUE(std::filesystem::exists((*first)->path() + "/key"));
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(base), {}), 1);  // another
  if (before == nullptr) {
    unsetenv("TMPDIR");
  } else {
    setenv("TMPDIR", kept.c_str(), 1);
  }
}

}  // namespace
}  // namespace sluice::cli
