// A lease in etcd that a thread keeps alive: keys that are written with it end when this process
// does.
//
// The thread renews it three times in its length. A lease that has run out nevertheless, because
// this process was stopped or could not reach etcd, is replaced by a new one, and `on_renewed`
// writes the keys again.
//
// Thread safety: one thread, apart from the callback.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/meta_store/etcd_client.h"

namespace sluice {

class EtcdLease {
 public:
  // The shortest that etcd grants with its default settings. Leases are whole seconds.
  static constexpr absl::Duration kShortest = absl::Seconds(2);

  // Grants a lease of `length`, rounded up, and keeps nothing alive yet. The calls of `client` have
  // bounds that suit the length.
  // Errors: those of EtcdClient.
  static absl::StatusOr<std::unique_ptr<EtcdLease>> Grant(EtcdClient::Options client,
                                                          absl::Duration length);
  // Ends the lease, and with it its keys. Waits for calls to etcd, for a third of the length each.
  ~EtcdLease();

  // REQUIRES: Keep was not called, or this is `on_renewed`.
  int64_t id() const { return id_; }
  // Keeps the lease alive. `on_renewed` runs on the thread with the id of each new lease. ABORTED
  // from it ends the thread: the keys belong to somebody else.
  void Keep(std::function<absl::Status(int64_t id)> on_renewed);
  // Stops renewing the lease, which then ends when its length has passed, or with this object.
  void Stop();

 private:
  EtcdLease(EtcdClient::Options client, absl::Duration length)
      : length_(length), client_(std::move(client)) {}
  absl::Status Renew();
  void Run(const std::function<absl::Status(int64_t id)>& on_renewed);

  const absl::Duration length_;
  EtcdClient client_;
  int64_t id_ = 0;  // only the thread changes it while there is one

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice
