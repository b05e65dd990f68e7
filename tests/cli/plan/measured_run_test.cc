#include "cli/plan/measured_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

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

MetricsPage Worker(int step, int epoch) {
  return MetricsPage("sluice_worker_steps_total " + std::to_string(step) +
                     "\nsluice_worker_examples_total " + std::to_string(100 * step) +
                     "\nsluice_worker_cpu_seconds_total 1.5\nsluice_worker_epoch " +
                     std::to_string(epoch) +
                     "\nsluice_worker_stage_seconds_total{stage=\"pull_wait\"} 0.25"
                     "\nsluice_worker_stage_seconds_total{stage=\"push_wait\"} 0.5"
                     "\nsluice_worker_stage_seconds_total{stage=\"compute\"} 7\n");
}

// A sparse table of 3 rows and a dense one of 5 values.
MetricsPage Pserver(int shm_streams) {
  return MetricsPage(
      "sluice_pserver_cpu_seconds_total 0.5\nsluice_pserver_bytes_received_total 1000\n"
      "sluice_pserver_bytes_sent_total 2000\nsluice_pserver_memory_bytes 10000\n"
      "sluice_pserver_rows{table=\"s\"} 3\nsluice_pserver_dense_elements{table=\"d\"} 5\n"
      "sluice_pserver_table_bytes{table=\"s\"} 300\nsluice_pserver_table_bytes{table=\"d\"} 20\n"
      "sluice_pserver_shm_streams " +
      std::to_string(shm_streams) + "\n");
}

JobCounters Counters(int pservers, int shm_streams, int step = 7, int epoch = 1) {
  JobCounters counters;
  AddWorkerPage(Worker(step, epoch), &counters);
  for (int i = 0; i < pservers; ++i) AddPserverPage(Pserver(shm_streams), &counters);
  return counters;
}

TEST(MeasuredRunTest, CountersAreSumsOverTheDaemons) {
  const JobCounters c = Counters(2, 0);
  EXPECT_EQ(c.reading.steps, 7);
  EXPECT_EQ(c.reading.examples, 700);
  EXPECT_EQ(c.reading.wait_s, 0.75);
  EXPECT_EQ(c.reading.worker_cpu_s, 1.5);
  EXPECT_EQ(c.reading.pserver_cpu_s, 1);
  EXPECT_EQ(c.reading.pushed_bytes, 2000);
  EXPECT_EQ(c.reading.pulled_bytes, 4000);
  EXPECT_EQ(c.reading.rows, 6);
  EXPECT_EQ(c.memory.row_bytes, 600);
  EXPECT_EQ(c.memory.dense_bytes, 40);
  EXPECT_EQ(c.memory.process, 2 * (10000 - 320));
}

TEST(MeasuredRunTest, KnowsWhetherSharedMemoryCarriedTheData) {
  MeasuredRun run;
  run.Add(1, Counters(2, 0));
  EXPECT_FALSE(run.shared_memory);
  run.Add(2, Counters(2, 1));
  EXPECT_TRUE(run.shared_memory);
}

TEST(MeasuredRunTest, TheFirstPassEndsWithTheFirstEpoch) {
  MeasuredRun run;
  run.Add(1, Counters(1, 0, 7, 1));
  run.Add(2, Counters(1, 0, 9, 2));
  ASSERT_EQ(run.readings.size(), 2u);
  ASSERT_EQ(run.first_pass.size(), 1u);
  EXPECT_EQ(run.readings[1].at_s, 2);
  EXPECT_EQ(run.readings[1].steps, 9);
  EXPECT_EQ(run.first_pass[0].steps, 7);
}

}  // namespace
}  // namespace sluice::plan
