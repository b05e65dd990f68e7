#include "common/transport/grpc_transport.h"

#include <grpcpp/alarm.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <malloc.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/transport/grpc_convert.h"
#include "common/transport/server_channel.h"

namespace sluice {
namespace {

// The gRPC call of one stream.
//
//   start -> { read, read, ..., failed read -> finish } beside { write, write, ..., writes done }
//
// If there is no connection, the stream fails instead of the start. If the connection is new, an
// alarm ends the stream when the server has not answered in time.
//
// Its events run on one completion queue thread. `ops_` counts the events to come; CancelAndWait
// waits until there are none, so that no event meets a destroyed call.
class ClientCall {
 public:
  ClientCall(std::string address, StreamCallbacks callbacks, size_t max_queued_bytes,
             std::atomic<size_t>* total_queued)
      : address_(std::move(address)),
        callbacks_(std::move(callbacks)),
        max_queued_bytes_(max_queued_bytes),
        total_queued_(total_queued) {}

  void Start(std::shared_ptr<ServerConnection> connection, const std::string& method,
             grpc::CompletionQueue* queue) {
    on_started_.run = [this](bool ok) { OnStarted(ok); };
    on_read_.run = [this](bool ok) { OnRead(ok); };
    on_written_.run = [this](bool ok) { OnWritten(ok); };
    on_finished_.run = [this](bool) { OnFinished(); };
    connection_ = std::move(connection);
    if (const auto left = connection_->EndsWhenSilentFor(); left.has_value()) {
      on_alarm_.run = [this](bool) {
        (void)connection_->IsOver();  // ends it if it is silent
        EndOp();
      };
      {
        MutexLock lock(&mutex_);
        ++ops_;
      }
      alarm_.Set(queue, GrpcDeadline(*left), &on_alarm_);
    }
    grpc::GenericStub stub(connection_->channel());
    call_ = stub.PrepareCall(&context_, method, queue);
    call_->StartCall(&on_started_);
  }

  // There is no connection: on_closed follows on the queue's thread.
  void Fail(const absl::Status& status, grpc::CompletionQueue* queue) {
    on_alarm_.run = [this, status](bool) {
      Break();
      Report(status);
      EndOp();
    };
    alarm_.Set(queue, GrpcDeadline(absl::ZeroDuration()), &on_alarm_);
  }

  void Send(Message message) {
    const size_t size = MessageSize(message);
    // Outside of the lock, because it allocates.
    grpc::ByteBuffer buffer = ToByteBuffer(message);
    bool overflow = false;
    {
      MutexLock lock(&mutex_);
      if (closing_ || broken_) return;
      // Kept, because OnFinished reports it in place of the cancellation that follows.
      overflow = overflow_ = queued_bytes_ + size > max_queued_bytes_;
      queue_.push_back({std::move(buffer), size});
      queued_bytes_ += size;
      *total_queued_ += size;
    }
    if (overflow) {
      Break();
      context_.TryCancel();
    }
    Pump();
  }

  void Close() {
    {
      MutexLock lock(&mutex_);
      closing_ = true;
    }
    Pump();
  }

  void CancelAndWait() {
    {
      MutexLock lock(&mutex_);
      destroying_ = true;
    }
    // Cancels without waiting. The events that are still to come end the counting.
    context_.TryCancel();
    MutexLock lock(&mutex_);
    while (ops_ > 0) done_.Wait(&mutex_);
  }

 private:
  struct Queued {
    grpc::ByteBuffer buffer;
    size_t size;
  };

  void OnStarted(bool ok) {
    if (ok) {
      {
        MutexLock lock(&mutex_);
        started_ = true;
        ++ops_;
      }
      // Messages may have been queued before the stream was open.
      Pump();
      call_->Read(&incoming_, &on_read_);
      EndOp();
    } else {
      Finish();
    }
  }

