#include "common/base/env.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "tests/common/base/planted.h"

// The paths that this program has synced.
static std::vector<std::string>& Synced() {
  static std::vector<std::string> paths;
  return paths;
}

extern "C" int fsync(int fd) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t n = ::readlink(link.c_str(), path, sizeof(path));
  static sluice::Mutex mutex;
  sluice::MutexLock lock(&mutex);
  Synced().emplace_back(path, n > 0 ? static_cast<size_t>(n) : 0);
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace sluice {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

class EnvTest : public ::testing::Test {
 protected:
  EnvTest() {
    std::string pattern = ::testing::TempDir() + "/env_test.XXXXXX";
    dir_ = std::filesystem::canonical(::mkdtemp(pattern.data()));
  }
  ~EnvTest() override { std::filesystem::remove_all(dir_); }

  std::string dir_;
  Env* const env_ = Env::Real();
};

TEST_F(EnvTest, OfThreadsThatPublishOneSucceeds) {
  const std::string path = dir_ + "/file";
  std::optional<FileIdentity> expected;
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> won{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const auto taken = env_->Publish(path, absl::StrCat(round, "-", t), expected);
        if (taken.ok()) ++won;
        const auto code = taken.status().code();
        EXPECT_TRUE(taken.ok() || code == (expected ? absl::StatusCode::kAborted
                                                    : absl::StatusCode::kAlreadyExists))
            << taken.status();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(won, 1) << round;
    expected = env_->Look(path)->identity;
  }
  EXPECT_THAT(*env_->List(dir_), ElementsAre("file"));
  // The same bytes: the reply to an earlier try was lost.
  const std::string held = *env_->ReadFile(path);
  EXPECT_TRUE(env_->Publish(path, held, std::nullopt).ok());
  ASSERT_TRUE(env_->RemoveFile(path).ok());
  EXPECT_EQ(env_->Publish(path, held, expected).status().code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(env_->Exists(path));
}

TEST_F(EnvTest, AppendsToAFileThatOnlyItsOwnerMayReadAndWrite) {
  const std::string path = dir_ + "/file";
  ASSERT_TRUE(env_->AppendToFile(path, "").ok());
  EXPECT_EQ(*env_->FileSize(path), 0u);
  EXPECT_EQ(std::filesystem::status(path).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  ASSERT_TRUE(env_->AppendToFile(path, "one\n").ok());
  ASSERT_TRUE(env_->AppendToFile(path, "two\n").ok());
  EXPECT_EQ(*env_->ReadFile(path), "one\ntwo\n");
  EXPECT_TRUE(absl::IsNotFound(env_->AppendToFile(dir_ + "/nothing/file", "x")));
}

TEST_F(EnvTest, WritesThePiecesInOrderAndReadsThemBack) {
  const std::string path = dir_ + "/file";
  ASSERT_TRUE(env_->WriteFile(path, {"one", "", absl::string_view("\0two", 4)}).ok());
  EXPECT_EQ(*env_->ReadFile(path), std::string("one\0two", 7));
  EXPECT_EQ(*env_->FileSize(path), 7u);
  EXPECT_EQ(*env_->ReadRange(path, 2, 3), std::string("e\0t", 3));
  EXPECT_EQ(*env_->ReadRange(path, 5, ~0ull), "wo");
  EXPECT_EQ(*env_->ReadRange(path, 100, 3), "");
}

TEST_F(EnvTest, ReplacesAFileAndLeavesNoOtherFile) {
  const std::string path = dir_ + "/file";
  ASSERT_TRUE(env_->WriteFile(path, {"a longer first text"}).ok());
  ASSERT_TRUE(env_->WriteFile(path, {"short"}).ok());
  EXPECT_EQ(*env_->ReadFile(path), "short");
  EXPECT_THAT(*env_->List(dir_), ElementsAre("file"));
}

TEST_F(EnvTest, FailedWriteKeepsTheOldFileAndLeavesNoOther) {
  // A file cannot replace a folder, so the rename fails after the bytes were written.
  ASSERT_TRUE(env_->MakeDirs(dir_ + "/target/inner").ok());
  EXPECT_FALSE(env_->WriteFile(dir_ + "/target", {"text"}).ok());
  EXPECT_THAT(*env_->List(dir_), ElementsAre("target"));
  EXPECT_THAT(*env_->List(dir_ + "/target"), ElementsAre("inner"));
}

TEST_F(EnvTest, FileWrittenInPiecesAppearsOnlyWhenFinished) {
  const std::string path = dir_ + "/file";
  ASSERT_TRUE(env_->WriteFile(path, {"old"}).ok());
  {
    const auto file = env_->StartFile(path);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Append("a").ok());
    ASSERT_TRUE((*file)->Append("bc").ok());
    EXPECT_EQ(*env_->ReadFile(path), "old");
    ASSERT_TRUE((*file)->Finish().ok());
  }
  EXPECT_EQ(*env_->ReadFile(path), "abc");
  {
    const auto file = env_->StartFile(path);
    ASSERT_TRUE((*file)->Append("given up").ok());
  }
  EXPECT_EQ(*env_->ReadFile(path), "abc");
  EXPECT_THAT(*env_->List(dir_), ElementsAre("file"));
  EXPECT_EQ(env_->StartFile(dir_ + "/none/file").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(EnvTest, NamesThatAreTakenAreSkippedAndKeepWhatTheyHave) {
  Planted planted(dir_ + "/victim");
  std::filesystem::create_directory(dir_ + "/out");
  uint64_t number = 0;
  {
    const auto file = env_->StartFile(dir_ + "/out/a");
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_EQ(std::sscanf((*env_->List(dir_ + "/out"))[0].c_str(), "a.%*d.%lu.", &number), 1);
  }
  const auto next = [&] {
    return absl::StrCat(dir_, "/out/a.", ::getpid(), ".", ++number, kUnfinishedSuffix);
  };
  planted.HardLink(next());
  planted.Link(next());
  planted.Pipe(next());
  std::filesystem::create_directory(next());
  ASSERT_TRUE(env_->WriteFile(next(), {"left by a killed process"}).ok());
  const auto before = *env_->List(dir_ + "/out");
  ASSERT_TRUE(env_->WriteFile(dir_ + "/out/a", {"new"}).ok());
  EXPECT_EQ(*env_->ReadFile(dir_ + "/out/a"), "new");
  EXPECT_TRUE(planted.VictimIsUnchanged());
  EXPECT_THAT(*env_->List(dir_ + "/out"), IsSupersetOf(before));
}

TEST_F(EnvTest, AFileThatIsReadAsAWholeIsBounded) {
  const std::string path = dir_ + "/sparse";
  ASSERT_TRUE(env_->WriteFile(path, {"x"}).ok());
  std::filesystem::resize_file(path, Env::kMostFileBytes + 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(env_->ReadFile(path).status()));
  EXPECT_EQ(*env_->ReadRange(path, 0, 1), "x");
}

TEST_F(EnvTest, ConcurrentWritersOfOneFileDoNotMix) {
  const std::string path = dir_ + "/file";
  std::vector<std::thread> writers;
  for (char c : {'a', 'b', 'c'}) {
    writers.emplace_back(
        [&, c] { EXPECT_TRUE(env_->WriteFile(path, {std::string(100000, c)}).ok()); });
  }
  for (std::thread& writer : writers) writer.join();
  const std::string bytes = *env_->ReadFile(path);
  EXPECT_EQ(bytes, std::string(100000, bytes[0]));
  EXPECT_THAT(*env_->List(dir_), ElementsAre("file"));
}

TEST_F(EnvTest, MakeDirsCreatesParentsAndAcceptsExistingFolders) {
  EXPECT_TRUE(env_->MakeDirs(dir_ + "/a/b//c/").ok());
  EXPECT_TRUE(env_->MakeDirs(dir_ + "/a/b/c").ok());
  EXPECT_TRUE(env_->Exists(dir_ + "/a/b/c"));
}

TEST_F(EnvTest, EachFolderIsSyncedIntoItsParent) {
  // The second call does so for a process that was killed before its sync.
  for (const char* path : {"/a/b/c/", "/a/b/c"}) {
    Synced().clear();
    ASSERT_TRUE(env_->MakeDirs(dir_ + path).ok());
    EXPECT_THAT(Synced(), ::testing::IsSupersetOf({dir_, dir_ + "/a", dir_ + "/a/b"}));
  }
  Synced().clear();
  ASSERT_TRUE(env_->MakeNewDir(dir_ + "/a/b/d").ok());
  EXPECT_THAT(Synced(), ElementsAre(dir_ + "/a/b"));
}

TEST_F(EnvTest, FileAndItsRenameAreSynced) {
  ASSERT_TRUE(env_->MakeDirs(dir_ + "/a").ok());
  Synced().clear();
  ASSERT_TRUE(env_->WriteFile(dir_ + "/a/file", {"x"}).ok());
  ASSERT_EQ(Synced().size(), 2u);
  EXPECT_THAT(Synced()[0], HasSubstr(dir_ + "/a/file."));  // synced before it gets its name
  EXPECT_EQ(Synced()[1], dir_ + "/a");
  Synced().clear();
  ASSERT_TRUE(env_->RenameFile(dir_ + "/a/file", dir_ + "/other").ok());
  EXPECT_THAT(Synced(), Contains(dir_));
  EXPECT_EQ(*env_->ReadFile(dir_ + "/other"), "x");
  EXPECT_FALSE(env_->Exists(dir_ + "/a/file"));
}

TEST_F(EnvTest, ExactlyOneOfManyCallersMakesTheFolder) {
  std::atomic<int> made{0}, taken{0};
  std::vector<std::thread> makers;
  for (int i = 0; i < 8; ++i) {
    makers.emplace_back([&] {
      const absl::Status status = env_->MakeNewDir(dir_ + "/a");
      made += status.ok();
      taken += absl::IsAlreadyExists(status);
    });
  }
  for (std::thread& maker : makers) maker.join();
  EXPECT_EQ(made, 1);
  EXPECT_EQ(taken, 7);
  EXPECT_EQ(env_->MakeNewDir(dir_ + "/no/parent").code(), absl::StatusCode::kNotFound);
}

TEST_F(EnvTest, OnlyAnEmptyFolderIsRemoved) {
  ASSERT_TRUE(env_->MakeDirs(dir_ + "/a/b").ok());
  EXPECT_FALSE(env_->RemoveDir(dir_ + "/a").ok());
  EXPECT_TRUE(env_->RemoveDir(dir_ + "/a/b").ok());
  EXPECT_FALSE(env_->Exists(dir_ + "/a/b"));
}

TEST_F(EnvTest, TwoPathsToOneFileAreTheSameFile) {
  ASSERT_TRUE(env_->MakeDirs(dir_ + "/a").ok());
  ASSERT_TRUE(env_->WriteFile(dir_ + "/a/file", {"x"}).ok());
  ASSERT_TRUE(env_->WriteFile(dir_ + "/a/copy", {"x"}).ok());
  std::filesystem::create_directory_symlink(dir_ + "/a", dir_ + "/link");
  std::filesystem::create_hard_link(dir_ + "/a/file", dir_ + "/hard");
  EXPECT_TRUE(IsSameFile(env_, dir_ + "/a", dir_ + "/link/"));
  EXPECT_TRUE(IsSameFile(env_, dir_ + "/a/../a/file", dir_ + "/link/file"));
  EXPECT_TRUE(IsSameFile(env_, dir_ + "/hard", dir_ + "/a/file"));
  EXPECT_FALSE(IsSameFile(env_, dir_ + "/a/copy", dir_ + "/a/file"));
  EXPECT_FALSE(IsSameFile(env_, dir_ + "/absent", dir_ + "/absent"));
}

TEST_F(EnvTest, ErrorNamesTheFileInPlaceOfAFolder) {
  ASSERT_TRUE(env_->WriteFile(dir_ + "/a", {"x"}).ok());
  EXPECT_THAT(std::string(env_->MakeDirs(dir_ + "/a").message()), HasSubstr(dir_ + "/a"));
  EXPECT_FALSE(env_->MakeDirs(dir_ + "/a/b").ok());
}

TEST_F(EnvTest, ListsSorted) {
  for (const char* name : {"b", "c", "a"}) ASSERT_TRUE(env_->WriteFile(dir_ + "/" + name, {}).ok());
  EXPECT_THAT(*env_->List(dir_), ElementsAre("a", "b", "c"));
}

TEST_F(EnvTest, MissingPathsAreNotFoundAndNamed) {
  const std::string path = dir_ + "/absent";
  for (const absl::Status& status :
       {env_->ReadFile(path).status(), env_->ReadRange(path, 0, 1).status(),
        env_->FileSize(path).status(), env_->List(path).status(), env_->RemoveFile(path),
        env_->WriteFile(path + "/file", {"x"})}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
  EXPECT_FALSE(env_->Exists(path));
}

TEST_F(EnvTest, FolderCannotBeReadAsAFile) {
  EXPECT_FALSE(env_->ReadFile(dir_).ok());
  EXPECT_FALSE(env_->ReadRange(dir_, 0, 1).ok());
}

TEST_F(EnvTest, APipeIsRefusedWithoutWaitingForItsOtherEnd) {
  const std::string pipe = dir_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(Env::Real()->ReadFile(pipe).status()));
  EXPECT_FALSE(Env::Real()->AppendToFile(pipe, "x").ok()) << "nobody reads it";
  const auto reader = Env::Real()->OpenFile(pipe, O_RDONLY);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE(absl::IsFailedPrecondition(Env::Real()->AppendToFile(pipe, "x")));
  close(*reader);
}

TEST_F(EnvTest, UnfinishedFileTellsItsFinalName) {
  {
    const auto file = env_->StartFile(dir_ + "/a.txt");
    ASSERT_TRUE(file.ok());
    const auto names = *env_->List(dir_);
    ASSERT_EQ(names.size(), 1u);
    EXPECT_EQ(FinishedName(names[0]), "a.txt");
  }
  for (const char* name : {"a", "a.unfinished", "a.7.unfinished", "a.7.b.unfinished",
                           "a.7.07.unfinished", "a.7.7.unfinished.bak", ".unfinished"})
    EXPECT_EQ(FinishedName(name), "") << name;
}

TEST_F(EnvTest, RemovesAFile) {
  ASSERT_TRUE(env_->WriteFile(dir_ + "/a", {"x"}).ok());
  EXPECT_TRUE(env_->RemoveFile(dir_ + "/a").ok());
  EXPECT_FALSE(env_->Exists(dir_ + "/a"));
}

}  // namespace
}  // namespace sluice
