#include "cli/hosts/host_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

HostFacts Good(const std::string& name) {
  HostFacts facts;
  facts.name = name;
  facts.version = "1";
  facts.free_bytes = kLeastFreeBytes;
  facts.folder = "/tmp/x";
  return facts;
}

TEST(HostChecksTest, GoodHostsHaveNothingToReport) {
  const HostReport report = ReportOnHosts({Good("a"), Good("b")}, {"1", true});
  EXPECT_THAT(report.errors, IsEmpty());
  EXPECT_THAT(report.warnings, IsEmpty());
}

TEST(HostChecksTest, AllProblemsAreNamedByHost) {
  std::vector<HostFacts> hosts;
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) hosts.push_back(Good(name));
  hosts[0].problem = "cannot be reached";
  hosts[1].version = "2";
  hosts[2].broken_programs = {"sluice-worker does not run: no libfoo.so"};
  hosts[3].clock_ahead = -absl::Seconds(31);
  hosts[4].free_bytes = kLeastFreeBytes - 1;
  hosts[5].path_problems = {"output_dir: not the same", "data.train_files: missing"};
  EXPECT_THAT(ReportOnHosts(hosts, {"1", true}).errors,
              ElementsAre("a cannot be reached", AllOf(HasSubstr("b: "), HasSubstr("'2'")),
                          AllOf(HasSubstr("c: "), HasSubstr("libfoo.so"), HasSubstr("--ship")),
                          AllOf(HasSubstr("d: "), HasSubstr("31 s behind")),
                          AllOf(HasSubstr("e: "), HasSubstr("/tmp/x")), HasSubstr("f: output_dir"),
                          HasSubstr("f: data.train_files")));
}

TEST(HostChecksTest, AWrongClockIsAWarningWithoutTls) {
  std::vector<HostFacts> hosts = {Good("a"), Good("b")};
  hosts[0].clock_ahead = absl::Seconds(30);
  hosts[1].clock_ahead = absl::Seconds(40);
  const HostReport report = ReportOnHosts(hosts, {"1", false});
  EXPECT_THAT(report.errors, IsEmpty());
  EXPECT_THAT(report.warnings, ElementsAre(AllOf(HasSubstr("b: "), HasSubstr("40 s ahead"))));
}

TEST(HostChecksTest, AJobsPathsAreThoseThatAreFiles) {
  const std::string folder = std::string(testing::TempDir()) + "/host_checks";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/a.csv") << "1\n";
  JobConfig job;
  job.set_output_dir(folder + "/new/run");
  job.mutable_data()->add_train_files(folder + "/*.csv");
  job.mutable_data()->add_eval_files("s3://bucket/b.csv");
  const SharedPaths paths = PathsOfJob(job, "output");
  ASSERT_EQ(paths.folders.size(), 1U);
  EXPECT_EQ(paths.folders[0].path, folder);
  ASSERT_EQ(paths.files.size(), 1U);
  EXPECT_EQ(paths.files[0].path, folder + "/a.csv");
  EXPECT_FALSE(paths.relative);
  job.clear_output_dir();
  EXPECT_TRUE(PathsOfJob(job, "output").relative);
}

}  // namespace
}  // namespace sluice::cli
