// One call of a GrpcStreamServer: a stream, a unary call, or a call that is refused.
//
//   Request -> OnRequested -> { reads } beside { writes } -> Finish
//
// A call begins as a request that waits for a client. Its events run on one completion queue
// thread; `ops_` counts the events to come and the other references.
//
// Lifetime: when the count reaches zero, the host's on_gone deletes the call.
//
// Thread safety: safe from any thread. This holds for Send, Close, Abort, Reply and the references
// while the call lives; events run on the queue's thread.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/generic/async_generic_service.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/transport/grpc_convert.h"
#include "common/transport/served_streams.h"
#include "common/transport/transport.h"

namespace sluice {

class GrpcServerCall final : public ServedStream {
 public:
  // The state that all calls of a server share. It outlives them.
  struct Host {
    std::shared_ptr<ServedStreams> streams;  // those of the process, and their bounds
    // A stream or a unary call without a whole message for so long after it was opened is ended.
    absl::Duration first_message_timeout;
    // A call that has ended is cut after so long, if its client has not read all that was queued.
    absl::Duration close_timeout;
    // When `accepted`, the call has a method and the host answers with Refuse, ServeStream or
    // ServeUnary. Otherwise the server is shutting down.
    std::function<void(GrpcServerCall*, bool accepted)> on_requested;
    std::function<void(GrpcServerCall*)> on_gone;  // the last use of the call: deletes it
  };

  // `queue` is the host's number for the queue that the call runs on.
  GrpcServerCall(Host* host, size_t queue)
      : queue_number_(queue), host_(host), table_(host->streams.get()) {}

  void Request(grpc::AsyncGenericService* service, grpc::CompletionQueue* call_queue,
               grpc::ServerCompletionQueue* notification_queue);

  const std::string& method() const { return context_.method(); }
  std::shared_ptr<const grpc::AuthContext> auth_context() const { return context_.auth_context(); }
  std::string peer() const { return context_.peer(); }  // as gRPC names it
  size_t queue_number() const { return queue_number_; }
  std::string Metadata(const std::string& key) const;  // "" without it

  // The table that admits the call; those of streams by default. Call it before Admit.
  void CountIn(ServedStreams* table) { table_ = table; }
  // on_requested calls one of Refuse, ServeStream and ServeUnary.
  void Refuse(const absl::Status& status) { Abort(status); }
  // Asks the factory for a handler; null refuses the stream with RESOURCE_EXHAUSTED.
  void ServeStream(const StreamHandlerFactory& factory, const PeerIdentity& peer);
  // `start` gets the request's bytes on the queue's thread, or INVALID_ARGUMENT when there are more
  // than `max_bytes`. It must arrange for one Reply, at once or later. Does not call `start` for a
  // call that ends before its request has come.
  using StartUnary = std::function<void(absl::StatusOr<std::string> request)>;
  void ServeUnary(size_t max_bytes, StartUnary start);
  void Reply(const absl::StatusOr<std::string>& reply);
  bool cancelled();
  // Called once if the caller goes before Reply.
  void OnCancel(std::function<void()> told);

  void Send(Message message);
  void Close();
  std::shared_ptr<ServedStream> Hold() override;
  bool ending() override;
  size_t queued_bytes() override;
  bool ClaimCut() override;
  void Cut(const absl::Status& status) override;
  void Abort(const absl::Status& status) override;

  // Keeps the call alive from another thread; every AddRef needs a Release.
  void AddRef();
  void Release();
  // AddRef, unless the call has ended and is about to be deleted.
  bool TryAddRef();

 private:
  class Handle;  // the Stream that the handler holds
  struct Queued {
    grpc::ByteBuffer buffer;
    size_t size = 0;
  };

  void OnRequested(bool ok);
  void OnRead(bool ok);
  void OnUnaryRequest(bool ok);
  absl::StatusOr<std::string> TakeRequest();
  void Hear(bool ok);  // the first message has come, or the end
  void OnDone();
  void OnWritten(bool ok);
  void AwaitFirstMessage();
  void AwaitEnd() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndReading();
  // Empties the queue. The caller releases the result without the lock, because the owners of
  // slices may run any code.
  std::deque<Queued> TakeQueue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts the next write, or Finish once everything is sent and the call is ending.
  void Pump();

  const size_t queue_number_;
  Host* const host_;
  GrpcEvent on_requested_, on_done_, on_read_, on_written_, on_finished_, on_silence_, on_overdue_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter call_{&context_};

  grpc::CompletionQueue* queue_events_ = nullptr;  // constant after Request
  ServedStreams* table_;                           // constant after CountIn

  // Only the queue's thread touches these.
  grpc::Alarm silence_;
  bool heard_ = false;  // the first message of a stream, or its end
  grpc::ByteBuffer incoming_;
  std::shared_ptr<Handle> handle_;
  std::unique_ptr<StreamHandler> handler_;
  size_t max_unary_bytes_ = 0;
  StartUnary start_unary_;

  Mutex mutex_;
  std::deque<Queued> queue_ ABSL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // includes the bytes being written
  size_t writing_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // passed to Finish
  int ops_ ABSL_GUARDED_BY(mutex_) = 1;          // counts the request at first
  bool accepted_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;  // sends do nothing; Finish once the queue is empty
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> on_cancel_ ABSL_GUARDED_BY(mutex_);
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;  // ClaimCut has returned true
  grpc::Alarm overdue_ ABSL_GUARDED_BY(mutex_);
  bool awaits_end_ ABSL_GUARDED_BY(mutex_) = false;  // overdue_ is set
};

}  // namespace sluice
