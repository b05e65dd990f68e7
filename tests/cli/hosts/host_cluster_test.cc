#include "cli/hosts/host_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/cli/hosts/fake_links.h"
#include "tests/common/base/fake_clock.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class HostClusterTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<HostCluster>> Start(const std::string& hosts) {
    HostCluster::Options options;
    options.clock = &clock_;
    options.links = &links_;
    options.hosts = *ParseHostList(hosts, "--hosts");
    options.placement = PlaceDaemons(options.hosts, static_cast<uint32_t>(options.hosts.size()), 0);
    options.version = "1";
    options.paths = paths_;
    options.transport = "auto";
    options.tls = false;
    options.note = [this](const std::string& line) { notes_.push_back(line); };
    options.program = program_;
    auto logs = LogFolder::Take(std::string(testing::TempDir()) + "/host_cluster_log", Env::Real());
    if (!logs.ok()) return logs.status();
    options.logs = *std::move(logs);
    return HostCluster::Start(std::move(options));
  }
  // The command line of a daemon.
  std::string Command(const std::string& host, size_t number) {
    return absl::StrJoin(links_.hosts[host].started.at(number), " ");
  }

  SharedPaths paths_;
  std::optional<WorkerProgram> program_;
  FakeClock clock_;
  FakeLinks links_{&clock_};
  std::vector<std::string> notes_;
};

TEST_F(HostClusterTest, StartsEachDaemonOnItsHost) {
  {
    const auto cluster = Start("a:2,b:4");
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    EXPECT_EQ((*cluster)->scheduler(), "a:7100");
    EXPECT_TRUE((*cluster)->CheckProcesses().ok());
    EXPECT_FALSE((*cluster)->SchedulerIsLost());
    ASSERT_EQ(links_.hosts["a"].started.size(), 4U);
    ASSERT_EQ(links_.hosts["b"].started.size(), 5U);
    EXPECT_THAT(Command("a", 0), AllOf(HasSubstr("sluice-scheduler"), HasSubstr("{bind}")));
    EXPECT_THAT(Command("b", 0), AllOf(HasSubstr("sluice-pserver"), HasSubstr("--rank=1"),
                                       HasSubstr("--scheduler=a:7100")));
    // 8 cores, shared by the workers of the host.
    EXPECT_THAT(Command("a", 2), AllOf(HasSubstr("sluice-worker"), HasSubstr("--threads=4")));
    EXPECT_THAT(Command("b", 4), AllOf(HasSubstr("--rank=5"), HasSubstr("--threads=2")));
  }
  EXPECT_TRUE(links_.hosts["a"].ended && links_.hosts["b"].ended);
}

TEST_F(HostClusterTest, WorkersMayBeAProgramOfTheUser) {
  program_ = WorkerProgram{"python3", "/shared/train.py", {"--x", "1"}, "/shared/log/program"};
  const auto cluster = Start("a:2,b:1");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ASSERT_EQ(links_.hosts["a"].ran.size(), 2U);
  ASSERT_EQ(links_.hosts["b"].ran.size(), 1U);
  EXPECT_EQ(links_.hosts["b"].started.size(), 1U);  // the pserver
  const std::string second = absl::StrJoin(links_.hosts["a"].ran[1], " ");
  EXPECT_THAT(
      second,
      AllOf(HasSubstr("worker.1.1 workerlog.1 0 "),
            HasSubstr("SLUICE_PROGRAM_DIR=/shared/log/program"),
            HasSubstr("SLUICE_SCHEDULER=a:7100"), HasSubstr("SLUICE_RANK=1"), HasSubstr(" RANK=1"),
            HasSubstr("LOCAL_RANK=1"), HasSubstr("WORLD_SIZE=3"), HasSubstr("MASTER_ADDR=a"),
            HasSubstr("MASTER_PORT=7200"), HasSubstr("python3 -u /shared/train.py --x 1")));
  EXPECT_THAT(absl::StrJoin(links_.hosts["b"].ran[0], " "),
              AllOf(HasSubstr(" RANK=2"), HasSubstr("LOCAL_RANK=0")));
  // What rank 0 prints is shown; its log and the others' is collected.
  EXPECT_EQ(links_.hosts["a"].ran[0][2], "1");
  links_.hosts["a"].says = {{0, "out", {"worker.0.1", "epoch 1"}},
                            {0, "log", {"worker.0.1", "hidden"}},
                            {0, "log", {"worker.1.1", "hidden"}}};
  EXPECT_TRUE((*cluster)->CheckProcesses().ok());
  EXPECT_THAT(notes_, testing::ElementsAre("epoch 1"));
}

