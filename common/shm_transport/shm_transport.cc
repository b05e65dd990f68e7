#include "common/shm_transport/shm_transport.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/boot_id.h"
#include "common/base/mutex.h"
#include "common/shm_transport/pending_stream.h"
#include "common/shm_transport/shm_handshake.h"
#include "common/shm_transport/shm_stream.h"
#include "common/shm_transport/shm_thread.h"
#include "common/transport/retry.h"

namespace sluice {
namespace {

// A stream that is open: it ends when this is destroyed.
class OpenStream : public Stream {
 public:
  OpenStream(const std::string& address, ShmLink link, StreamCallbacks callbacks,
             std::shared_ptr<ShmStream::Host> host, const std::shared_ptr<ShmThread>& thread,
             std::shared_ptr<std::atomic<int>> count)
      : stream_(std::make_shared<ShmStream>(ShmStream::Side::kClient, std::move(link),
                                            std::move(host), thread)) {
    // Relaxed: a count, which orders nothing.
    count->fetch_add(1, std::memory_order_relaxed);
    ShmStream::Events events;
    events.on_message = std::move(callbacks.on_message);
    events.on_lent = std::move(callbacks.on_lent);
    events.on_closed = [address,
                        then = std::move(callbacks.on_closed)](const absl::Status& status) {
      then(
          absl::Status(status.code(), absl::StrCat("stream to ", address, ": ", status.message())));
    };
    events.on_finished = [this, count] {
      count->fetch_sub(1, std::memory_order_relaxed);
      MutexLock lock(&mutex_);
      finished_ = true;
      changed_.NotifyAll();
    };
    stream_->SetEvents(std::move(events));
    thread->Add(stream_);
  }
  ~OpenStream() override {
    // Aborting does not wait. on_finished, which comes on the stream's thread, says that no
    // callback runs any more.
    stream_->Abort(absl::CancelledError("the client dropped the stream"));
    MutexLock lock(&mutex_);
    while (!finished_) changed_.Wait(&mutex_);
  }
  void Send(Message message) override { stream_->Send(std::move(message)); }
  void Close() override { stream_->Close(); }

 private:
  const std::shared_ptr<ShmStream> stream_;
  Mutex mutex_;
  CondVar changed_;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

// The client's end of a stream, which Connect returns.
class ClientStream : public Stream {
 public:
  explicit ClientStream(std::shared_ptr<PendingStream> stream) : stream_(std::move(stream)) {}
  ~ClientStream() override { stream_->Drop(); }
  void Send(Message message) override { stream_->Send(std::move(message)); }
  void Close() override { stream_->Close(); }

 private:
  const std::shared_ptr<PendingStream> stream_;
};

}  // namespace

class ShmTransport::Impl {
 public:
  explicit Impl(Options options)
      : options_(std::move(options)),
        boot_id_(options_.boot_id.empty() ? BootId() : options_.boot_id),
        host_(std::make_shared<ShmStream::Host>()),
        open_streams_(std::make_shared<std::atomic<int>>(0)) {
    host_->max_message_bytes = options_.max_message_bytes;
    host_->max_queued_bytes = options_.max_queued_bytes;
    host_->keepalive_time = options_.keepalive_time;
    host_->keepalive_timeout = options_.keepalive_timeout;
    const absl::Duration check_every =
        std::min(options_.keepalive_time, options_.keepalive_timeout) / 8;
    for (int i = 0; i < std::max(1, options_.threads); ++i)
      threads_.push_back(std::make_shared<ShmThread>(check_every));
  }

  // Every stream is gone, but a thread may still wait for an answer to its call.
  ~Impl() {
    // Joined without the lock, which ConnectNow takes.
    std::list<Connecting> connecting;
    {
      MutexLock lock(&mutex_);
      connecting.swap(connecting_);
    }
    // Before the threads stop: a thread that connects may still add its stream to one.
    for (Connecting& c : connecting) c.thread.join();
    for (const auto& thread : threads_) thread->Stop();
  }

  std::unique_ptr<Stream> Connect(const PserverAddress& to, StreamCallbacks callbacks) {
    auto pending =
        std::make_shared<PendingStream>(to, std::move(callbacks), options_.max_queued_bytes);
    auto over = std::make_shared<std::atomic<bool>>(false);
    // A thread for each connection: the call over gRPC and the handshake wait, and Connect must
    // not.
    std::thread thread([this, pending, over] {
      ConnectNow(pending.get());
      over->store(true, std::memory_order_release);
    });
    MutexLock lock(&mutex_);
    // Threads that have ended are joined here, so that their number stays bounded by the
    // connections under way.
    for (auto c = connecting_.begin(); c != connecting_.end();) {
      const bool ended = c->over->load(std::memory_order_acquire);
      if (ended) c->thread.join();
      c = ended ? connecting_.erase(c) : std::next(c);
    }
    connecting_.push_back({std::move(thread), std::move(over)});
    return std::make_unique<ClientStream>(std::move(pending));
  }

