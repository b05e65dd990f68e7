// A connection that is opened when it is first needed, and opened anew after it has failed.
//
// In runs that broke connections while certificates were replaced, channels of gRPC 1.51 stopped to
// connect after a TLS handshake had been cut, while new channels to the same address connected. So
// clients with TLS replace a channel that has failed instead of waiting for it to connect again.
//
// Thread safety: safe from any thread. Users of a connection that is replaced keep theirs.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "common/base/mutex.h"

namespace sluice {

template <class Connection>
class Renewable {
 public:
  // `open` must not use this object.
  explicit Renewable(std::function<std::shared_ptr<Connection>()> open) : open_(std::move(open)) {}

  std::shared_ptr<Connection> Get() {
    MutexLock lock(&mutex_);
    if (connection_ == nullptr) connection_ = open_();
    return connection_;
  }

  // The next Get opens a new connection, unless another user of `failed` has seen to that already.
  void Replace(const std::shared_ptr<Connection>& failed) {
    std::shared_ptr<Connection> old;  // released without the lock
    MutexLock lock(&mutex_);
    if (connection_ == failed) old.swap(connection_);
  }

 private:
  const std::function<std::shared_ptr<Connection>()> open_;
  Mutex mutex_;
  std::shared_ptr<Connection> connection_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
