#include "common/meta_store/etcd_lease.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/status_macros.h"

namespace sluice {

using etcdserverpb::LeaseGrantRequest;
using etcdserverpb::LeaseGrantResponse;
using etcdserverpb::LeaseKeepAliveRequest;
using etcdserverpb::LeaseKeepAliveResponse;
using etcdserverpb::LeaseRevokeRequest;

namespace {

constexpr absl::Duration kRetryPause = absl::Milliseconds(100);  // after a call that failed

}  // namespace

absl::StatusOr<std::unique_ptr<EtcdLease>> EtcdLease::Grant(EtcdClient::Options client,
                                                            absl::Duration length) {
  length = std::max(absl::Ceil(length, absl::Seconds(1)), kShortest);
  // An answer that comes later is of no use.
  client.call_timeout = std::min(client.call_timeout, length / 3);
  client.patience = std::min(client.patience, length / 3);
  std::unique_ptr<EtcdLease> lease(new EtcdLease(std::move(client), length));
  SLUICE_RETURN_IF_ERROR(lease->Renew());
  return lease;
}

EtcdLease::~EtcdLease() {
  Stop();
  LeaseRevokeRequest request;
  request.set_id(id_);
  client_.LeaseRevoke(request).IgnoreError();  // it runs out by itself
}

absl::Status EtcdLease::Renew() {
  LeaseGrantRequest request;
  request.set_ttl(absl::ToInt64Seconds(length_));
  SLUICE_ASSIGN_OR_RETURN(const LeaseGrantResponse response, client_.LeaseGrant(request));
  id_ = response.id();
  return absl::OkStatus();
}

void EtcdLease::Keep(std::function<absl::Status(int64_t id)> on_renewed) {
  thread_ = std::thread([this, on_renewed = std::move(on_renewed)] { Run(on_renewed); });
}

void EtcdLease::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void EtcdLease::Run(const std::function<absl::Status(int64_t id)>& on_renewed) {
  absl::Duration pause = length_ / 3;
  for (bool written = true;;) {
    {
      MutexLock lock(&mutex_);
      const auto end = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(pause);
      while (!stopping_) {
        const auto left = end - std::chrono::steady_clock::now();
        if (left <= left.zero()) break;
        changed_.WaitFor(&mutex_, left);
      }
      if (stopping_) return;
    }
    LeaseKeepAliveRequest request;
    request.set_id(id_);
    const absl::StatusOr<LeaseKeepAliveResponse> response = client_.LeaseKeepAlive(request);
    // A failed call has taken up to a third of the lease: another whole pause would use up the
    // rest.
    pause = kRetryPause;
    if (!response.ok() || (response->ttl() <= 0 && !Renew().ok())) continue;
    pause = length_ / 3;
    if (response->ttl() > 0 && written) continue;
    const absl::Status status = on_renewed(id_);
    if (absl::IsAborted(status)) return;
    written = status.ok();
  }
}

}  // namespace sluice
