#include "model/data/expand_files.h"

#include <unistd.h>

#include <filesystem>

#include "common/base/rooted_env.h"
#include "gmock/gmock.h"
#include "tests/model/data/files_for_test.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<std::vector<std::string>> Expand(const std::vector<std::string>& patterns) {
  DataConfig config;
  for (const std::string& pattern : patterns) config.add_train_files(pattern);
  return ExpandFiles(config.train_files());
}

TEST(ExpandFilesTest, GlobsAreSortedAndEachFileIsTakenOnce) {
  const TempFolder folder;
  const std::string b = folder.Write("b.tsv", ""), a = folder.Write("a.tsv", ""),
                    c = folder.Write("c.csv", "");
  std::filesystem::create_directory(folder.Path("d.tsv"));
  EXPECT_THAT(*Expand({c, folder.Path("*.tsv"), a}), ElementsAre(a, b, c));
  EXPECT_TRUE(Expand({})->empty());
}

TEST(ExpandFilesTest, FilesThatSeveralEntriesNameAreAWarning) {
  const TempFolder folder;
  const std::string a = folder.Write("a.tsv", "");
  folder.Write("b.tsv", "");
  JobConfig job;
  job.mutable_data()->add_train_files(folder.Path("*.tsv"));
  EXPECT_TRUE(WarnOfFilesNamedAgain(job).empty());
  job.mutable_data()->add_train_files(a);
  job.mutable_data()->add_eval_files(a);  // evaluating on training data is not a repetition
  EXPECT_THAT(WarnOfFilesNamedAgain(job),
              ElementsAre(AllOf(HasSubstr("data.train_files"), HasSubstr(a))));
  job.mutable_data()->add_eval_files(a);
  EXPECT_EQ(WarnOfFilesNamedAgain(job).size(), 2u);
  job.set_evaluate_only(true);
  EXPECT_THAT(WarnOfFilesNamedAgain(job), ElementsAre(HasSubstr("data.eval_files")));
  job.mutable_data()->add_eval_files(folder.Path("none"));
  EXPECT_TRUE(WarnOfFilesNamedAgain(job).empty());
}

TEST(ExpandFilesTest, FileWithAWildcardInItsNameMatchesItself) {
  const TempFolder folder;
  const std::string odd = folder.Write("a[1].csv", "");
  EXPECT_THAT(*Expand({odd}), ElementsAre(odd));
}

TEST(ExpandFilesTest, PatternsFindOnlyWhatTheEnvMayOpen) {
  const TempFolder folder;
  const std::string inside = folder.Path("inside"), outside = folder.Path("outside");
  std::filesystem::create_directories(inside + "/sub");
  std::filesystem::create_directory(outside);
  const std::string mine = folder.Write("inside/sub/a.csv", "");
  const std::string secret = folder.Write("outside/b.csv", "");
  std::filesystem::create_symlink(outside, inside + "/link");
  auto env = RootedEnv::Create(Env::Real(), {{}, {inside}});
  ASSERT_TRUE(env.ok()) << env.status();
  const auto expand = [&](const std::string& pattern) {
    google::protobuf::RepeatedPtrField<std::string> patterns;
    *patterns.Add() = pattern;
    return ExpandFiles(patterns, env->get());
  };
  EXPECT_THAT(*expand(inside + "/sub/*.csv"), ElementsAre(mine));
  EXPECT_THAT(*expand(inside + "/s*/a.csv"), ElementsAre(mine));
  for (const std::string& pattern :
       {secret, outside + "/*.csv", inside + "/link/b.csv", inside + "/link/*.csv",
        inside + "/*/../../outside/*.csv", inside + "/.*/outside/*.csv"}) {
    EXPECT_FALSE(expand(pattern).ok()) << pattern;
  }
  EXPECT_EQ(expand(outside + "/*.csv").status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(expand(secret).status().message()),
              AllOf(HasSubstr(secret), HasSubstr("--data_root")));
}

TEST(ExpandFilesTest, ErrorsNameTheBaseOfRelativePaths) {
  google::protobuf::RepeatedPtrField<std::string> patterns;
  *patterns.Add() = "no/such/file";
  EXPECT_EQ(ExpandFiles(patterns).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(
      std::string(ExpandFiles(patterns, Env::Real(), "the working folder").status().message()),
      HasSubstr("the working folder"));
}

// Gives up root's right to read everything while this object lives.
class NoPrivileges {
 public:
  NoPrivileges() : user_(geteuid()) {
    if (user_ == 0) {
      EXPECT_EQ(seteuid(65534), 0);
    }
  }
  ~NoPrivileges() { EXPECT_EQ(seteuid(user_), 0); }

 private:
  const uid_t user_;
};

TEST(ExpandFilesTest, ErrorsNameAnUnreadableFolder) {
  namespace fs = std::filesystem;
  const TempFolder folder;
  fs::permissions(folder.path(), fs::perms::all);
  const std::string closed = folder.Path("closed");
  for (const char* name : {"closed", "closed/below", "open"})
    fs::create_directory(folder.Path(name));
  const std::string inside = folder.Write("closed/a.csv", ""),
                    other = folder.Write("open/b.csv", "");
  folder.Write("closed/below/c.csv", "");
  const std::vector<std::string> patterns = {closed + "/*.csv", inside, closed + "/below/*.csv",
                                             folder.Path("*/*.csv")};
  for (const std::string& pattern : patterns) EXPECT_TRUE(Expand({pattern}).ok()) << pattern;
  fs::permissions(closed, fs::perms::none);
  {
    const NoPrivileges none;
    for (const std::string& pattern : patterns) {
      const absl::Status status = Expand({pattern}).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << pattern << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(closed + " "));
    }
    EXPECT_THAT(*Expand({folder.Path("open/*.csv")}), ElementsAre(other));
  }
  fs::permissions(closed, fs::perms::all);
}

TEST(ExpandFilesTest, ErrorsNameAPatternWithoutFiles) {
  const TempFolder folder;
  const std::string a = folder.Write("a.tsv", "");
  const auto result = Expand({a, folder.Path("none-*.tsv")});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr(folder.Path("none-*.tsv")));
  EXPECT_THAT(std::string(Expand({folder.path()}).status().message()), HasSubstr("is a folder"));
  EXPECT_EQ(Expand({folder.Path("absent.csv")}).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace sluice
