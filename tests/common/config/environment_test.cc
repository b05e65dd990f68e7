#include "common/config/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/config/job_config.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<std::string> kDaemons = {"sluice-scheduler", "sluice-pserver", "sluice-worker"};
const std::vector<std::string> kPrograms = {
    "launch",           "plan",           "up",           "submit", "status",  "logs",
    "cancel",           "scale",          "drain",        "down",   "predict", "data",
    "sluice-scheduler", "sluice-pserver", "sluice-worker"};

std::string RefusalOf(const std::string& name, const char* value,
                      const std::string& program = "launch") {
  setenv(name.c_str(), value, 1);
  const absl::Status status = CheckEnvironment(program);
  unsetenv(name.c_str());
  EXPECT_EQ(status.ok(), status.message().empty());
  return std::string(status.message());
}

bool IsRefused(const std::string& program, const std::string& variable) {
  return !RefusalOf("SLUICE_" + variable, "1", program).empty();
}

std::set<std::string> OfJobs() {
  std::set<std::string> names;
  for (const ShortOption& option : ShortOptions()) names.insert(absl::AsciiStrToUpper(option.name));
  return names;
}

const std::set<std::string> kOfDaemons = {
    "ADMIN_BIND", "ADVERTISE",   "ANY_LOCAL_USER", "BIND",       "CLUSTER", "DATA_ROOT",
    "INSECURE",   "OUTPUT_ROOT", "RANK",           "ROLE",       "DEVICE",  "LOG_DIR",
    "SCHEDULER",  "STANDBY",     "TLS_CA",         "TLS_CERT",   "TLS_KEY", "ETCD_CA",
    "ETCD_CERT",  "ETCD_KEY",    "TRANSPORT",      "PROGRAM_DIR"};

TEST(EnvironmentTest, VariablesThatAProgramReadsAreAccepted) {
  for (const char* name :
       {"SLUICE_BATCH_SIZE", "SLUICE_A_SYNC", "SLUICE_DEVICE", "SLUICE_FAULT_SEED", "SLUICE_ARROW",
        "SLUICE_TEST_BIN_DIR", "SLUICEFOO", "MY_SLUICE_FOO"}) {
    EXPECT_EQ(RefusalOf(name, "1"), "");
  }
  for (const char* name : {"SLUICE_RANK", "SLUICE_ADMIN_BIND"})
    EXPECT_EQ(RefusalOf(name, "1", "sluice-worker"), "");
}

TEST(EnvironmentTest, UnknownVariablesAreRefusedWithTheNearestNameOrAllNames) {
  for (const std::string& program : kPrograms) {
    EXPECT_THAT(RefusalOf("SLUICE_BATCHSIZE", "4", program),
                AllOf(HasSubstr("SLUICE_BATCHSIZE=4: "), HasSubstr("mean 'SLUICE_BATCH_SIZE'?")));
  }
  EXPECT_THAT(RefusalOf("SLUICE_RNAK", "0"), HasSubstr("mean 'SLUICE_RANK'?"));
  EXPECT_THAT(RefusalOf("SLUICE_FOO", "4"),
              AllOf(HasSubstr("SLUICE_A_SYNC, "), HasSubstr(", SLUICE_LOG_DIR, ")));
  EXPECT_THAT(RefusalOf("SLUICE_batch_size", "4"), HasSubstr("SLUICE_batch_size"));
}

TEST(EnvironmentTest, AnEmptyVariableCountsAsNotSet) {
  EXPECT_EQ(RefusalOf("SLUICE_FOO", ""), "");
  EXPECT_EQ(RefusalOf("SLUICE_RANK", ""), "");
}

// For every program and variable: a program may read, refuse or ignore a variable.
TEST(EnvironmentTest, NoProgramRefusesAVariableThatItReads) {
  for (const std::string& program : kPrograms) {
    for (const auto& names : {OfJobs(), kOfDaemons}) {
      for (const std::string& name : names) {
        EXPECT_FALSE(ReadsVariable(program, name) && IsRefused(program, name))
            << program << " " << name;
      }
    }
  }
}

TEST(EnvironmentTest, LaunchUpAndSubmitRefuseEveryVariableThatTheyDoNotRead) {
  const std::set<std::string> jobs = OfJobs();
  for (const char* program : {"launch", "up", "submit"}) {
    for (const auto& names : {jobs, kOfDaemons}) {
      for (const std::string& name : names)
        EXPECT_EQ(IsRefused(program, name), !ReadsVariable(program, name))
            << program << " " << name;
    }
  }
  for (const std::string& name : kOfDaemons) {
    const bool of_local_clusters = name == "DEVICE" || name == "TRANSPORT";
    EXPECT_EQ(IsRefused("launch", name), !of_local_clusters) << name;
    const bool of_up = name == "DATA_ROOT" || name == "OUTPUT_ROOT";
    EXPECT_EQ(IsRefused("up", name), !of_local_clusters && !of_up) << name;
    EXPECT_EQ(IsRefused("submit", name), !ReadsVariable("submit", name)) << name;
  }
  for (const std::string& name : jobs) {
    EXPECT_FALSE(IsRefused("launch", name)) << name;
    EXPECT_FALSE(IsRefused("submit", name)) << name;
    EXPECT_TRUE(IsRefused("up", name)) << name;
  }
}

