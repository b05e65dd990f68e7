#include "common/admin/metric_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// The tests run in the top folder of the sources.
TEST(MetricTableTest, TheDocumentIsMadeFromTheTable) {
  std::ifstream in("docs/metrics.md");
  const std::string page((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  EXPECT_EQ(page, MetricsPage()) << "make docs/metrics.md what MetricsPage() returns";
}

TEST(MetricTableTest, NamesFollowTheRulesAndAreThereOnce) {
  std::set<std::string> names;
  for (const MetricFacts& metric : AllMetrics()) {
    EXPECT_TRUE(names.insert(metric.name).second) << metric.name;
    EXPECT_EQ(absl::EndsWith(metric.name, "_total"), metric.kind == MetricFacts::kCounter)
        << metric.name;
    EXPECT_TRUE(absl::StartsWith(metric.name, "sluice_")) << metric.name;
    EXPECT_FALSE(absl::StrContains(metric.help, "|")) << metric.name;
    EXPECT_NE(std::string(metric.help), "") << metric.name;
  }
}

TEST(MetricTableTest, AMetricOfEachRoleIsFoundByItsName) {
  for (const char* role : {"scheduler", "pserver", "worker"}) {
    const MetricFacts& facts =
        FactsOfMetric(absl::StrCat("sluice_", role, "_refusals_total"), MetricFacts::kCounter);
    EXPECT_STREQ(facts.name, "sluice_<role>_refusals_total");
  }
  EXPECT_STREQ(FactsOfMetric("sluice_pserver_rows", MetricFacts::kGauge).labels, "job, table");
}

TEST(MetricTableDeathTest, AnUnlistedMetricEndsTheProcess) {
  EXPECT_DEATH(FactsOfMetric("sluice_pserver_nothing", MetricFacts::kGauge),
               "sluice_pserver_nothing");
  EXPECT_DEATH(FactsOfMetric("sluice_pserver_rows", MetricFacts::kCounter), "sluice_pserver_rows");
  EXPECT_DEATH(FactsOfMetric("sluice_cli_refusals_total", MetricFacts::kCounter), "cli");
}

}  // namespace
}  // namespace sluice
