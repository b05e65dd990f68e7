#include "common/admin/audit_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using Counters = prometheus::Family<prometheus::Counter>;

Counters* NewCounters(const AuditLog& log, const char* what, const char* help,
                      prometheus::Registry* registry) {
  return &prometheus::BuildCounter()
              .Name(absl::StrCat("sluice_", log.role(), "_", what, "_total"))
              .Help(help)
              .Register(*registry);
}

void RaiseTo(uint64_t value, prometheus::Counter* counter) {
  counter->Increment(static_cast<double>(value) - counter->Value());
}

}  // namespace

AuditMetrics::AuditMetrics(AuditLog* log, prometheus::Registry* registry)
    : log_(log),
      refusals_(
          NewCounters(*log, "refusals", "Refused calls, page requests and handshakes", registry)),
      actions_(log->role() == "scheduler"
                   ? NewCounters(*log, "actions", "Orders of operators, whatever their outcome",
                                 registry)
                   : nullptr),
      lost_lines_(&NewCounters(*log, "audit_lines_lost",
                               "Lines of the audit log that could not be written", registry)
                       ->Add({})) {}

void AuditMetrics::Update() {
  const AuditLog::Counts counts = log_->counts();
  MutexLock lock(&mutex_);
  for (const auto& [key, n] : counts.refusals)
    RaiseTo(n, &refusals_->Add({{"method", key.first}, {"reason", key.second}}));
  if (actions_ != nullptr) {
    for (const auto& [action, n] : counts.actions) RaiseTo(n, &actions_->Add({{"action", action}}));
  }
  RaiseTo(counts.lost_lines, lost_lines_);
}

}  // namespace sluice
