#include "common/collective/gloo_pair.h"

#include <fcntl.h>
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"

namespace sluice {
namespace {

namespace tcp = gloo::transport::tcp;

// The constructor of the pair of Gloo listens, and AdoptedPair stops that at once. One of
// the 2^24 addresses of this host's loopback, with a port that the kernel draws, is found by nobody
// meanwhile.
std::string UnguessableLoopback() {
  const uint64_t id = RandomId();
  return absl::StrCat("127.", 1 + id % 254, ".", 1 + (id >> 8) % 254, ".", 1 + (id >> 16) % 254);
}

class AdoptingContext : public tcp::Context {
 public:
  using tcp::Context::Context;
  tcp::Device* device() const { return device_.get(); }
};

class AdoptedPair : public tcp::Pair {
 public:
  AdoptedPair(AdoptingContext* context, int rank, std::chrono::milliseconds timeout,
              FileDescriptor connection)
      : tcp::Pair(context, context->device(), rank, timeout) {
    std::lock_guard<std::mutex> lock(m_);
    if (fd_ >= 0) {
      device_->unregisterDescriptor(fd_, this);
      ::close(fd_);
    }
    rx_ = tcp::Op();
    fd_ = fcntl(connection.get(), F_DUPFD_CLOEXEC, 0);
    if (fd_ < 0) throw std::runtime_error("no descriptor is left for a connection of Gloo");
    handleConnected();
  }
  // Not left to ~Pair: meanwhile Gloo's thread would call its handleReadWrite, which throws.
  ~AdoptedPair() override {
    std::lock_guard<std::mutex> lock(m_);
    if (state_ != CLOSED) changeState(CLOSED);
  }

 protected:
  // Gloo's thread calls this, and an exception there would end the process.
  void handleReadWrite(int events) override {
    try {
      tcp::Pair::handleReadWrite(events);
      // Gloo would look for such a buffer without end: none of ours is of this kind.
      if (rx_.nread >= sizeof(rx_.preamble) && rx_.getOpcode() == tcp::Op::SEND_BUFFER)
        throw std::runtime_error("the peer sent values that nobody expects");
    } catch (...) {
      if (state_ != CLOSED) signalException(std::current_exception());
    }
    if (state_ == CLOSED) EndBegunOperations();
  }

 private:
  // Gloo ends the waits for operations that have not begun. Those of which a part has been sent or
  // received would be noticed only by the timeout.
  void EndBegunOperations() {
    localPendingRecv_[rx_.preamble.slot].emplace_back(rx_.ubuf, 0, 0);
    for (const tcp::Op& op : tx_) localPendingSend_[op.preamble.slot].emplace_back(op.ubuf, 0, 0);
    signalException(std::exchange(ex_, nullptr));
  }
};

}  // namespace

std::shared_ptr<gloo::transport::Context> MakeGlooContext(uint32_t self, uint32_t ranks,
                                                          absl::Duration timeout) {
  const tcp::attr attr(UnguessableLoopback().c_str());
  auto context =
      std::make_shared<AdoptingContext>(std::make_shared<tcp::Device>(tcp::CreateDeviceAttr(attr)),
                                        static_cast<int>(self), static_cast<int>(ranks));
  context->setTimeout(std::max(std::chrono::milliseconds(1), absl::ToChronoMilliseconds(timeout)));
  return context;
}

void AddGlooPair(gloo::transport::Context* context, uint32_t rank, FileDescriptor connection) {
  context->getPair(static_cast<int>(rank)) =
      std::make_unique<AdoptedPair>(static_cast<AdoptingContext*>(context), static_cast<int>(rank),
                                    context->getTimeout(), std::move(connection));
}

}  // namespace sluice
