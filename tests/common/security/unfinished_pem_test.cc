#include "common/security/unfinished_pem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// link(2) on file systems that fail with this error.
template <int kError>
int Fail(const char*, const char*) {
  errno = kError;
  return -1;
}

class UnfinishedPemTest : public testing::Test {
 protected:
  UnfinishedPemTest() {
    std::string pattern = testing::TempDir() + "/unfinished_pem_test.XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
  }
  ~UnfinishedPemTest() override { fs::remove_all(dir_); }

  std::string Path(const std::string& name) const { return dir_ + "/" + name; }
  std::string Read(const std::string& name) const {
    std::ifstream in(Path(name));
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  static void FillWith(UnfinishedPem* file, const std::string& text) {
    const absl::Status filled =
        file->Fill([&](FILE* to) { return std::fputs(text.c_str(), to) >= 0; });
    EXPECT_TRUE(filled.ok()) << filled;
  }
  absl::Status MakeNew(UnfinishedPem::Link link) {
    UnfinishedPem file(Path("worker.key"), 0600);
    FillWith(&file, "new");
    return file.FinishNew(link);
  }
  // The name of a file that a killed process has left.
  std::string LeftByAKilledProcess(const std::string& name) {
    const pid_t child = ::fork();
    if (child == 0) {
      UnfinishedPem file(Path(name), 0600);
      FillWith(&file, "half");
      ::raise(SIGKILL);
    }
    ::waitpid(child, nullptr, 0);
    for (const std::string& found : Names()) {
      if (found.rfind(name + ".", 0) == 0) return found;
    }
    ADD_FAILURE() << "nothing was left";
    return "";
  }

  std::string dir_;
};

TEST_F(UnfinishedPemTest, GetsItsNameWhenItIsWholeAndReplacesAnother) {
  std::ofstream(Path("worker.pem")) << "old";
  {
    UnfinishedPem file(Path("worker.pem"), 0640);
    FillWith(&file, "new");
    EXPECT_EQ(Read("worker.pem"), "old");
    EXPECT_THAT(Names(), SizeIs(2));
    ASSERT_TRUE(file.Replace().ok());
  }
  EXPECT_EQ(Read("worker.pem"), "new");
  EXPECT_THAT(Names(), ElementsAre("worker.pem"));
  EXPECT_EQ(fs::status(Path("worker.pem")).permissions(), fs::perms{0640});
}

TEST_F(UnfinishedPemTest, OneThatIsNotFinishedOrCannotBeWrittenLeavesNothing) {
  {
    UnfinishedPem file(Path("worker.pem"), 0600);
    FillWith(&file, "new");
  }
  EXPECT_THAT(Names(), ElementsAre());
  {
    UnfinishedPem file(Path("worker.pem"), 0600);
    EXPECT_EQ(file.Fill([](FILE*) { return false; }).code(), absl::StatusCode::kInternal);
  }
  EXPECT_THAT(Names(), ElementsAre());
}

TEST_F(UnfinishedPemTest, ANewFileGetsItsNameOnFileSystemsWithAndWithoutHardLinks) {
  for (const UnfinishedPem::Link link :
       {UnfinishedPem::Link(::link), Fail<EPERM>, Fail<EOPNOTSUPP>, Fail<EMLINK>, Fail<ENOSYS>}) {
    const absl::Status made = MakeNew(link);
    EXPECT_TRUE(made.ok()) << made;
    EXPECT_EQ(Read("worker.key"), "new");
    EXPECT_THAT(Names(), ElementsAre("worker.key"));
    fs::remove(Path("worker.key"));
  }
}

TEST_F(UnfinishedPemTest, ANewFileNeverReplacesOneThatIsThere) {
  std::ofstream(Path("worker.key")) << "mine";
  for (const UnfinishedPem::Link link :
       {UnfinishedPem::Link(::link), Fail<EPERM>, Fail<EOPNOTSUPP>, Fail<EMLINK>, Fail<ENOSYS>}) {
    EXPECT_EQ(MakeNew(link).code(), absl::StatusCode::kAborted);
    EXPECT_EQ(Read("worker.key"), "mine");
    EXPECT_THAT(Names(), ElementsAre("worker.key"));
  }
}

TEST_F(UnfinishedPemTest, OtherErrorsAreReportedAndNothingIsReplaced) {
  std::ofstream(Path("worker.key")) << "mine";
  for (const UnfinishedPem::Link link : {Fail<ENOSPC>, Fail<EIO>, Fail<EACCES>}) {
    const absl::Status failed = MakeNew(link);
    EXPECT_FALSE(failed.ok());
    EXPECT_NE(failed.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(failed.message()), HasSubstr(Path("worker.key")));
    EXPECT_EQ(Read("worker.key"), "mine");
  }
  fs::remove(Path("worker.key"));
  EXPECT_FALSE(MakeNew(Fail<ENOSPC>).ok());
  EXPECT_THAT(Names(), ElementsAre());
}

TEST_F(UnfinishedPemTest, LeftoversOfKilledProcessesAreRemovedAndNothingElseIs) {
  LeftByAKilledProcess("worker.key");
  LeftByAKilledProcess("worker.pem");
  const std::vector<std::string> others = {"notes.7.7.unfinished", "worker.key",
                                           "worker.key.7.unfinished", "worker.pem.old"};
  for (const std::string& name : others) std::ofstream(Path(name)) << "mine";
  ASSERT_EQ(::mkfifo(Path("pipe.pem.7.7.unfinished").c_str(), 0600), 0);
  ASSERT_THAT(Names(), SizeIs(7));
  RemoveUnfinishedPems(dir_);
  EXPECT_THAT(Names(),
              ElementsAre(others[0], "pipe.pem.7.7.unfinished", others[1], others[2], others[3]));
  RemoveUnfinishedPems(Path("none"));
}

TEST_F(UnfinishedPemTest, AFileThatIsBeingWrittenIsNoLeftover) {
  UnfinishedPem file(Path("worker.key"), 0600);
  FillWith(&file, "new");
  RemoveUnfinishedPems(dir_);
  ASSERT_TRUE(file.FinishNew().ok());
  EXPECT_EQ(Read("worker.key"), "new");
}

}  // namespace
}  // namespace sluice
