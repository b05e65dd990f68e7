#include "model/data/expand_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/rooted_env.h"
#include "gmock/gmock.h"
#include "tests/common/base/hooked_env.h"
#include "tests/model/data/files_for_test.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<std::vector<std::string>> Expand(const std::vector<std::string>& patterns) {
  DataConfig config;
  for (const std::string& pattern : patterns) config.add_train_files(pattern);
  return ExpandFiles(config.train_files(), Env::Real());
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
  EXPECT_TRUE(WarnOfFilesNamedAgain(job, Env::Real())->empty());
  job.mutable_data()->add_train_files(a);
  job.mutable_data()->add_eval_files(a);  // evaluating on training data is not a repetition
  EXPECT_THAT(*WarnOfFilesNamedAgain(job, Env::Real()),
              ElementsAre(AllOf(HasSubstr("data.train_files"), HasSubstr(a))));
  job.mutable_data()->add_eval_files(a);
  EXPECT_EQ(WarnOfFilesNamedAgain(job, Env::Real())->size(), 2u);
  job.set_evaluate_only(true);
  EXPECT_THAT(*WarnOfFilesNamedAgain(job, Env::Real()), ElementsAre(HasSubstr("data.eval_files")));
  job.mutable_data()->add_eval_files(folder.Path("none"));
  EXPECT_TRUE(WarnOfFilesNamedAgain(job, Env::Real())->empty());
}

// A place whose answers come when all `awaited` have been asked for.
class SlowPlace : public HookedEnv {
 public:
  absl::StatusOr<FileMatches> Match(const std::string& pattern, size_t) override {
    MutexLock lock(&mutex_);
    asked.push_back(pattern);
    changed_.NotifyAll();
    bool in_time = true;
    while (asked.size() < awaited && in_time)
      in_time = changed_.WaitFor(&mutex_, std::chrono::seconds(20));
    together &= asked.size() >= awaited;
    FileMatches matches;
    matches.paths = {pattern};
    matches.names_read = 1;
    return matches;
  }
  size_t awaited = 0;
  std::vector<std::string> asked;
  bool together = true;

 private:
  Mutex mutex_;
  CondVar changed_;
};

TEST(ExpandFilesTest, NamesOfUrlsAreAskedForTogetherAndOnce) {
  SlowPlace place;
  place.awaited = 5;
  DataConfig config;
  for (const char* name : {"s3://b/y", "s3://b/day={1..3}/a", "s3://b/x", "s3://b/y"})
    config.add_train_files(name);
  EXPECT_THAT(
      *ExpandFiles(config.train_files(), &place),
      ElementsAre("s3://b/day=1/a", "s3://b/day=2/a", "s3://b/day=3/a", "s3://b/x", "s3://b/y"));
  EXPECT_EQ(place.asked.size(), 5u);
  EXPECT_TRUE(place.together);
}

