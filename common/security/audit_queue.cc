#include "common/security/audit_queue.h"

#include <utility>

namespace sluice {
namespace {
constexpr size_t kMaxWaiting = 256;
}  // namespace

AuditQueue::AuditQueue(AuditLog* log) : log_(log), thread_(1, kMaxWaiting) {}

void AuditQueue::Refused(const AuditedCaller& caller, const std::string& method,
                         RefusalReason reason, std::string detail) {
  if (log_ == nullptr) return;
  const bool added = thread_.Add([log = log_, caller, method, reason, detail = std::move(detail)] {
    log->Refused(caller, method, reason, detail);
  });
  if (!added) log_->LeftOut(caller, method, reason);
}

}  // namespace sluice
