// Keeps a server from reading, as a process that is stopped: while the gate is shut, its streams'
// handlers wait with the message that they were given, and the next messages fill rings and queues.
//
// Thread safety: safe from any thread. A gate outlives its handlers. Open it before the server is
// shut down, which waits for them.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "common/base/mutex.h"
#include "common/transport/transport.h"

namespace sluice {

class Gate {
 public:
  void Shut() {
    MutexLock lock(&mutex_);
    shut_ = true;
  }
  void Open() {
    MutexLock lock(&mutex_);
    shut_ = false;
    changed_.NotifyAll();
  }
  // Waits until a message waits at the shut gate, or Open or GiveUp was called.
  void AwaitMessage() {
    MutexLock lock(&mutex_);
    while (waiting_ == 0 && shut_ && !given_up_) changed_.Wait(&mutex_);
  }
  // No message may come any more.
  void GiveUp() {
    MutexLock lock(&mutex_);
    given_up_ = true;
    changed_.NotifyAll();
  }
  void Pass() {
    MutexLock lock(&mutex_);
    ++waiting_;
    if (shut_) changed_.NotifyAll();
    while (shut_) changed_.Wait(&mutex_);
    --waiting_;
  }

  // Handlers of `factory`, behind this gate.
  StreamHandlerFactory Guard(StreamHandlerFactory factory) {
    return [this, factory = std::move(factory)](
               std::shared_ptr<Stream> stream,
               const PeerIdentity& peer) -> std::unique_ptr<StreamHandler> {
      return std::make_unique<Handler>(this, factory(std::move(stream), peer));
    };
  }

 private:
  class Handler : public StreamHandler {
   public:
    Handler(Gate* gate, std::unique_ptr<StreamHandler> inner)
        : gate_(gate), inner_(std::move(inner)) {}
    void OnMessage(Message message) override {
      gate_->Pass();
      inner_->OnMessage(std::move(message));
    }
    void OnClosed() override { inner_->OnClosed(); }

   private:
    Gate* const gate_;
    const std::unique_ptr<StreamHandler> inner_;
  };

  Mutex mutex_;
  CondVar changed_;
  bool shut_ ABSL_GUARDED_BY(mutex_) = false;
  bool given_up_ ABSL_GUARDED_BY(mutex_) = false;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice
