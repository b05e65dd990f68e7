#include "cli/plan/measured_run.h"

#include <httplib.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice::plan {
namespace {

// Generous: on a busy host a daemon answers late, which is no reason to throw the measurement away.
constexpr int kMetricsTimeoutSeconds = 20;

}  // namespace

absl::StatusOr<MetricsPage> MetricsPage::Fetch(const std::string& address,
                                               const TlsFiles& certificate) {
  const std::string host = absl::StrCat(certificate.given() ? "https://" : "http://", address);
  httplib::Client client(host, certificate.cert, certificate.key);
  client.enable_server_certificate_verification(false);
  client.set_connection_timeout(kMetricsTimeoutSeconds);
  client.set_read_timeout(kMetricsTimeoutSeconds);
  const auto page = client.Get("/metrics");
  if (page && page->status == 200) return MetricsPage(page->body);
  return absl::UnavailableError(absl::StrCat(
      "cannot read ", host, "/metrics: ",
      page ? absl::StrCat("HTTP status ", page->status) : httplib::to_string(page.error())));
}

// Format of a line: name{label="value",...} number
MetricsPage::MetricsPage(const std::string& text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    // Comments name the type and the meaning of a metric.
    if (line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    double value = 0;
    if (space == line.npos || !absl::SimpleAtod(line.substr(space + 1), &value)) continue;
    const absl::string_view series = line.substr(0, space);
    const size_t brace = series.find('{');
    const std::string labels(brace == series.npos ? "" : series.substr(brace));
    series_.insert({std::string(series.substr(0, brace)), {labels, value}});
  }
}

double MetricsPage::Sum(const std::string& name) const {
  double sum = 0;
  const auto [begin, end] = series_.equal_range(name);
  for (auto it = begin; it != end; ++it) sum += it->second.second;
  return sum;
}

std::map<std::string, double> MetricsPage::By(const std::string& name,
                                              const std::string& label) const {
  std::map<std::string, double> values;
  const std::string key = absl::StrCat(label, "=\"");
  const auto [begin, end] = series_.equal_range(name);
  for (auto it = begin; it != end; ++it) {
    const std::string& labels = it->second.first;
    size_t at = labels.find(key);
    // The label must not be the end of another one's name.
    while (at != labels.npos && at > 0 && labels[at - 1] != '{' && labels[at - 1] != ',')
      at = labels.find(key, at + 1);
    if (at == labels.npos) continue;
    at += key.size();
    values[labels.substr(at, labels.find('"', at) - at)] += it->second.second;
  }
  return values;
}

void AddWorkerPage(const MetricsPage& page, JobCounters* counters) {
  Reading& reading = counters->reading;
  reading.steps += page.Sum("sluice_worker_steps_total");
  reading.examples += page.Sum("sluice_worker_examples_total");
  reading.worker_cpu_s += page.Sum("sluice_worker_cpu_seconds_total");
  counters->epoch = std::max(counters->epoch, page.Sum("sluice_worker_epoch"));
  const auto stages = page.By("sluice_worker_stage_seconds_total", "stage");
  for (const char* stage : {"pull_wait", "push_wait"}) {
    const auto it = stages.find(stage);
    if (it != stages.end()) reading.wait_s += it->second;
  }
}

void AddPserverPage(const MetricsPage& page, JobCounters* counters) {
  Reading& reading = counters->reading;
  TableMemory& memory = counters->memory;
  reading.pserver_cpu_s += page.Sum("sluice_pserver_cpu_seconds_total");
  reading.pushed_bytes += page.Sum("sluice_pserver_bytes_received_total");
  reading.pulled_bytes += page.Sum("sluice_pserver_bytes_sent_total");
  counters->shm_streams += page.Sum("sluice_pserver_shm_streams");
  // A pserver's memory without its tables is what every further pserver costs.
  double tables = 0;
  const auto rows = page.By("sluice_pserver_rows", "table");
  for (const auto& [table, bytes] : page.By("sluice_pserver_table_bytes", "table")) {
    // Only sparse tables have a count of rows.
    (rows.count(table) > 0 ? memory.row_bytes : memory.dense_bytes) += bytes;
    tables += bytes;
  }
  memory.rows += page.Sum("sluice_pserver_rows");
  memory.process += std::max(0.0, page.Sum("sluice_pserver_memory_bytes") - tables);
  reading.rows = memory.rows;
}

void MeasuredRun::Add(double at_s, JobCounters counters) {
  counters.reading.at_s = at_s;
  readings.push_back(counters.reading);
  // Later passes over the sample make no new rows, so their growth says nothing about more data.
  if (counters.epoch <= 1) first_pass.push_back(counters.reading);
  memory = counters.memory;
  shared_memory = counters.shm_streams > 0;
}

}  // namespace sluice::plan
