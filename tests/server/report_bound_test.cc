#include "server/report_bound.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

HostedJob Report(const std::string& job_id, size_t bytes) {
  HostedJob report;
  report.set_job_id(job_id);
  report.set_instance(7);
  report.set_generation(3);
  report.set_rows(5);
  report.add_ranks()->mutable_totals()->set_net_state(std::string(bytes, 's'));
  return report;
}

size_t BytesOf(const std::vector<HostedJob>& reports) {
  size_t bytes = 0;
  for (const HostedJob& report : reports) bytes += report.ByteSizeLong();
  return bytes;
}

TEST(ReportBoundTest, ReportsThatFitStayAsTheyAre) {
  std::vector<HostedJob> reports = {Report("a", 1000), Report("b", 2000)};
  const std::vector<HostedJob> before = reports;
  BoundReports(BytesOf(reports), &reports);
  for (size_t i = 0; i < reports.size(); ++i)
    EXPECT_EQ(reports[i].SerializeAsString(), before[i].SerializeAsString());
}

TEST(ReportBoundTest, OnlyTheLargestJobsLoseTheirReports) {
  std::vector<HostedJob> reports = {Report("small", 1000), Report("huge", 100'000),
                                    Report("large", 50'000), Report("other", 1000)};
  constexpr size_t kMost = 60'000;
  BoundReports(kMost, &reports);
  EXPECT_LE(BytesOf(reports), kMost);
  for (const HostedJob& report : reports) {
    const bool bounded = report.job_id() == "huge";
    EXPECT_EQ(report.error().empty(), !bounded) << report.job_id();
    EXPECT_EQ(report.rows(), bounded ? 0u : 5u);
    EXPECT_EQ(report.instance(), 7u);
    EXPECT_EQ(report.generation(), 3u);
  }
  BoundReports(10'000, &reports);
  EXPECT_LE(BytesOf(reports), 10'000u);
  EXPECT_FALSE(reports[2].error().empty()) << "the next largest one goes too";
  EXPECT_TRUE(reports[0].error().empty());
}

}  // namespace
}  // namespace sluice
