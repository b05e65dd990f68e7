#include "common/transport/room_reports.h"

#include "absl/strings/str_cat.h"
#include "common/security/peer_host.h"

namespace sluice {

std::string PeerOn(const AuditedCaller& caller) {
  return absl::StrCat(caller.role, " ", caller.name, "@", HostOfAddress(caller.address));
}

std::string CertificateOf(const AuditedCaller& caller) {
  if (caller.role == "none" || caller.role == "unverified") return "";
  return absl::StrCat(caller.role, " ", caller.name);
}

void RoomReports::NoRoom(const AuditedCaller& caller, const std::string& method,
                         const absl::Status& why) {
  Audit(caller, method, RefusalReason::kRoom, why);
  log_.Say(absl::StrCat(method, " of ", PeerOn(caller), ": ", why.message()));
}

void RoomReports::Cut(const AuditedCaller& caller, const std::string& method,
                      const absl::Status& why) {
  Audit(caller, method, RefusalReason::kRoom, why);
  cut_log_.Say(absl::StrCat("ended ", method, " of ", caller.address, ": ", why.message()));
  if (options_.on_cut) options_.on_cut(caller.address, why);
}

void RoomReports::Fault(const AuditedCaller& caller, const std::string& method,
                        const absl::Status& why) {
  Audit(caller, method, RefusalReason::kInvalid, why);
}

void RoomReports::Audit(const AuditedCaller& caller, const std::string& method,
                        RefusalReason reason, const absl::Status& why) {
  if (options_.audit != nullptr) options_.audit->Refused(caller, method, Because(reason, why));
}

}  // namespace sluice
