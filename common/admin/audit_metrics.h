// The counts of an AuditLog as Prometheus metrics:
//
//   sluice_<role>_refusals_total{method,reason}
//   sluice_<role>_actions_total{action}       the scheduler only: others take no orders
//   sluice_<role>_audit_lines_lost_total
//
// Thread safety: safe from any thread.
#pragma once

#include "common/base/mutex.h"
#include "common/security/audit_log.h"

namespace prometheus {
class Counter;
template <class T>
class Family;
class Registry;
}  // namespace prometheus

namespace sluice {

class AuditMetrics {
 public:
  // Both outlive this.
  AuditMetrics(AuditLog* log, prometheus::Registry* registry);

  // Sets the metrics to the log's counts.
  void Update();

 private:
  AuditLog* const log_;
  Mutex mutex_;  // a counter is raised by the difference to its value
  prometheus::Family<prometheus::Counter>* const refusals_ ABSL_PT_GUARDED_BY(mutex_);
  prometheus::Family<prometheus::Counter>* const actions_
      ABSL_PT_GUARDED_BY(mutex_);  // may be null
  prometheus::Counter* const lost_lines_ ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace sluice
