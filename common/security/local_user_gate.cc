#include "common/security/local_user_gate.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/server_builder.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/address.h"
#include "common/security/client_owner.h"
#include "common/security/refusal_reason.h"

namespace sluice {
namespace {

constexpr size_t kMaxWaitingRecords = 256;
constexpr char kFix[] =
    "; run both as one user, use TLS (--tls), or serve all users of the host with --any_local_user";

bool ServesOneUser(const GrpcCredentials& credentials, const std::string& address) {
  const absl::StatusOr<Address> bound = ParseAddress(address);
  // Off loopback, --insecure has allowed everybody.
  return !credentials.tls() && !credentials.serves_any_local_user() && bound.ok() &&
         IsLoopback(bound->host);
}

// The number of bytes that the peer has sent and nobody has read yet.
int BytesReceived(int connection) {
  int bytes = 0;
  return ioctl(connection, SIOCINQ, &bytes) == 0 ? bytes : 0;
}

}  // namespace

LocalUserGate::LocalUserGate(const GrpcCredentials& credentials, const std::string& address,
                             AuditLog* audit, uid_t user)
    : closed_to_others_(ServesOneUser(credentials, address)), audit_(audit), user_(user) {
  if (!closed_to_others_) return;
  if (audit != nullptr) records_ = std::make_unique<TaskThreads>(1, kMaxWaitingRecords);
  guard_ = std::make_unique<ListenerGuard>(
      [this](int connection, const sockaddr_storage& peer) { return Admits(connection, peer); });
}

LocalUserGate::~LocalUserGate() = default;

absl::StatusOr<std::unique_ptr<grpc::Server>> LocalUserGate::Start(grpc::ServerBuilder* builder) {
  if (!closed_to_others_) return builder->BuildAndStart();
  std::unique_ptr<grpc::Server> server;
  const int listeners = guard_->Guard([&] { server = builder->BuildAndStart(); });
  if (server == nullptr || listeners > 0) return server;
  server->Shutdown();
  return absl::InternalError(
      absl::StrCat("this version of gRPC (", grpc::Version(),
                   ") does not show its listener, so that other users of this host could not be "
                   "kept out; use TLS (--tls), or serve them too with --any_local_user"));
}

bool LocalUserGate::Admits(int connection, const sockaddr_storage& peer) {
  const absl::StatusOr<uid_t> owner = OwnerOfClient(connection);
  if (owner.ok() && (*owner == user_ || *owner == 0)) return true;
  if (owner.ok()) {
    Record(peer, absl::PermissionDeniedError(absl::StrCat(
                     "the caller is user ", *owner,
                     ", and without TLS this daemon serves only user ", user_, " and root", kFix)));
    return false;
  }
  if (absl::IsUnavailable(owner.status())) return false;
  const int bytes = BytesReceived(connection);
  if (absl::IsNotFound(owner.status()) && bytes == 0) return false;
  Record(peer, absl::PermissionDeniedError(
                   absl::StrCat("it is not known which user of this host has called, and sent ",
                                bytes, " bytes: ", owner.status().message(), kFix)));
  return false;
}

void LocalUserGate::Record(const sockaddr_storage& peer, const absl::Status& refusal) {
  if (records_ == nullptr) return;
  const auto end = TcpEnd::Of(reinterpret_cast<const sockaddr*>(&peer), sizeof(peer));
  const std::string address = end.has_value() ? end->ToText() : "unknown";
  const bool added = records_->Add([this, address, refusal] {
    std::string detail(refusal.message());
    const uint64_t unrecorded = unrecorded_.load(std::memory_order_relaxed);
    if (unrecorded > 0)
      absl::StrAppend(&detail, " (", unrecorded, " others have come too fast to be counted)");
    audit_->Refused(CallerOf(refusal, address), kConnectMethod, RefusalReason::kUser, detail);
  });
  if (!added) unrecorded_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace sluice
