#include "common/base/match_files.h"

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "tests/common/base/hooked_env.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The real file system, but for folders with one name, which may not be read.
class LockedFolders : public HookedEnv {
 public:
  absl::StatusOr<int> OpenFile(const std::string& path, int flags, uint32_t mode) override {
    if (std::filesystem::path(path).filename() == "locked")
      return absl::PermissionDeniedError("locked");
    return Env::Real()->OpenFile(path, flags, mode);
  }
};

class MatchFilesTest : public ::testing::Test {
 protected:
  MatchFilesTest() {
    std::filesystem::remove_all(folder_);
    for (const char* name : {"b/2.csv", "b/1.csv", "a/1.csv", "a/1.txt", "locked/1.csv"}) {
      const std::string path = folder_ + "/" + name;
      std::filesystem::create_directories(std::filesystem::path(path).parent_path());
      EXPECT_TRUE(Env::Real()->WriteFile(path, {"x"}).ok()) << path;
    }
  }
  ~MatchFilesTest() override { std::filesystem::remove_all(folder_); }

  LockedFolders env_;
  const std::string folder_ = ::testing::TempDir() + "/match_files_test";
};

TEST_F(MatchFilesTest, FindsFilesOfAllFoldersSorted) {
  const FileMatches found = MatchLocalFiles(&env_, folder_ + "/[ab]/*.csv", 1000);
  EXPECT_THAT(found.paths,
              ElementsAre(folder_ + "/a/1.csv", folder_ + "/b/1.csv", folder_ + "/b/2.csv"));
  EXPECT_FALSE(found.too_many_names);
  EXPECT_TRUE(found.why.ok());
}

TEST_F(MatchFilesTest, AFolderThatMayNotBeReadIsNamedBesideWhatWasFound) {
  const FileMatches found = MatchLocalFiles(&env_, folder_ + "/*/1*.csv", 1000);
  EXPECT_THAT(found.paths, ElementsAre(folder_ + "/a/1.csv", folder_ + "/b/1.csv"));
  EXPECT_EQ(found.unreadable, folder_ + "/locked");
  EXPECT_EQ(found.why.message(), "locked");
}

TEST_F(MatchFilesTest, AFolderThatIsNotThereIsAnEmptyMatch) {
  const FileMatches found = MatchLocalFiles(&env_, folder_ + "/absent/*", 1000);
  EXPECT_THAT(found.paths, IsEmpty());
  EXPECT_TRUE(found.why.ok());
}

TEST_F(MatchFilesTest, StopsAtTheBoundOfNamesAndSaysSo) {
  const FileMatches whole = MatchLocalFiles(&env_, folder_ + "/[ab]/*", 1000);
  EXPECT_FALSE(MatchLocalFiles(&env_, folder_ + "/[ab]/*", whole.names_read).too_many_names);
  const FileMatches cut = MatchLocalFiles(&env_, folder_ + "/[ab]/*", whole.names_read - 1);
  EXPECT_TRUE(cut.too_many_names);
  EXPECT_LT(cut.paths.size(), whole.paths.size());
}

}  // namespace
}  // namespace sluice
