#include "server/service/pserver_metrics.h"

#include <gmock/gmock.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <string>

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PserverMetricsTest : public testing::Test {
 protected:
  PserverMetricsTest() {
    job_.set_job_id("job-1");
    job_.set_frames_applied(7);
    TableStatus* table = job_.add_tables();
    table->set_name("emb");
    table->set_kind(TableConfig::SPARSE);
    table->set_rows(12);
    table->set_bytes(1200);
    table->set_reserved_bytes(4096);
  }
  std::string Text() {
    return prometheus::TextSerializer().Serialize(metrics_.registry()->Collect());
  }

  PserverMetrics metrics_;
  DataPlaneCounters counters_;
  StreamCounts streams_;
  HostedJob job_;
};

TEST_F(PserverMetricsTest, MonotonicFiguresAreCounters) {
  counters_.bytes_in = 100;
  *counters_.bytes_out = 10;
  metrics_.Update({job_}, counters_, streams_, 1, 0.5);
  counters_.bytes_in = 150;
  *counters_.bytes_out = 30;
  counters_.streams_cut = 3;
  job_.set_frames_applied(9);
  metrics_.Update({job_}, counters_, streams_, 2, 0.75);
  const std::string text = Text();
  for (const char* name :
       {"frames_applied", "staleness_sum", "slowest_wait_seconds", "messages_received",
        "bytes_received", "bytes_sent", "cpu_seconds", "requests_refused", "streams_cut"}) {
    EXPECT_THAT(text, HasSubstr(std::string("# TYPE sluice_pserver_") + name + "_total counter\n"));
  }
  EXPECT_THAT(text, Not(HasSubstr("_total gauge")));
  EXPECT_THAT(text, HasSubstr("sluice_pserver_frames_applied_total{job=\"job-1\"} 9\n"));
  EXPECT_THAT(text, HasSubstr("sluice_pserver_bytes_received_total 150\n"));
  EXPECT_THAT(text, HasSubstr("sluice_pserver_streams_cut_total 3\n"));
  EXPECT_THAT(text, HasSubstr("sluice_pserver_bytes_sent_total 30\n"));
  EXPECT_THAT(text, HasSubstr("sluice_pserver_cpu_seconds_total 0.75\n"));
  EXPECT_THAT(text, HasSubstr("sluice_pserver_memory_bytes 2\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE sluice_pserver_rows gauge\n"));
  EXPECT_THAT(text, HasSubstr("sluice_pserver_rows{job=\"job-1\",table=\"emb\"} 12\n"));
}

TEST_F(PserverMetricsTest, StreamsThroughSharedMemoryAreCountedByThemselves) {
  counters_.streams = 3;
  streams_.set_shm(2);
  metrics_.Update({job_}, counters_, streams_, 1);
  EXPECT_THAT(Text(), HasSubstr("sluice_pserver_streams 3\n"));
  EXPECT_THAT(Text(), HasSubstr("sluice_pserver_shm_streams 2\n"));
}

TEST_F(PserverMetricsTest, MemoryInUseAndReservedMemoryAreTwoSeries) {
  metrics_.Update({job_}, counters_, streams_, 1);
  const std::string labels = "{job=\"job-1\",table=\"emb\"}";
  EXPECT_THAT(Text(), HasSubstr("sluice_pserver_table_bytes" + labels + " 1200\n"));
  EXPECT_THAT(Text(), HasSubstr("sluice_pserver_table_reserved_bytes" + labels + " 4096\n"));
}