TEST(EnvironmentTest, DaemonsRefuseVariablesOfJobsButNotOfOtherDaemons) {
  for (const std::string& daemon : kDaemons) {
    for (const std::string& name : OfJobs()) EXPECT_TRUE(IsRefused(daemon, name)) << name;
    for (const std::string& name : kOfDaemons) EXPECT_FALSE(IsRefused(daemon, name)) << name;
  }
  EXPECT_TRUE(ReadsVariable("sluice-worker", "DEVICE"));
  EXPECT_FALSE(ReadsVariable("sluice-pserver", "DEVICE"));
  EXPECT_FALSE(ReadsVariable("sluice-worker", "BIND"));
  EXPECT_FALSE(ReadsVariable("sluice-scheduler", "RANK"));
}

TEST(EnvironmentTest, OtherCommandsOnlyRefuseVariablesNamedLikeTheirFlags) {
  EXPECT_TRUE(IsRefused("predict", "WORKER_NUM"));
  EXPECT_TRUE(IsRefused("data", "THREADS"));
  EXPECT_TRUE(IsRefused("data", "SEED"));
  EXPECT_FALSE(IsRefused("data", "EPOCHS"));
  for (const char* command : {"status", "logs", "cancel", "down"}) {
    for (const auto& names : {OfJobs(), kOfDaemons}) {
      for (const std::string& name : names) EXPECT_FALSE(IsRefused(command, name)) << name;
    }
  }
}

TEST(EnvironmentTest, ARefusalNamesTheVariableTheCommandAndWhatToDo) {
  EXPECT_THAT(RefusalOf("SLUICE_RANK", "3", "launch"),
              AllOf(HasSubstr("SLUICE_RANK=3: "), HasSubstr("sluice launch"), HasSubstr("unset")));
  EXPECT_THAT(RefusalOf("SLUICE_BIND", "h:1", "up"), HasSubstr("--bind=h:1"));
  EXPECT_THAT(RefusalOf("SLUICE_WORKER_NUM", "4", "up"), HasSubstr("--worker_num=4"));
  EXPECT_THAT(RefusalOf("SLUICE_SCHEDULER", "h:1", "launch"), HasSubstr("sluice submit"));
  EXPECT_THAT(RefusalOf("SLUICE_EPOCHS", "2", "sluice-worker"),
              AllOf(HasSubstr("sluice-worker"), HasSubstr("sluice submit")));
}

// Rows of the head comment: "//   NAME, NAME: program, program". The tests run in the root of the
// tree.
std::map<std::string, std::set<std::string>> TableOfTheReference() {
  std::ifstream file("proto/config.proto");
  std::map<std::string, std::set<std::string>> readers;
  for (std::string line; std::getline(file, line) && !absl::StartsWith(line, "syntax");) {
    const std::vector<std::string> sides = absl::StrSplit(line, ": ");
    if (!absl::StartsWith(line, "//   ") || sides.size() != 2) continue;
    for (const absl::string_view name : absl::StrSplit(sides[0].substr(5), ", ")) {
      for (const absl::string_view program : absl::StrSplit(sides[1], ", "))
        readers[std::string(name)].insert(std::string(program));
    }
  }
  return readers;
}

TEST(EnvironmentTest, TheReferenceListsTheSameReadersAsTheCode) {
  const auto readers = TableOfTheReference();
  std::set<std::string> names = OfJobs();
  names.insert(kOfDaemons.begin(), kOfDaemons.end());
  EXPECT_EQ(readers.size(), names.size());
  for (const std::string& name : names) {
    ASSERT_EQ(readers.count(name), 1u) << name;
    for (const std::string& program : kPrograms) {
      EXPECT_EQ(readers.at(name).count(program) > 0, ReadsVariable(program, name))
          << name << " and " << program;
    }
  }
}

TEST(EnvironmentTest, AJobsVariableWithoutEffectIsNoted) {
  setenv("SLUICE_EPOCHS", "3", 1);
  for (const char* program : {"status", "logs", "down", "predict"}) {
    EXPECT_TRUE(CheckEnvironment(program).ok()) << program;
    EXPECT_THAT(NotesOnEnvironment(program),
                testing::ElementsAre(AllOf(HasSubstr("SLUICE_EPOCHS=3"), HasSubstr(program))));
  }
  EXPECT_THAT(NotesOnEnvironment("launch"), testing::IsEmpty());
  setenv("SLUICE_EPOCHS", "", 1);
  EXPECT_THAT(NotesOnEnvironment("status"), testing::IsEmpty());
  unsetenv("SLUICE_EPOCHS");
}

}  // namespace
}  // namespace sluice