TEST(ExpandFilesTest, RangesOfDaysAndNumbersStandForManyPatterns) {
  const TempFolder folder;
  std::vector<std::string> days;
  for (const char* day : {"2026-02-28", "2026-03-01", "2026-03-02"}) {
    std::filesystem::create_directory(folder.Path(absl::StrCat("day=", day)));
    days.push_back(folder.Write(absl::StrCat("day=", day, "/a"), ""));
  }
  EXPECT_THAT(*Expand({folder.Path("day={2026-02-28..2026-03-01}/*")}),
              ElementsAre(days[0], days[1]));
  std::vector<std::string> parts;
  for (const char* part : {"p08", "p09", "p10"}) parts.push_back(folder.Write(part, ""));
  EXPECT_THAT(*Expand({folder.Path("p{08..10}")}), ElementsAre(parts[0], parts[1], parts[2]));
  // A day that is not there is no day without data.
  EXPECT_THAT(
      std::string(Expand({folder.Path("day={2026-03-01..2026-03-03}/*")}).status().message()),
      HasSubstr("day=2026-03-03"));
  EXPECT_EQ(Expand({folder.Path("p{10..8}")}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Expand({folder.Path("p{1..10000000}")}).status().code(),
            absl::StatusCode::kInvalidArgument);
  // Braces of a name, and what is no range.
  const std::string braces = folder.Write("q{1..2}", "");
  EXPECT_THAT(*Expand({braces}), ElementsAre(braces));
  EXPECT_TRUE(absl::IsNotFound(Expand({folder.Path("p{a..b}")}).status()));
}

TEST(ExpandFilesTest, NamesThatBeginWithAnUnderscoreMatchNoFirstWildcard) {
  const TempFolder folder;
  const std::string a = folder.Write("a", ""), mark = folder.Write("_SUCCESS", ""),
                    end = folder.Write("x_y", "");
  std::filesystem::create_directory(folder.Path("_temporary"));
  folder.Write("_temporary/b", "");
  std::filesystem::create_directory(folder.Path("day"));
  const std::string b = folder.Write("day/b", "");
  EXPECT_THAT(*Expand({folder.Path("*")}), ElementsAre(a, end));
  EXPECT_THAT(*Expand({folder.Path("*/b")}), ElementsAre(b));
  EXPECT_THAT(*Expand({folder.Path("_S*"), folder.Path("x?y")}), ElementsAre(mark, end));
  EXPECT_THAT(*Expand({mark}), ElementsAre(mark));
}

TEST(ExpandFilesTest, MarkedWildcardsArePlainCharacters) {
  const TempFolder folder;
  for (const char* name : {"g[1]", "g1"}) std::filesystem::create_directory(folder.Path(name));
  const std::string odd = folder.Write("g[1]/a.csv", "");
  folder.Write("g1/a.csv", "");
  EXPECT_THAT(*Expand({folder.Path("g\\[1\\]/*.csv")}), ElementsAre(odd));
  EXPECT_THAT(*Expand({folder.Path("g\\[1\\]/a.csv")}), ElementsAre(odd));
  EXPECT_EQ(Expand({folder.Path("g\\[2\\]/a.csv")}).status().code(), absl::StatusCode::kNotFound);
}

TEST(ExpandFilesTest, UrlsAreRefusedByName) {
  EXPECT_THAT(std::string(Expand({"abfs://bucket/*.csv"}).status().message()),
              AllOf(HasSubstr("abfs://bucket/*.csv"), HasSubstr("is not supported")));
  EXPECT_EQ(Expand({"s3://bucket/*.csv"}).status().code(), absl::StatusCode::kUnimplemented)
      << "the machine's own files have no such place";
}

TEST(ExpandFilesTest, OtherPathsOfAFileAreTheSameFile) {
  const TempFolder folder;
  const std::string a = folder.Write("a.csv", ""), b = folder.Write("b.csv", "");
  std::filesystem::create_directory(folder.Path("sub"));
  std::filesystem::create_symlink(a, folder.Path("link.csv"));
  std::filesystem::create_hard_link(a, folder.Path("sub/hard.csv"));
  const std::string aliases[] = {folder.path() + "/./a.csv", folder.path() + "//a.csv",
                                 folder.path() + "/sub/../a.csv", folder.Path("link.csv"),
                                 folder.Path("sub/hard.csv")};
  for (const std::string& alias : aliases) {
    EXPECT_THAT(*Expand({a, alias, b}), ElementsAre(std::min(a, alias), b)) << alias;
    JobConfig job;
    for (const std::string& name : {a, alias, b}) job.mutable_data()->add_train_files(name);
    EXPECT_THAT(*WarnOfFilesNamedAgain(job, Env::Real()),
                ElementsAre(AllOf(HasSubstr(a), HasSubstr(alias))));
  }
  EXPECT_THAT(*Expand({folder.Path("*.csv")}), ElementsAre(a, b));
  // A prediction scores what it is told to score.
  ExpandLimits limits;
  limits.keep_aliases = true;
  JobConfig job;
  job.mutable_data()->add_train_files(folder.Path("*.csv"));
  EXPECT_EQ(ExpandFiles(job.data().train_files(), Env::Real(), "", limits)->size(), 3u);
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

TEST(ExpandFilesTest, AListHasAtMostAsManyFilesAsTheLimit) {
  const TempFolder folder;
  for (int i = 0; i < 4; ++i) folder.Write(absl::StrCat("a", i, ".csv"), "");
  const std::string named = folder.Path("a0.csv"), matched = folder.Path("a*.csv");
  const auto expand = [](const std::vector<std::string>& patterns, size_t files) {
    return ExpandFiles({patterns.begin(), patterns.end()}, Env::Real(), "", {files, 1000});
  };
  EXPECT_EQ(expand({matched}, 4)->size(), 4u);
  EXPECT_EQ(expand({named, matched}, 5)->size(), 4u);
  for (const auto& result : {expand({matched}, 3), expand({named, matched}, 4),
                             expand({matched, named}, 4), expand({named, named, matched}, 1)}) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
  }
  EXPECT_THAT(std::string(expand({named, matched}, 4).status().message()),
              AllOf(HasSubstr(matched), HasSubstr("4"), HasSubstr("merge")));
}

// Counts the folders that it opens.
class CountingEnv : public HookedEnv {
 public:
  absl::StatusOr<int> OpenFile(const std::string& path, int flags, uint32_t mode) override {
    if ((flags & O_DIRECTORY) != 0) ++folders;
    return HookedEnv::OpenFile(path, flags, mode);
  }
  int folders = 0;
};

TEST(ExpandFilesTest, AtMostAsManyNamesAreReadAsTheLimit) {
  const TempFolder folder;
  constexpr int kFolders = 30;
  for (int i = 0; i < kFolders; ++i) {
    std::filesystem::create_directory(folder.Path(absl::StrCat("d", i)));
    folder.Write(absl::StrCat("d", i, "/a.csv"), "");
  }
  CountingEnv env;
  const auto expand = [&](const std::vector<std::string>& patterns, size_t entries) {
    env.folders = 0;
    return ExpandFiles({patterns.begin(), patterns.end()}, &env, "", {1000, entries});
  };
  const std::string all = folder.Path("d*/a*.csv");
  // The outer folder with its own name, "." and ".."; the same and a file for each inner one.
  constexpr size_t kNames = (1 + 2 + kFolders) + kFolders * (1 + 2 + 1);
  EXPECT_EQ(expand({all}, kNames)->size(), kFolders);
  EXPECT_EQ(env.folders, 1 + kFolders);
  const absl::Status more = expand({all}, kNames - 1).status();
  EXPECT_EQ(more.code(), absl::StatusCode::kInvalidArgument) << more;
  EXPECT_THAT(std::string(more.message()),
              AllOf(HasSubstr(all), HasSubstr(absl::StrCat(kNames - 1, " names"))));
  EXPECT_EQ(expand({all, folder.Path("d*")}, kNames).status().code(),
            absl::StatusCode::kInvalidArgument)
      << "the patterns of a list together";
  // Each step back multiplies the matches; nothing is opened after the last name.
  std::string deep = folder.Path("*");
  for (int i = 0; i < 10; ++i) deep += "/../*";
  EXPECT_EQ(expand({deep}, 1000).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_LT(env.folders, 1000 / kFolders);
}

TEST(ExpandFilesTest, AListThatPassesALimitIsNoWarningButAnError) {
  const TempFolder folder;
  folder.Write("a.csv", ""), folder.Write("b.csv", "");
  JobConfig job;
  job.mutable_data()->add_eval_files(folder.Path("*.csv"));
  EXPECT_TRUE(WarnOfFilesNamedAgain(job, Env::Real(), {2, 1000}).ok());
  for (const ExpandLimits& limits : {ExpandLimits{1, 1000}, ExpandLimits{1000, 3}}) {
    const absl::Status status = WarnOfFilesNamedAgain(job, Env::Real(), limits).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("data.eval_files"), HasSubstr(folder.Path("*.csv"))));
  }
}

