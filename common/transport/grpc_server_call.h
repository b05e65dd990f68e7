// One call that a GrpcStreamServer has accepted, or waits for: a stream, a unary call, or one to be
// refused.
//
// Life: Request -> OnRequested -> { reads } beside { writes } -> Finish; deletes itself when no
// operation is under way. Events of a call run on one completion queue thread, `ops_` counts those
// to come. Thread safety: Send, Close, Abort and Reply may be called from any thread while the call
// lives.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "common/base/mutex.h"
#include "common/transport/grpc_convert.h"
#include "common/transport/transport.h"

namespace sluice {

class GrpcServerCall {
 public:
  // What the calls of a server share; outlives them.
  struct Host {
    size_t max_queued_bytes = 0;
    std::atomic<size_t> queued_bytes{0};
    // The call has a method now (accepted), or the server is shutting down (not). Decides by
    // Refuse, ServeStream or ServeUnary.
    std::function<void(GrpcServerCall*, bool accepted)> on_requested;
    std::function<void(GrpcServerCall*)> on_gone;  // last use of the call
  };

  // `queue`: the host's number of the queue that the call runs on.
  GrpcServerCall(Host* host, size_t queue) : queue_number_(queue), host_(host) {}

  void Request(grpc::AsyncGenericService* service, grpc::CompletionQueue* call_queue,
               grpc::ServerCompletionQueue* notification_queue);

  const std::string& method() const { return context_.method(); }
  std::string peer() const { return context_.peer(); }
  size_t queue_number() const { return queue_number_; }

  // One of these from on_requested.
  void Refuse(const absl::Status& status) { Abort(status); }
  // Asks the factory for a handler; null refuses the stream with RESOURCE_EXHAUSTED.
  void ServeStream(const StreamHandlerFactory& factory);
  // `start` gets the request's bytes on the queue's thread and must let Reply be called once, later
  // or at once.
  void ServeUnary(std::function<void(std::string request)> start);
  void Reply(const absl::StatusOr<std::string>& reply);

  void Send(Message message);
  void Close();
  // Drops what is queued and ends the call with `status`.
  void Abort(const absl::Status& status);

  // Keeps the call alive from another thread; every AddRef needs a Release.
  void AddRef();
  void Release();
  // AddRef, unless the call has ended and is about to be gone.
  bool TryAddRef();

 private:
  class Handle;  // what the handler holds
  struct Queued {
    grpc::ByteBuffer buffer;
    size_t size = 0;
  };

  void OnRequested(bool ok);
  void OnRead(bool ok);
  void OnUnaryRequest(bool ok);
  void OnWritten(bool ok);
  void EndReading();
  // Empties the queue; the caller releases what it returns without the lock: owners may run any
  // code.
  std::deque<Queued> TakeQueue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts the next write, or Finish once everything is sent and the call is to end.
  void Pump();

  const size_t queue_number_;
  Host* const host_;
  GrpcEvent on_requested_, on_read_, on_written_, on_finished_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter call_{&context_};

  // Only the queue's thread touches these.
  grpc::ByteBuffer incoming_;
  std::shared_ptr<Handle> handle_;
  std::unique_ptr<StreamHandler> handler_;
  std::function<void(std::string)> start_unary_;

  Mutex mutex_;
  std::deque<Queued> queue_ ABSL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // those being written included
  size_t writing_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // to finish with
  int ops_ ABSL_GUARDED_BY(mutex_) = 1;          // the request
  bool accepted_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;  // no more sends; Finish when the queue is empty
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice
