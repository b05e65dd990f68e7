#include "server/report_bound.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

HostedJob WithoutContents(const HostedJob& report, size_t bytes, size_t max_bytes) {
  HostedJob bounded;
  bounded.set_job_id(report.job_id());
  bounded.set_instance(report.instance());
  bounded.set_generation(report.generation());
  bounded.set_error(absl::StrCat("what this pserver reports of the job takes ", bytes,
                                 " bytes, and all jobs of a pserver ", "may take ", max_bytes,
                                 "; use fewer shards (num_shards) or more pservers"));
  return bounded;
}

}  // namespace

void BoundReports(size_t max_bytes, std::vector<HostedJob>* reports) {
  std::vector<std::pair<size_t, HostedJob*>> sizes;
  size_t total = 0;
  for (HostedJob& report : *reports) {
    sizes.emplace_back(report.ByteSizeLong(), &report);
    total += sizes.back().first;
  }
  if (total <= max_bytes) return;
  std::sort(sizes.begin(), sizes.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [bytes, report] : sizes) {
    if (total <= max_bytes) return;
    *report = WithoutContents(*report, bytes, max_bytes);
    total += report->ByteSizeLong();
    total -= bytes;
  }
}

}  // namespace sluice