TEST(ExpandFilesTest, ErrorsNameTheBaseOfRelativePaths) {
  google::protobuf::RepeatedPtrField<std::string> patterns;
  *patterns.Add() = "no/such/file";
  EXPECT_EQ(ExpandFiles(patterns, Env::Real()).status().code(), absl::StatusCode::kNotFound);
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

TEST(ExpandFilesTest, ThePatternThatIsAdvisedForAFolderFindsItsFiles) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> kinds = {
      {{"a.csv", "b.csv"}, "/*.csv"},
      {{"README", "a.csv"}, "/*"},
      {{"_SUCCESS", "x/a.parquet", "y/b.parquet"}, "/*/*.parquet"},
      {{"day=1/h=2/a.csv", "day=2/h=1/a.csv"}, "/day=*/h=*/*.csv"},
  };
  for (const auto& [names, advised] : kinds) {
    SCOPED_TRACE(advised);
    const TempFolder top;
    const std::string folder = top.Path("d[1]");
    std::vector<std::string> files;
    for (const std::string& name : names) {
      std::filesystem::create_directories(std::filesystem::path(folder + "/" + name).parent_path());
      const std::string path = top.Write("d[1]/" + name, "");
      if (name[0] != '_') files.push_back(path);
    }
    for (const char* end : {"", "/"}) {
      const std::string told(Expand({folder + end}).status().message());
      const std::string pattern = top.Path("d\\[1]") + advised;
      EXPECT_THAT(told, HasSubstr(absl::StrCat("is a folder; write \"", pattern, "\"")));
      EXPECT_EQ(*Expand({pattern}), files);
    }
  }
  const TempFolder empty;
  EXPECT_THAT(std::string(Expand({empty.path()}).status().message()),
              HasSubstr("is a folder without data files"));
}

}  // namespace
}  // namespace sluice
