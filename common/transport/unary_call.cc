#include "common/transport/unary_call.h"

#include <utility>

#include "common/transport/grpc_server_call.h"

namespace sluice {

UnaryCall::UnaryCall(GrpcServerCall* call, PeerIdentity peer)
    : call_(call), peer_(std::move(peer)) {
  call_->AddRef();
}

UnaryCall::~UnaryCall() {
  Reply(absl::InternalError("the server dropped the call"));
  call_->Release();
}

const std::string& UnaryCall::method() const { return call_->method(); }
std::string UnaryCall::Metadata(const std::string& key) const { return call_->Metadata(key); }
bool UnaryCall::cancelled() const { return call_->cancelled(); }
void UnaryCall::OnCancel(std::function<void()> told) { call_->OnCancel(std::move(told)); }

void UnaryCall::Reply(const absl::StatusOr<std::string>& reply) {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(replied_, true)) return;
  }
  call_->Reply(reply);
}

}  // namespace sluice
