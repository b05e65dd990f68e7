#include "tests/faults/unsynced_env.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

// The steps of this program, in the form of UnsyncedEnv::steps().
static std::vector<std::string>& RealSteps() {
  static std::vector<std::string> steps;
  return steps;
}

extern "C" int fsync(int fd) {
  char path[4096];
  const std::string link = absl::StrCat("/proc/self/fd/", fd);
  const ssize_t n = ::readlink(link.c_str(), path, sizeof(path));
  const std::string name(path, n > 0 ? static_cast<size_t>(n) : 0);
  struct stat info;
  if (::fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
    RealSteps().push_back(absl::StrCat("sync_folder ", name));
  } else {
    RealSteps().push_back(absl::StrCat("sync ", name, " ", info.st_size));
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  RealSteps().push_back(absl::StrCat("rename ", from, " ", to));
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

extern "C" int mkdir(const char* path, mode_t mode) noexcept {
  RealSteps().push_back(absl::StrCat("mkdir ", path));
  return static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}

extern "C" int unlink(const char* path) noexcept {
  RealSteps().push_back(absl::StrCat("unlink ", path));
  return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

extern "C" int rmdir(const char* path) noexcept {
  RealSteps().push_back(absl::StrCat("rmdir ", path));
  return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR));
}

namespace sluice {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr uint64_t kSeeds = 300;

// All names under a folder, with the contents of files.
std::string Describe(Env* env, const std::string& folder) {
  std::string text;
  const std::vector<std::string> names = *env->List(folder);
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(folder, "/", name);
    const auto bytes = env->ReadFile(path);
    const bool unfinished = !FinishedName(name).empty();
    absl::StrAppend(&text, unfinished ? FinishedName(name) + "?" : name,
                    bytes.ok() ? absl::StrCat("=", *bytes) : Describe(env, path), ";");
  }
  return absl::StrCat("{", text, "}");
}

// All states of /d after a power failure before step `steps` of `change`.
std::set<std::string> StatesAfter(const std::function<void(Env*)>& before,
                                  const std::function<void(Env*)>& change, uint64_t steps) {
  std::set<std::string> states;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    UnsyncedEnv env;
    EXPECT_TRUE(env.MakeDirs("/d").ok());
    before(&env);
    env.FailAfter(steps);
    change(&env);
    std::mt19937_64 random(seed);
    env.LoseUnsynced(&random);
    states.insert(Describe(&env, "/d"));
  }
  return states;
}

void Write(Env* env, const std::string& path, const std::string& bytes) {
  env->WriteFile(path, {bytes}).IgnoreError();
}

TEST(UnsyncedEnvTest, AWriteGoesThroughItsAllowedStates) {
  const auto old = [](Env* env) { Write(env, "/d/f", "old"); };
  const auto write = [](Env* env) { Write(env, "/d/f", "ab"); };
  const std::string zeros(2, '\0');
  // create, append, sync, rename, sync_folder.
  EXPECT_THAT(StatesAfter(old, write, 0), ElementsAre("{f=old;}"));
  EXPECT_THAT(StatesAfter(old, write, 1), UnorderedElementsAre("{f=old;}", "{f=old;f?=;}"));
  EXPECT_THAT(StatesAfter(old, write, 2),
              UnorderedElementsAre("{f=old;}", "{f=old;f?=;}", "{f=old;f?=a;}", "{f=old;f?=ab;}",
                                   "{f=old;f?=" + zeros + ";}"));
  EXPECT_THAT(StatesAfter(old, write, 3), UnorderedElementsAre("{f=old;}", "{f=old;f?=ab;}"));
  EXPECT_THAT(StatesAfter(old, write, 4),
              UnorderedElementsAre("{f=old;}", "{f=old;f?=ab;}", "{f=ab;}"));
  EXPECT_THAT(StatesAfter(old, write, 5), ElementsAre("{f=ab;}"));
}

