#include "cli/plan/metrics_page.h"

#include <gmock/gmock.h>

#include "common/admin/admin_server.h"

namespace sluice::plan {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr char kText[] =
    "# HELP rows Rows\n# TYPE rows gauge\n"
    "rows{job=\"j\",table=\"a\"} 3\nrows{job=\"j\",table=\"b\"} 4.5\n"
    "rows_of_another 7\nsum_total 1e+06\nbroken\nbroken{ x\n";

TEST(MetricsPageTest, SumsTheSeriesOfAMetric) {
  const MetricsPage page(kText);
  EXPECT_EQ(page.Sum("rows"), 7.5);
  EXPECT_EQ(page.Sum("rows_of_another"), 7);
  EXPECT_EQ(page.Sum("sum_total"), 1e6);
  EXPECT_EQ(page.Sum("row"), 0);
}

TEST(MetricsPageTest, SeparatesByALabel) {
  const MetricsPage page(kText);
  EXPECT_THAT(page.By("rows", "table"), ElementsAre(Pair("a", 3), Pair("b", 4.5)));
  EXPECT_THAT(page.By("rows", "job"), ElementsAre(Pair("j", 7.5)));
  EXPECT_THAT(page.By("rows", "able"), ElementsAre());
}

TEST(MetricsPageTest, ReadsADaemonsPage) {
  AdminServer::Options options;
  auto server = AdminServer::Start(std::move(options));
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_TRUE(MetricsPage::Fetch((*server)->address()).ok());
  const std::string address = (*server)->address();
  server->reset();
  EXPECT_EQ(MetricsPage::Fetch(address).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sluice::plan
