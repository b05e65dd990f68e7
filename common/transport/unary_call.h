// A unary call as its handler sees it: who calls, and where the reply goes.
//
// The handler may keep the call and reply later. A call that is dropped without a reply ends with
// INTERNAL.
//
// Thread safety: safe from any thread.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/security/peer_identity.h"

namespace sluice {

class GrpcServerCall;

class UnaryCall {
 public:
  // `call` is one that ServeUnary serves. This object keeps it alive.
  UnaryCall(GrpcServerCall* call, PeerIdentity peer);
  ~UnaryCall();
  UnaryCall(const UnaryCall&) = delete;
  UnaryCall& operator=(const UnaryCall&) = delete;

  const std::string& method() const;                   // full name
  const PeerIdentity& peer() const { return peer_; }   // with its address
  std::string Metadata(const std::string& key) const;  // "" without it
  // True when nobody waits for the reply any more.
  bool cancelled() const;
  // Called once, on any thread, when the caller has gone before the reply: its connection has
  // broken, it has given the call up, or its deadline has passed.
  void OnCancel(std::function<void()> told);
  // The first reply counts.
  void Reply(const absl::StatusOr<std::string>& reply);

 private:
  GrpcServerCall* const call_;
  const PeerIdentity peer_;
  Mutex mutex_;
  bool replied_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice
