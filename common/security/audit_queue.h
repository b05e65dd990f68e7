// Writes refusals to an audit log on a thread of its own, for callers that must not wait for a
// disk.
//
// At most 256 refusals wait. Those that come faster are counted, and get no line.
//
// Thread safety: safe from any thread.
#pragma once

#include <string>

#include "common/base/task_threads.h"
#include "common/security/audit_log.h"

namespace sluice {

class AuditQueue {
 public:
  // `log` may be null: then nothing is recorded. Outlives the queue.
  explicit AuditQueue(AuditLog* log);
  // Writes the refusals that wait.
  ~AuditQueue() = default;

  // See AuditLog::Refused.
  void Refused(const AuditedCaller& caller, const std::string& method, RefusalReason reason,
               std::string detail);

 private:
  AuditLog* const log_;
  TaskThreads thread_;
};

}  // namespace sluice