TEST_F(HostClusterTest, APackageThatIsMissingOrOfAnotherVersionIsNamed) {
  program_ = WorkerProgram{"python3", "/shared/train.py", {}, "/shared/log/program"};
  links_.hosts["b"].package = "";
  links_.hosts["c"].package = "0.9";
  EXPECT_THAT(
      Start("a,b,c").status().message(),
      AllOf(HasSubstr("2 problems"),
            HasSubstr("b: --python=python3 does not run a program there: No module named"),
            HasSubstr("c: --python=python3 has another version of the package sluice, '0.9'")));
}

TEST_F(HostClusterTest, NothingStartsWhileAHostHasAProblem) {
  links_.hosts["b"].refuses = "Permission denied (publickey).";
  links_.hosts["c"].version = "2";
  const auto cluster = Start("a,b,c");
  EXPECT_EQ(cluster.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(cluster.status().message(),
              AllOf(HasSubstr("2 problems"), HasSubstr("b refuses the key"), HasSubstr("c: "),
                    Not(HasSubstr("\n  a"))));
  EXPECT_TRUE(links_.hosts["a"].started.empty());
  EXPECT_TRUE(links_.hosts["a"].ended);
}

TEST_F(HostClusterTest, PathsThatAreNotTheSameThereAreNamed) {
  const std::string folder = std::string(testing::TempDir()) + "/host_cluster_paths";
  ASSERT_TRUE(Env::Real()->MakeDirs(folder).ok());
  const std::string data = folder + "/data.csv";
  ASSERT_TRUE(Env::Real()->WriteFile(data, {"12345"}).ok());
  paths_.folders = {{"output_dir", folder}};
  paths_.files = {{"data.train_files", data}};
  links_.hosts["a"].files[data] = "5";
  links_.hosts["b"].files[data] = "4";
  links_.hosts["b"].shares = false;
  const auto cluster = Start("a,b,c");
  EXPECT_THAT(
      cluster.status().message(),
      AllOf(HasSubstr("3 problems"),
            HasSubstr(absl::StrCat("b: output_dir: ", folder, " is not the same folder")),
            HasSubstr(absl::StrCat("b: data.train_files: ", data, " has 4 bytes there and 5 here")),
            HasSubstr(absl::StrCat("c: data.train_files: ", data, " cannot be read there"))));
  // The file that the hosts look for goes again.
  EXPECT_EQ(Env::Real()->List(folder)->size(), 1U);
  links_.hosts.clear();
  links_.hosts["a"].files[data] = "5";
  EXPECT_TRUE(Start("a").ok());
}

TEST_F(HostClusterTest, ASilentHostIsLostAndWithItTheScheduler) {
  const auto cluster = Start("a,b");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  (*cluster)->Supervise([this](const std::string& line) { notes_.push_back(line); });
  links_.hosts["a"].silent = true;
  EXPECT_FALSE((*cluster)->SchedulerIsLost());
  clock_.Advance(absl::Seconds(kGuardPatienceS) + absl::Seconds(1));
  EXPECT_TRUE((*cluster)->SchedulerIsLost());
  EXPECT_THAT((*cluster)->CheckProcesses().message(), HasSubstr("sluice-scheduler rank 0 on a"));
  EXPECT_THAT(absl::StrJoin(notes_, "\n"), HasSubstr("host a is lost"));
}

TEST_F(HostClusterTest, ADaemonThatEndsWhileItStartsIsNamedWithTheEndOfItsLog) {
  links_.hosts["a"].scheduler_exit = 2;
  const auto cluster = Start("a,b");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_THAT((*cluster)->CheckProcesses().message(),
              AllOf(HasSubstr("sluice-scheduler rank 0 on a (pid 101) exited with code 2"),
                    HasSubstr("the disk is gone")));
}

}  // namespace
}  // namespace sluice::cli