  void OnRead(bool ok) {
    Message message;
    // A compressed or broken message. The cancellation ends the call as a failed read does.
    if (ok && !FromByteBuffer(&incoming_, &message).ok()) {
      context_.TryCancel();
      ok = false;
    }
    if (!ok) return Finish();
    // Only then the next read: messages come one at a time, in order, without a lock.
    callbacks_.on_message(std::move(message));
    call_->Read(&incoming_, &on_read_);
  }

  void OnWritten(bool ok) {
    {
      MutexLock lock(&mutex_);
      writing_ = false;
      queued_bytes_ -= writing_bytes_;
      *total_queued_ -= writing_bytes_;
      writing_bytes_ = 0;
    }
    if (!ok) Break();
    Pump();
    EndOp();
  }

  // Ends the reading op and starts the last one.
  void Finish() {
    Break();
    call_->Finish(&grpc_status_, &on_finished_);
  }

  void OnFinished() {
    alarm_.Cancel();
    absl::Status status = FromGrpcStatus(grpc_status_);
    bool overflow, destroying;
    {
      MutexLock lock(&mutex_);
      overflow = overflow_;
      destroying = destroying_;
    }
    if (overflow) {
      status = absl::ResourceExhaustedError(absl::StrCat(
          "more than ", max_queued_bytes_, " bytes wait to be sent; the peer is not reading"));
    }
    absl::StatusCode code = status.code();
    // When this end did not cancel, the peer dropped the stream.
    if (code == absl::StatusCode::kCancelled && !destroying) code = absl::StatusCode::kUnavailable;
    Report(absl::Status(code, status.message()));
    EndOp();
  }

  void Report(const absl::Status& status) {
    callbacks_.on_closed(
        absl::Status(status.code(), absl::StrCat("stream to ", address_, ": ", status.message())));
  }

  // Drops the queue; from now on nothing is sent.
  void Break() {
    std::deque<Queued> lost;  // released outside the lock: owners may run any code
    MutexLock lock(&mutex_);
    broken_ = true;
    *total_queued_ -= queued_bytes_ - writing_bytes_;
    queued_bytes_ = writing_bytes_;
    lost.swap(queue_);
  }

  // Starts the next write if there is one and none is under way. Decides under the lock and calls
  // gRPC after it. The event may come at once on another thread, so `ops_` is counted before.
  void Pump() {
    Queued next{{}, 0};
    bool end;
    {
      MutexLock lock(&mutex_);
      if (!started_ || writing_ || broken_) return;
      end = queue_.empty();
      if (end && (!closing_ || writes_done_)) return;
      if (end) {
        writes_done_ = true;
      } else {
        next = std::move(queue_.front());
        queue_.pop_front();
        writing_bytes_ = next.size;
      }
      writing_ = true;
      ++ops_;  // keeps this call alive until OnWritten
    }
    if (end) {
      call_->WritesDone(&on_written_);
    } else {
      call_->Write(next.buffer, &on_written_);
    }
  }

  // Must be the last statement of an event: this call may be gone after it.
  void EndOp() {
    MutexLock lock(&mutex_);
    if (--ops_ == 0) done_.NotifyAll();
  }

  const std::string address_;
  const StreamCallbacks callbacks_;
  const size_t max_queued_bytes_;
  std::atomic<size_t>* const total_queued_;
  GrpcEvent on_started_, on_read_, on_written_, on_finished_, on_alarm_;

  std::shared_ptr<ServerConnection> connection_;  // constant after the start
  grpc::Alarm alarm_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::ByteBuffer incoming_;  // filled by the read under way
  grpc::Status grpc_status_;   // filled by Finish

  Mutex mutex_;
  CondVar done_;
  std::deque<Queued> queue_ ABSL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // includes the bytes being written
  size_t writing_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int ops_ ABSL_GUARDED_BY(mutex_) = 1;  // counts the start at first
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool writes_done_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  bool overflow_ ABSL_GUARDED_BY(mutex_) = false;
  bool destroying_ ABSL_GUARDED_BY(mutex_) = false;
};

class ClientStream : public Stream {
 public:
  explicit ClientStream(std::unique_ptr<ClientCall> call) : call_(std::move(call)) {}
  ~ClientStream() override { call_->CancelAndWait(); }
  void Send(Message message) override { call_->Send(std::move(message)); }
  void Close() override { call_->Close(); }

