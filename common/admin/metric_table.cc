#include "common/admin/metric_table.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace sluice {
namespace {

constexpr auto kGauge = MetricFacts::kGauge;
constexpr auto kCounter = MetricFacts::kCounter;
constexpr MetricFacts kMetrics[] = {
#define METRIC(name, kind, labels, help) {name, kind, labels, help},
#include "common/admin/metrics.inc"
#undef METRIC
};

// Whether a name is that of the table, with any role for <role>.
bool IsNamed(absl::string_view known, absl::string_view name) {
  if (known == name) return true;
  constexpr absl::string_view kBefore = "sluice_<role>_";
  if (!absl::ConsumePrefix(&known, kBefore) || !absl::ConsumePrefix(&name, "sluice_")) return false;
  for (const absl::string_view role : {"scheduler_", "pserver_", "worker_"}) {
    absl::string_view rest = name;
    if (absl::ConsumePrefix(&rest, role) && rest == known) return true;
  }
  return false;
}

}  // namespace

absl::Span<const MetricFacts> AllMetrics() { return kMetrics; }

const MetricFacts& FactsOfMetric(absl::string_view name, MetricFacts::Kind kind) {
  for (const MetricFacts& metric : kMetrics) {
    if (metric.kind == kind && IsNamed(metric.name, name)) return metric;
  }
  std::fprintf(stderr, "metrics.inc has no such metric: %s\n", std::string(name).c_str());
  std::abort();
}

std::string MetricsPage() {
  std::string page =
      "# Metrics\n\n"
      "Each daemon serves its metrics at `/metrics` of its admin port, in Prometheus' text format. "
      "Counters end in `_total`; the\nothers are gauges. A series with the label `job` goes when "
      "the "
      "job is over. A job's counter begins anew when the job goes\nback to a checkpoint. `<role>` "
      "is "
      "`scheduler`, `pserver` or `worker`.\n\n"
      "`deploy/prometheus/alerts.yml` has alerts, and `deploy/grafana/sluice.json` a dashboard for "
      "Grafana.\n\n"
      "This page is made from `common/admin/metrics.inc`; `metric_table_test` compares them.\n\n"
      "| metric | labels | meaning |\n|---|---|---|\n";
  for (const MetricFacts& metric : kMetrics) {
    const bool labelled = metric.labels[0] != '\0';
    absl::StrAppend(&page, "| `", metric.name, "` | ", metric.labels, labelled ? " | " : "| ",
                    metric.help, " |\n");
  }
  return page;
}

}  // namespace sluice
