#include "common/transport/room_reports.h"

#include "absl/strings/str_cat.h"

namespace sluice {

std::string PeerOn(const AuditedCaller& caller) {
  return absl::StrCat(caller.role, " ", caller.name, "@",
                      caller.address.substr(0, caller.address.rfind(':')));
}

void RoomReports::NoRoom(const AuditedCaller& caller, const std::string& method,
                         const absl::Status& why) {
  Audit(caller, method, why);
  log_.Say(absl::StrCat(method, " of ", PeerOn(caller), ": ", why.message()));
}

void RoomReports::Cut(const AuditedCaller& caller, const std::string& method,
                      const absl::Status& why) {
  Audit(caller, method, why);
  if (options_.on_cut) options_.on_cut(caller.address, why);
}

void RoomReports::Audit(const AuditedCaller& caller, const std::string& method,
                        const absl::Status& why) {
  if (options_.audit == nullptr) return;
  options_.audit->Refused(caller, method, RefusalReason::kRoom, why.message());
}

}  // namespace sluice