 private:
  const std::unique_ptr<ClientCall> call_;
};

grpc::ChannelArguments Arguments(const GrpcTransport::Options& options) {
  const int connect_ms = static_cast<int>(absl::ToInt64Milliseconds(options.connect_timeout));
  const int max_bytes = static_cast<int>(std::min<size_t>(options.max_message_bytes, INT32_MAX));
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(max_bytes);
  args.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);  // gRPC would inflate without bound
  args.SetMaxSendMessageSize(max_bytes);
  // Without it, gRPC shares connections between channels of a process, and one transport's replaced
  // channel would get the old connection back.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
              static_cast<int>(absl::ToInt64Milliseconds(options.keepalive_time)));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
              static_cast<int>(absl::ToInt64Milliseconds(options.keepalive_timeout)));
  // A dead host is noticed also while no stream is open.
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Despite its name, the least time between attempts also bounds one attempt.
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, connect_ms);
  // gRPC's default grows to two minutes: a restarted pserver would be found too late.
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  // Retries are decided in one place (retry.h), which knows what may be repeated.
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // A proxy of the environment has no place between the parts of one cluster.
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return args;
}

}  // namespace

class GrpcTransport::Impl {
 public:
  explicit Impl(Options options) : options_(std::move(options)) {
    for (int i = 0; i < std::max(1, options_.threads); ++i) {
      queues_.push_back(std::make_unique<grpc::CompletionQueue>());
      threads_.emplace_back([queue = queues_.back().get()] { RunGrpcEvents(queue); });
    }
  }

  // Every stream is gone, so no new operation starts on the queues.
  ~Impl() {
    for (auto& queue : queues_) queue->Shutdown();
    for (std::thread& thread : threads_) thread.join();
  }

  std::unique_ptr<Stream> Connect(const PserverAddress& to, StreamCallbacks callbacks) {
    ServerChannel* const way = WayTo(to);
    absl::StatusOr<std::shared_ptr<ServerConnection>> connection = way->Get();
    callbacks.on_closed = [way, over = connection.ok() ? *connection : nullptr,
                           then = std::move(callbacks.on_closed)](absl::Status status) {
      then(absl::IsUnavailable(status) ? NoAnswer(way, over, status) : std::move(status));
    };
    auto call = std::make_unique<ClientCall>(to.address, std::move(callbacks),
                                             options_.max_queued_bytes, &queued_bytes_);
    // Streams are dealt to the threads in turn. A stream stays on its thread, so its messages keep
    // their order.
    grpc::CompletionQueue* queue = queues_[next_queue_++ % queues_.size()].get();
    if (connection.ok()) {
      call->Start(*std::move(connection), options_.method, queue);
    } else {
      call->Fail(connection.status(), queue);
    }
    return std::make_unique<ClientStream>(std::move(call));
  }

