#include "common/security/audit_queue.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {
constexpr size_t kMaxWaiting = 256;
}  // namespace

AuditQueue::AuditQueue(AuditLog* log) : log_(log), thread_(1, kMaxWaiting) {}

void AuditQueue::Refused(AuditedCaller caller, std::string method, RefusalReason reason,
                         std::string detail) {
  if (log_ == nullptr) return;
  const bool added = thread_.Add([this, caller = std::move(caller), method = std::move(method),
                                  reason, detail = std::move(detail)] {
    const uint64_t unrecorded = unrecorded_.exchange(0, std::memory_order_relaxed);
    log_->Refused(caller, method, reason,
                  unrecorded == 0 ? detail
                                  : absl::StrCat(detail, " (", unrecorded,
                                                 " others have come too fast to be counted)"));
  });
  if (!added) unrecorded_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace sluice
