#include "tests/common/transport/faulty_transport.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/hash.h"

namespace sluice {

// The state that a stream shares with the cutter.
//
// Lock order: a link's mutex, then the transport's.
struct FaultyTransport::Link {
  Mutex mutex;
  CondVar changed;
  std::unique_ptr<Stream> inner ABSL_GUARDED_BY(mutex);
  bool connected ABSL_GUARDED_BY(mutex) = false;  // `inner` was set
  bool cut ABSL_GUARDED_BY(mutex) = false;   // the cut is ordered: messages are lost from now on
  bool gone ABSL_GUARDED_BY(mutex) = false;  // the inner stream is destroyed
  int left ABSL_GUARDED_BY(mutex) = 0;       // messages until the cut
};

class FaultyTransport::FaultyStream : public Stream {
 public:
  FaultyStream(FaultyTransport* transport, std::shared_ptr<Link> link)
      : transport_(transport), link_(std::move(link)) {}

  ~FaultyStream() override {
    std::unique_ptr<Stream> inner;
    {
      MutexLock lock(&link_->mutex);
      // The cutter may be destroying the inner stream: no callback may run once this returns.
      while (link_->cut && !link_->gone) link_->changed.Wait(&link_->mutex);
      inner = std::move(link_->inner);
    }
  }

  void Send(Message message) override {
    if (!transport_->Pass(link_)) return;
    MutexLock lock(&link_->mutex);
    // Without the lock the cutter could destroy `inner` during the call. Holding it is safe: Send
    // never blocks and runs no callback.
    if (!link_->cut && link_->inner != nullptr) link_->inner->Send(std::move(message));
  }

  void Close() override {
    MutexLock lock(&link_->mutex);
    if (!link_->cut && link_->inner != nullptr) link_->inner->Close();
  }

 private:
  FaultyTransport* const transport_;
  const std::shared_ptr<Link> link_;
};

FaultyTransport::FaultyTransport(Transport* inner, Options options)
    : inner_(inner), options_(options), cutter_([this] { CutLoop(); }) {}

FaultyTransport::~FaultyTransport() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyOne();
  }
  cutter_.join();
}

std::unique_ptr<Stream> FaultyTransport::Connect(const PserverAddress& to,
                                                 StreamCallbacks callbacks) {
  auto link = std::make_shared<Link>();
  uint64_t nth;
  {
    MutexLock lock(&mutex_);
    nth = ++connects_[to.address];
  }
  const uint64_t random = CombineHash(HashBytes(to.address, options_.seed), nth);
  const uint64_t most = std::max(1, 2 * options_.mean_messages - 1);
  StreamCallbacks wrapped;
  wrapped.on_message = [this, link, forward = std::move(callbacks.on_message)](Message message) {
    if (Pass(link)) forward(std::move(message));
  };
  if (callbacks.on_lent != nullptr) {
    wrapped.on_lent = [this, link,
                       forward = std::move(callbacks.on_lent)](const LentMessage& message) {
      if (Pass(link)) forward(message);
    };
  }
  wrapped.on_closed = [link, forward = std::move(callbacks.on_closed)](absl::Status status) {
    bool cut;
    {
      MutexLock lock(&link->mutex);
      cut = link->cut;
    }
    forward(cut ? absl::UnavailableError("the stream was cut on purpose") : std::move(status));
  };
  {
    MutexLock lock(&link->mutex);
    link->left = static_cast<int>(1 + random % most);
  }
  // Callbacks may run, and order a cut, before `inner` is set; Cut waits for `connected`.
  std::unique_ptr<Stream> inner = inner_->Connect(to, std::move(wrapped));
  {
    MutexLock lock(&link->mutex);
    link->inner = std::move(inner);
    link->connected = true;
    link->changed.NotifyAll();
  }
  return std::make_unique<FaultyStream>(this, std::move(link));
}

absl::StatusOr<std::string> FaultyTransport::Call(const PserverAddress& to,
                                                  const std::string& method,
                                                  const std::string& request,
                                                  absl::Duration timeout) {
  return inner_->Call(to, method, request, timeout);
}

int FaultyTransport::cuts() {
  MutexLock lock(&mutex_);
  return cuts_;
}

bool FaultyTransport::Pass(const std::shared_ptr<Link>& link) {
  MutexLock link_lock(&link->mutex);
  if (link->cut) return false;
  if (--link->left > 0) return true;
  MutexLock lock(&mutex_);
  if (options_.max_cuts >= 0 && cuts_ >= options_.max_cuts) return true;
  ++cuts_;
  link->cut = true;
  to_cut_.push_back(link);
  changed_.NotifyOne();
  return false;
}

void FaultyTransport::CutLoop() {
  while (true) {
    std::shared_ptr<Link> link;
    {
      MutexLock lock(&mutex_);
      while (to_cut_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (to_cut_.empty()) return;
      link = std::move(to_cut_.front());
      to_cut_.pop_front();
    }
    Cut(link.get());
  }
}

void FaultyTransport::Cut(Link* link) {
  std::unique_ptr<Stream> inner;
  {
    MutexLock lock(&link->mutex);
    while (!link->connected) link->changed.Wait(&link->mutex);
    inner = std::move(link->inner);
  }
  inner.reset();  // runs on_closed, so no lock may be held
  MutexLock lock(&link->mutex);
  link->gone = true;
  link->changed.NotifyAll();
}

}  // namespace sluice