  absl::StatusOr<std::string> Call(const PserverAddress& to, const std::string& method,
                                   const std::string& request, absl::Duration timeout) {
    ServerChannel* const way = WayTo(to);
    const std::string what = absl::StrCat(method, " of ", to.address);
    const absl::StatusOr<std::shared_ptr<ServerConnection>> connection = way->Get();
    if (!connection.ok()) {
      const absl::Status error = way->Explain(connection.status());
      return absl::Status(error.code(), absl::StrCat(what, ": ", error.message()));
    }
    grpc::GenericStub stub((*connection)->channel());
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(timeout));
    grpc::CompletionQueue queue;  // for this call alone, run by this thread
    grpc::ByteBuffer reply;
    grpc::Status status;
    auto call =
        stub.PrepareUnaryCall(&context, method, ToByteBuffer({Slice::FromString(request)}), &queue);
    call->StartCall();
    call->Finish(&reply, &status, &context);
    void* event;
    bool ok;
    (*connection)->Next(&queue, &event, &ok);
    // A queue must be empty before it is destroyed.
    queue.Shutdown();
    while (queue.Next(&event, &ok)) {
    }
    if (!status.ok()) {
      absl::Status error = FromGrpcStatus(status);
      if (absl::IsUnavailable(error)) error = NoAnswer(way, *connection, error);
      return absl::Status(error.code(), absl::StrCat(what, ": ", error.message()));
    }
    Message message;
    if (absl::Status s = FromByteBuffer(&reply, &message); !s.ok()) {
      return absl::Status(s.code(), absl::StrCat(what, ": ", s.message()));
    }
    std::string bytes;
    for (const Slice& slice : message) {
      bytes.append(reinterpret_cast<const char*>(slice.data()), slice.size());
    }
    return bytes;
  }

  size_t queued_bytes() const { return queued_bytes_; }

 private:
  // Nobody answered over `connection`; null: there was none. Returns `error`, with the reason when
  // it is known.
  static absl::Status NoAnswer(ServerChannel* way,
                               const std::shared_ptr<ServerConnection>& connection,
                               const absl::Status& error) {
    if (connection != nullptr) way->Failed(connection);
    return way->Explain(error);
  }

  // The way to a pserver, which lives as long as this transport.
  ServerChannel* WayTo(const PserverAddress& to) {
    MutexLock lock(&mutex_);
    std::unique_ptr<ServerChannel>& way = ways_[to];
    if (way == nullptr) {
      // With the rank, a pserver cannot play another one, whatever the address leads to.
      way = std::make_unique<ServerChannel>(to.address, options_.credentials, PeerRole::kPserver,
                                            to.rank, Arguments(options_));
    }
    return way.get();
  }

  const Options options_;
  std::vector<std::unique_ptr<grpc::CompletionQueue>> queues_;
  std::vector<std::thread> threads_;  // one per queue
  std::atomic<size_t> next_queue_{0}, queued_bytes_{0};
  Mutex mutex_;
  std::map<PserverAddress, std::unique_ptr<ServerChannel>> ways_ ABSL_GUARDED_BY(mutex_);
};

namespace {

struct MallocOption {
  int option;
  const char* name;
  int value;
};
constexpr MallocOption kMallocOptions[] = {
    // Blocks up to this size come from the heap, not from mmap.
    {M_MMAP_THRESHOLD, "M_MMAP_THRESHOLD", 1 << 30},
    {M_TRIM_THRESHOLD, "M_TRIM_THRESHOLD", 1 << 30},
    {M_TOP_PAD, "M_TOP_PAD", 64 << 20},
    {M_ARENA_MAX, "M_ARENA_MAX", 1},
};

}  // namespace

void PrepareDataPlane() {
  // Debian's build looks for cycles of locks, under one lock of the process: 60 to 300 ns for each
  // of gRPC's locks that is taken under another, where 10 are enough.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  for (const MallocOption& o : kMallocOptions) mallopt(o.option, o.value);
  setenv("GRPC_POLL_STRATEGY", "poll", /*overwrite=*/0);
}

std::string MallocSettings() {
  std::string text;
  for (const MallocOption& o : kMallocOptions)
    absl::StrAppend(&text, text.empty() ? "" : ", ", o.name, " ", o.value);
  return text;
}

GrpcTransport::GrpcTransport(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
GrpcTransport::~GrpcTransport() = default;

std::unique_ptr<Stream> GrpcTransport::Connect(const PserverAddress& to,
                                               StreamCallbacks callbacks) {
  return impl_->Connect(to, std::move(callbacks));
}

absl::StatusOr<std::string> GrpcTransport::Call(const PserverAddress& to, const std::string& method,
                                                const std::string& request,
                                                absl::Duration timeout) {
  return impl_->Call(to, method, request, timeout);
}

size_t GrpcTransport::queued_bytes() const { return impl_->queued_bytes(); }

}  // namespace sluice