TEST(UnsyncedEnvTest, UnsyncedRemovalsAreLostInAnyCombination) {
  const auto two = [](Env* env) {
    Write(env, "/d/a", "1");
    Write(env, "/d/b", "2");
  };
  const auto remove = [](Env* env) {
    env->RemoveFile("/d/a").IgnoreError();
    env->RemoveFile("/d/b").IgnoreError();
  };
  EXPECT_THAT(StatesAfter(two, remove, 2),
              UnorderedElementsAre("{a=1;b=2;}", "{a=1;}", "{b=2;}", "{}"));
  // The next sync of the folder makes them last.
  const auto sync = [&](Env* env) {
    remove(env);
    Write(env, "/d/c", "3");
  };
  EXPECT_THAT(StatesAfter(two, sync, 100), ElementsAre("{c=3;}"));
}

TEST(UnsyncedEnvTest, AFolderThatIsNotSyncedLosesSyncedFiles) {
  const auto nothing = [](Env*) {};
  const auto fill = [](Env* env) {
    env->MakeNewDir("/d/e").IgnoreError();
    static_cast<UnsyncedEnv*>(env)->Restart();  // the machine runs on
    Write(env, "/d/e/f", "x");
  };
  EXPECT_THAT(StatesAfter(nothing, fill, 1), UnorderedElementsAre("{}", "{e{f=x;};}"));
  const auto remove = [](Env* env) {
    env->RemoveFile("/d/e/f").IgnoreError();
    env->RemoveDir("/d/e").IgnoreError();
  };
  const auto filled = [&](Env* env) {
    EXPECT_TRUE(env->MakeDirs("/d/e").ok());
    fill(env);
  };
  EXPECT_THAT(StatesAfter(filled, remove, 2), UnorderedElementsAre("{}", "{e{};}", "{e{f=x;};}"));
}

TEST(UnsyncedEnvTest, LargeWritesLoseSectorsOnly) {
  const std::string bytes(1500, 'x');
  std::set<std::string> torn;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    UnsyncedEnv env;
    env.FailAfter(2);
    Write(&env, "/f", bytes);
    std::mt19937_64 random(seed);
    env.LoseUnsynced(&random);
    const std::vector<std::string> names = *env.List("/");
    if (names.empty()) continue;
    const std::string left = *env.ReadFile("/" + names[0]);
    EXPECT_LE(left.size(), bytes.size());
    for (size_t at = 0; at < left.size(); ++at) {
      const char first = left[at / 512 * 512];
      ASSERT_EQ(left[at], first) << at;
      ASSERT_TRUE(first == 'x' || first == '\0');
    }
    torn.insert(left);
  }
  EXPECT_THAT(torn,
              Contains(std::string(512, '\0') + std::string(512, 'x') + std::string(476, '\0')));
}

TEST(UnsyncedEnvTest, OneSeedGivesOneState) {
  std::set<std::string> states;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::set<std::string> of_seed;
    for (int i = 0; i < 2; ++i) {
      UnsyncedEnv env;
      for (int f = 0; f < 20; ++f) Write(&env, absl::StrCat("/", f), "x");
      for (int f = 0; f < 20; ++f) EXPECT_TRUE(env.RemoveFile(absl::StrCat("/", f)).ok());
      std::mt19937_64 random(seed);
      env.LoseUnsynced(&random);
      of_seed.insert(Describe(&env, "/"));
    }
    EXPECT_EQ(of_seed.size(), 1u);
    states.insert(of_seed.begin(), of_seed.end());
  }
  EXPECT_GT(states.size(), 10u);
}

