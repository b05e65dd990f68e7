#include "common/security/local_user_gate.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/address.h"
#include "common/security/client_owner.h"
#include "common/security/refusal_reason.h"

namespace sluice {
namespace {

constexpr char kFix[] =
    "; run both as one user, use TLS (--tls), or serve all users of the host with --any_local_user";

bool ServesOneUser(const LocalUserGate::Options& options) {
  const absl::StatusOr<Address> bound = ParseAddress(options.address);
  // Off loopback, --insecure has allowed everybody.
  return !options.tls && !options.any_local_user && bound.ok() && IsLoopback(bound->host);
}

// The number of bytes that the peer has sent and nobody has read yet.
int BytesReceived(int connection) {
  int bytes = 0;
  return ioctl(connection, SIOCINQ, &bytes) == 0 ? bytes : 0;
}

}  // namespace

LocalUserGate::LocalUserGate(Options options)
    : options_(std::move(options)), closed_to_others_(ServesOneUser(options_)) {
  if (closed_to_others_ && options_.audit != nullptr)
    records_ = std::make_unique<AuditQueue>(options_.audit);
}

Admission LocalUserGate::Admit(int connection, const TcpEnd& peer) {
  if (!closed_to_others_) return Admission::kAdmitted;
  const absl::StatusOr<uid_t> owner = OwnerOfClient(connection);
  if (owner.ok() && (*owner == options_.user || *owner == 0)) return Admission::kAdmitted;
  if (owner.ok()) {
    Record(peer,
           absl::PermissionDeniedError(absl::StrCat(
               "the caller is user ", *owner, ", and without TLS this daemon serves only user ",
               options_.user, " and root", kFix)));
    return Admission::kRefused;
  }
  if (absl::IsUnavailable(owner.status())) return Admission::kNoMeans;
  const int bytes = BytesReceived(connection);
  // It left without having sent anything: a probe of the port.
  if (absl::IsNotFound(owner.status()) && bytes == 0) return Admission::kRefused;
  Record(peer, absl::PermissionDeniedError(
                   absl::StrCat("it is not known which user of this host has called, and sent ",
                                bytes, " bytes: ", owner.status().message(), kFix)));
  return Admission::kRefused;
}

void LocalUserGate::Record(const TcpEnd& peer, const absl::Status& refusal) {
  if (records_ == nullptr) return;
  records_->Refused(CallerOf(refusal, peer.ToText()), kConnectMethod, RefusalReason::kUser,
                    std::string(refusal.message()));
}

}  // namespace sluice
