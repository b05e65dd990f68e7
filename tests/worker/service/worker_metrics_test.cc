#include "worker/service/worker_metrics.h"

#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <string>

#include "gmock/gmock.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Text(const WorkerMetrics& metrics) {
  return prometheus::TextSerializer().Serialize(metrics.registry()->Collect());
}

TEST(WorkerMetricsTest, CpuTimeIsACounter) {
  WorkerMetrics metrics(ComputeDevice{});
  WorkerTotals totals;
  totals.cpu_seconds = 1.5;
  metrics.Set({}, totals);
  totals.cpu_seconds = 1.25;  // an older reading that arrives late
  metrics.Set({}, totals);
  EXPECT_THAT(Text(metrics), HasSubstr("# TYPE sluice_worker_cpu_seconds_total counter\n"));
  EXPECT_THAT(Text(metrics), HasSubstr("sluice_worker_cpu_seconds_total 1.5\n"));
}

TEST(WorkerMetricsTest, PlacesThatWereAskedHaveMetrics) {
  WorkerMetrics metrics(ComputeDevice{});
  PlaceUse stores, web;
  stores.requests = 7;
  stores.retries = 2;
  stores.bytes = 1000;
  stores.bytes_sent = 500;
  stores.nanoseconds = 2'500'000'000;
  const std::map<std::string, const PlaceUse*> places = {{"s3", &stores}, {"http", &web}};
  metrics.SetPlaces(places);
  metrics.SetPlaces(places);
  EXPECT_THAT(Text(metrics), HasSubstr("sluice_worker_place_requests_total{place=\"s3\"} 7\n"));
  EXPECT_THAT(Text(metrics), HasSubstr("sluice_worker_place_retries_total{place=\"s3\"} 2\n"));
  EXPECT_THAT(Text(metrics), HasSubstr("sluice_worker_place_bytes_total{place=\"s3\"} 1000\n"));
  EXPECT_THAT(Text(metrics), HasSubstr("sluice_worker_place_sent_bytes_total{place=\"s3\"} 500\n"));
  EXPECT_THAT(Text(metrics), HasSubstr("sluice_worker_place_seconds_total{place=\"s3\"} 2.5\n"));
  EXPECT_THAT(Text(metrics), Not(HasSubstr("place=\"http\"")));
}

TEST(WorkerMetricsTest, CudaDeviceHasMetrics) {
  ComputeDevice device;
  device.kind = ComputeDevice::kCuda;
  device.ordinal = 1;
  WorkerMetrics metrics(device);
  WorkerProgress progress;
  progress.set_job_id("job-1");
  progress.set_rank(3);
  DeviceUse* use = progress.mutable_device();
  use->set_busy_seconds(2.5);
  use->set_busy_share(0.75);
  use->set_bytes_in_use(1000);
  use->set_bytes_limit(2000);
  use->set_skipped_steps(3);
  use->set_loss_scale(128);
  use->set_steps_ahead(99);
  metrics.Set(progress, {});
  const std::string text = Text(metrics);
  const std::string labels = "{device=\"cuda:1\",job=\"job-1\",rank=\"3\"} ";
  for (const auto& [name, value] : std::map<std::string, std::string>{{"busy_seconds_total", "2.5"},
                                                                      {"busy_share", "0.75"},
                                                                      {"bytes", "1000"},
                                                                      {"limit_bytes", "2000"},
                                                                      {"skipped_steps_total", "3"},
                                                                      {"loss_scale", "128"},
                                                                      {"steps_ahead_total", "99"}})
    EXPECT_THAT(text, HasSubstr("sluice_worker_device_" + name + labels + value + "\n"));
  metrics.Set(WorkerProgress(), {});  // idle
  EXPECT_THAT(Text(metrics), Not(HasSubstr("sluice_worker_device_bytes{")));
}

TEST(WorkerMetricsTest, FiguresOfAJobHaveJobAndRankAndGoWithIt) {
  WorkerMetrics metrics((ComputeDevice()));
  WorkerProgress progress;
  progress.set_job_id("job-1");
  progress.set_rank(2);
  progress.set_epoch(1);
  progress.set_step(70);
  progress.mutable_stages()->set_compute(1.5);
  metrics.Set(progress, {});
  const std::string labels = "{job=\"job-1\",rank=\"2\"} ";
  EXPECT_THAT(Text(metrics), HasSubstr("sluice_worker_epoch" + labels + "1\n"));
  EXPECT_THAT(Text(metrics), HasSubstr("sluice_worker_steps_total" + labels + "70\n"));
  EXPECT_THAT(Text(metrics), HasSubstr("# TYPE sluice_worker_steps_total counter\n"));
  EXPECT_THAT(Text(metrics), HasSubstr("sluice_worker_stage_seconds_total{job=\"job-1\",rank=\"2\","
                                       "stage=\"compute\"} 1.5\n"));
  progress.set_job_id("job-2");
  progress.set_step(4);
  metrics.Set(progress, {});
  EXPECT_THAT(Text(metrics), Not(HasSubstr("job-1")));
  EXPECT_THAT(Text(metrics), HasSubstr("sluice_worker_steps_total{job=\"job-2\",rank=\"2\"} 4\n"));
}

TEST(WorkerMetricsTest, HotRowCountersAddUpOverJobsAndNeverFall) {
  WorkerMetrics metrics((ComputeDevice()));
  WorkerProgress progress;
  progress.set_job_id("job-1");
  HotRowUse* use = progress.mutable_hot_rows();
  use->set_hits(30);
  use->set_misses(10);
  use->set_staleness_sum(100);
  use->set_staleness_max(7);
  WorkerTotals totals;
  totals.hot_rows = *use;
  totals.hot_rows.set_hits(1030);  // of a job before
  totals.hot_rows.set_whole_batches(2);
  metrics.Set(progress, totals);
  metrics.Set(progress, WorkerTotals());  // an older reading, late
  const std::string text = Text(metrics);
  for (const char* line :
       {"hits_total 1030\n", "misses_total 10\n", "staleness_steps_total 100\n",
        "whole_batches_total 2\n", "staleness_mean{job=\"job-1\",rank=\"0\"} 2.5\n",
        "staleness_max{job=\"job-1\",rank=\"0\"} 7\n"})
    EXPECT_THAT(text, HasSubstr(std::string("\nsluice_worker_hot_row_") + line));
}

TEST(WorkerMetricsTest, CpuHasNoDeviceMetrics) {
  EXPECT_THAT(Text(WorkerMetrics(ComputeDevice())), Not(HasSubstr("sluice_worker_device")));
}

}  // namespace
}  // namespace sluice