TEST(UnsyncedEnvTest, AProcessThatEndsChangesNothingMoreAndLosesNothing) {
  UnsyncedEnv env;
  ASSERT_TRUE(env.MakeDirs("/d").ok());
  env.FailAfter(2);
  EXPECT_EQ(env.WriteFile("/d/f", {"ab"}).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(env.failed());
  EXPECT_EQ(env.RemoveFile("/d/f").code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Describe(&env, "/d"), "{f?=ab;}");
  env.Restart();
  EXPECT_FALSE(env.failed());
  EXPECT_TRUE(env.steps().empty());
  EXPECT_EQ(Describe(&env, "/d"), "{f?=ab;}");
  EXPECT_TRUE(env.WriteFile("/d/f", {"cd"}).ok());
  EXPECT_EQ(Describe(&env, "/d"), "{f=cd;f?=ab;}");
}

// Shortens the steps to what both can know: paths without the root and without the numbers of
// unfinished files; Env::Real()'s creates and appends are seen by the size that is synced.
std::vector<std::string> Comparable(const std::vector<std::string>& steps,
                                    const std::string& root) {
  std::vector<std::string> compared;
  for (const std::string& step : steps) {
    std::vector<std::string> words = absl::StrSplit(step, ' ');
    if (words[0] == "create" || words[0] == "append") continue;
    for (std::string& word : words) {
      if (absl::StartsWith(word, root)) word = absl::StrCat("ROOT", word.substr(root.size()));
      if (const std::string name = FinishedName(word); !name.empty()) word = name + "?";
    }
    compared.push_back(absl::StrJoin(words, " "));
  }
  return compared;
}

TEST(UnsyncedEnvTest, StepsAreThoseOfTheRealEnv) {
  std::string pattern = ::testing::TempDir() + "/unsynced_env_test.XXXXXX";
  const std::string root = std::filesystem::canonical(::mkdtemp(pattern.data()));
  UnsyncedEnv model;
  ASSERT_TRUE(model.MakeDirs(root).ok());
  const std::pair<const char*, std::function<absl::Status(Env*)>> operations[] = {
      {"MakeNewDir", [&](Env* env) { return env->MakeNewDir(root + "/a"); }},
      {"MakeNewDir, exists", [&](Env* env) { return env->MakeNewDir(root + "/a"); }},
      {"MakeNewDir, no parent", [&](Env* env) { return env->MakeNewDir(root + "/b/c"); }},
      {"MakeDirs", [&](Env* env) { return env->MakeDirs(root + "/a/b/c"); }},
      {"MakeDirs, exists", [&](Env* env) { return env->MakeDirs(root + "/a/b/c"); }},
      {"WriteFile",
       [&](Env* env) {
         return env->WriteFile(root + "/a/f", {"one", "two"});
       }},
      {"WriteFile, replaces", [&](Env* env) { return env->WriteFile(root + "/a/f", {"three"}); }},
      {"WriteFile, no folder", [&](Env* env) { return env->WriteFile(root + "/x/f", {"1"}); }},
      {"WriteFile, onto a folder", [&](Env* env) { return env->WriteFile(root + "/a", {"1"}); }},
      {"StartFile",
       [&](Env* env) {
         const auto file = env->StartFile(root + "/a/g");
         EXPECT_TRUE((*file)->Append("1").ok());
         EXPECT_TRUE((*file)->Append("2").ok());
         return (*file)->Finish();
       }},
      {"StartFile, given up",
       [&](Env* env) {
         const auto file = env->StartFile(root + "/a/h");
         return (*file)->Append("1");
       }},
      {"RenameFile", [&](Env* env) { return env->RenameFile(root + "/a/g", root + "/a/f"); }},
      {"RenameFile, absent",
       [&](Env* env) { return env->RenameFile(root + "/a/g", root + "/a/i"); }},
      {"RemoveFile", [&](Env* env) { return env->RemoveFile(root + "/a/f"); }},
      {"RemoveFile, absent", [&](Env* env) { return env->RemoveFile(root + "/a/f"); }},
      {"RemoveDir, not empty", [&](Env* env) { return env->RemoveDir(root + "/a"); }},
      {"RemoveDir", [&](Env* env) { return env->RemoveDir(root + "/a/b/c"); }},
  };
  for (const auto& [name, operation] : operations) {
    SCOPED_TRACE(name);
    model.Restart();
    const absl::Status modelled = operation(&model);
    RealSteps().clear();
    const absl::Status real = operation(Env::Real());
    const std::vector<std::string> steps = RealSteps();
    EXPECT_EQ(modelled.ok(), real.ok()) << modelled << real;
    EXPECT_EQ(absl::IsNotFound(modelled), absl::IsNotFound(real)) << modelled << real;
    EXPECT_EQ(absl::IsAlreadyExists(modelled), absl::IsAlreadyExists(real)) << modelled << real;
    EXPECT_EQ(Comparable(model.steps(), root), Comparable(steps, root));
    EXPECT_EQ(Describe(&model, root), Describe(Env::Real(), root));
  }
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace sluice