TEST_F(PserverMetricsTest, RowsThatComeAndGoAreCounted) {
  metrics_.Update({job_}, counters_, streams_, 1);
  EXPECT_THAT(Text(), Not(HasSubstr("sluice_pserver_row_limit{")));
  TableStatus* const table = job_.mutable_tables(0);
  table->set_row_limit(20);
  table->mutable_turnover()->set_admitted(5);
  table->mutable_turnover()->set_refused(4);
  table->mutable_turnover()->set_expired(3);
  table->mutable_turnover()->set_evicted(2);
  table->mutable_turnover()->set_deleted(1);
  metrics_.Update({job_}, counters_, streams_, 1);
  const std::string text = Text(), of = "{job=\"job-1\",table=\"emb\"} ";
  EXPECT_THAT(text, HasSubstr("sluice_pserver_row_limit" + of + "20\n"));
  const std::string rows = "sluice_pserver_rows_";
  EXPECT_THAT(text, HasSubstr(rows + "admitted_total" + of + "5\n"));
  EXPECT_THAT(text, HasSubstr(rows + "refused_total" + of + "4\n"));
  EXPECT_THAT(text, HasSubstr(rows + "expired_total" + of + "3\n"));
  EXPECT_THAT(text, HasSubstr(rows + "evicted_total" + of + "2\n"));
  EXPECT_THAT(text, HasSubstr(rows + "deleted_total" + of + "1\n"));
  metrics_.Update({}, counters_, streams_, 1);
  EXPECT_THAT(Text(), Not(HasSubstr("table=\"emb\"")));
}

TEST_F(PserverMetricsTest, SeriesOfAJobThatIsGoneDisappear) {
  metrics_.Update({job_}, counters_, streams_, 1);
  metrics_.Update({}, counters_, streams_, 1);
  EXPECT_THAT(Text(), Not(HasSubstr("job-1")));
  metrics_.Update({job_}, counters_, streams_, 1);
  EXPECT_THAT(Text(), HasSubstr("sluice_pserver_frames_applied_total{job=\"job-1\"} 7\n"));
}

TEST_F(PserverMetricsTest, ReopenedJobCountsFromZero) {
  metrics_.Update({job_}, counters_, streams_, 1);
  job_.set_frames_applied(2);
  metrics_.Update({job_}, counters_, streams_, 1);
  EXPECT_THAT(Text(), HasSubstr("sluice_pserver_frames_applied_total{job=\"job-1\"} 2\n"));
}

TEST_F(PserverMetricsTest, ACheckpointHasSeriesUntilItIsOver) {
  metrics_.Update({job_}, counters_, streams_, 1);
  EXPECT_THAT(Text(), Not(HasSubstr("checkpoint_failed{")));
  job_.mutable_cut()->set_state(HostedCut::WRITING);
  job_.mutable_cut()->set_written_bytes(500);
  job_.mutable_cut()->set_preimage_bytes(80);
  metrics_.Update({job_}, counters_, streams_, 1);
  const std::string at = "sluice_pserver_checkpoint_", labels = "{job=\"job-1\"} ";
  EXPECT_THAT(Text(), testing::AllOf(HasSubstr(at + "written_bytes" + labels + "500\n"),
                                     HasSubstr(at + "preimage_bytes" + labels + "80\n"),
                                     HasSubstr(at + "failed" + labels + "0\n")));
  job_.mutable_cut()->set_state(HostedCut::FAILED);
  metrics_.Update({job_}, counters_, streams_, 1);
  EXPECT_THAT(Text(), HasSubstr(at + "failed" + labels + "1\n"));
  job_.clear_cut();
  metrics_.Update({job_}, counters_, streams_, 1);
  EXPECT_THAT(Text(), Not(HasSubstr("checkpoint_failed{")));
}

TEST_F(PserverMetricsTest, AJobWithReplicasShowsHowFarTheyAre) {
  metrics_.Update({job_}, counters_, streams_, 1);
  EXPECT_THAT(Text(), Not(HasSubstr("replication_complete{")));
  job_.mutable_replication()->set_complete(true);
  job_.mutable_replication()->set_updates_behind(3);
  job_.add_copies()->set_bytes(70);
  metrics_.Update({job_}, counters_, streams_, 1);
  const std::string labels = "{job=\"job-1\"} ";
  EXPECT_THAT(Text(), testing::AllOf(
                          HasSubstr("sluice_pserver_replication_complete" + labels + "1\n"),
                          HasSubstr("sluice_pserver_replication_updates_behind" + labels + "3\n"),
                          HasSubstr("sluice_pserver_copies_bytes" + labels + "70\n")));
}

}  // namespace
}  // namespace sluice