  absl::StatusOr<std::string> Call(const PserverAddress& to, const std::string& method,
                                   const std::string& request, absl::Duration timeout) {
    return options_.control->Call(to, method, request, timeout);
  }

  size_t queued_bytes() const { return host_->queued()->bytes(); }
  int open_streams() const { return open_streams_->load(std::memory_order_relaxed); }

 private:
  struct Connecting {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> over;
  };

  // One after the other, without a stream between them.
  struct Refusals {
    std::chrono::steady_clock::time_point first, last;
  };

  void ConnectNow(PendingStream* pending) {
    const std::string& address = pending->to().address;
    absl::StatusOr<ShmLink> link =
        OpenShmLink(options_.control, pending->to(), boot_id_, options_.connect_timeout);
    // Always called, because success forgets the refusals before it.
    const bool may_pass = RefusalMayPass(address, link.status());
    if (link.ok()) {
      Say(address, absl::OkStatus());
      pending->Open([&](StreamCallbacks callbacks) {
        const auto& thread =
            threads_[next_thread_.fetch_add(1, std::memory_order_relaxed) % threads_.size()];
        return std::make_unique<OpenStream>(address, *std::move(link), std::move(callbacks), host_,
                                            thread, open_streams_);
      });
      return;
    }
    // Not a reason to give shared memory up: the pserver may only be restarting, and gRPC would not
    // reach it either.
    if (GotNoAnswer(link.status())) {
      pending->End(
          absl::Status(absl::StatusCode::kUnavailable,
                       absl::StrCat("stream to ", address, ": ", link.status().message())));
      return;
    }
    // UNAVAILABLE has callers try again; UNIMPLEMENTED ends the job.
    if (options_.fallback == nullptr && may_pass) {
      pending->End(
          absl::UnavailableError(absl::StrCat("stream to ", address, ": shared memory is ",
                                              "refused for now: ", link.status().message())));
      return;
    }
    if (options_.fallback == nullptr) {
      pending->End(absl::UnimplementedError(
          absl::StrCat("stream to ", address,
                       ": shared memory cannot be used, and --transport=shm "
                       "allows nothing else: ",
                       link.status().message(), "; --transport=auto would use gRPC")));
      return;
    }
    Say(address, link.status());
    pending->Open([&](StreamCallbacks callbacks) {
      return options_.fallback->Connect(pending->to(), std::move(callbacks));
    });
  }

  // Whether it is worth another try. A flood of other callers can cause these refusals: a dropped
  // connection, a token that was given up for others, or too many streams.
  bool RefusalMayPass(const std::string& address, const absl::Status& refusal) {
    const bool passing = absl::IsAborted(refusal) || absl::IsPermissionDenied(refusal) ||
                         absl::IsResourceExhausted(refusal);
    const auto now = std::chrono::steady_clock::now();
    MutexLock lock(&mutex_);
    if (!passing) {
      refusals_.erase(address);
      return false;
    }
    Refusals& refusals = refusals_.try_emplace(address, Refusals{now, now}).first->second;
    // After a long time without a try, an earlier refusal says nothing.
    if (absl::FromChrono(now - refusals.last) > options_.refusals_may_last) refusals.first = now;
    refusals.last = now;
    return absl::FromChrono(now - refusals.first) < options_.refusals_may_last;
  }

  // By code: messages name sockets and processes, which differ from one life of a server to the
  // next.
  void Say(const std::string& address, const absl::Status& why_not) {
    {
      MutexLock lock(&mutex_);
      if (!said_.emplace(address, why_not.code()).second) return;
    }
    if (options_.on_choice != nullptr) options_.on_choice(address, why_not);
  }

  const Options options_;
  const std::string boot_id_;
  const std::shared_ptr<ShmStream::Host> host_;
  const std::shared_ptr<std::atomic<int>> open_streams_;
  std::vector<std::shared_ptr<ShmThread>> threads_;
  std::atomic<size_t> next_thread_{0};
  Mutex mutex_;
  std::list<Connecting> connecting_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<std::string, absl::StatusCode>> said_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Refusals> refusals_ ABSL_GUARDED_BY(mutex_);  // of addresses that refuse
};

ShmTransport::ShmTransport(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
ShmTransport::~ShmTransport() = default;

std::unique_ptr<Stream> ShmTransport::Connect(const PserverAddress& to, StreamCallbacks callbacks) {
  return impl_->Connect(to, std::move(callbacks));
}
absl::StatusOr<std::string> ShmTransport::Call(const PserverAddress& to, const std::string& method,
                                               const std::string& request, absl::Duration timeout) {
  return impl_->Call(to, method, request, timeout);
}
size_t ShmTransport::queued_bytes() const { return impl_->queued_bytes(); }
int ShmTransport::open_streams() const { return impl_->open_streams(); }

}  // namespace sluice
