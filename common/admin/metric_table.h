// The kind, labels and meaning of each metric (metrics.inc). docs/metrics.md is made from them.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sluice {

struct MetricFacts {
  enum Kind { kGauge, kCounter };
  const char* name;  // may have <role>
  Kind kind;
  const char* labels;  // "job, table"; may be empty
  const char* help;
};

absl::Span<const MetricFacts> AllMetrics();

// REQUIRES: metrics.inc has it, of this kind; the process ends otherwise.
const MetricFacts& FactsOfMetric(absl::string_view name, MetricFacts::Kind kind);

// The text of docs/metrics.md.
std::string MetricsPage();

}  // namespace sluice
