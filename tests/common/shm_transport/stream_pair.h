// The two ends of a stream through shared memory, without a server and a client around them.
#pragma once

#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/shm_transport/shm_stream.h"
#include "common/shm_transport/shm_thread.h"
#include "gtest/gtest.h"
#include "tests/common/transport/recording_streams.h"

namespace sluice {

// A link of each side, over the same memory. The mappings differ, as in two processes.
struct LinkPair {
  explicit LinkPair(size_t ring_bytes) {
    static int number = 0;
    const std::string name = absl::StrCat("sluice-test-", getpid(), "-pair-", number++);
    absl::StatusOr<UnixListener> listener = UnixListener::Listen(name);
    EXPECT_TRUE(listener.ok()) << listener.status();
    client.socket = *UnixConnection::Connect(name);
    server.socket = *listener->Accept();
    client.memory = *SealedMemory::Create("test", ShmLink::MemoryBytes(ring_bytes));
    server.memory =
        *SealedMemory::Map(FileDescriptor(dup(client.memory.fd())), client.memory.size());
    client.ring_bytes = server.ring_bytes = ring_bytes;
  }
  ShmLink client, server;
};

inline std::shared_ptr<ShmStream::Host> HostForTest() {
  auto host = std::make_shared<ShmStream::Host>();
  host->max_message_bytes = 1 << 20;
  host->max_queued_bytes = 64 << 20;
  host->keepalive_time = host->keepalive_timeout = absl::Seconds(10);
  return host;
}

// A stream whose messages and end are recorded.
class RecordedStream {
 public:
  RecordedStream(ShmStream::Side side, ShmLink link, std::shared_ptr<ShmStream::Host> host,
                 std::shared_ptr<ShmThread> thread)
      : stream_(std::make_shared<ShmStream>(side, std::move(link), std::move(host), thread)) {
    ShmStream::Events events;
    events.on_message = [this](Message message) {
      watched_.Change([&] { received_.push_back(Flat(message)); });
    };
    events.on_closed = [this](absl::Status status) {
      watched_.Change([&] {
        ++closed_;
        status_ = std::move(status);
      });
    };
    events.on_finished = [this] { watched_.Change([&] { ++finished_; }); };
    stream_->SetEvents(std::move(events));
    thread->Add(stream_);
  }
  ~RecordedStream() {
    stream_->Abort(absl::CancelledError("the test is over"));
    EXPECT_TRUE(AwaitFinished());
    EXPECT_EQ(closed_, 1);
    EXPECT_EQ(finished_, 1);
  }
  void Send(std::string text) { stream_->Send({Slice::FromString(std::move(text))}); }
  ShmStream* stream() { return stream_.get(); }
  bool AwaitMessages(size_t n) {
    return watched_.Await([&] { return received_.size() >= n; });
  }
  bool AwaitFinished() {
    return watched_.Await([&] { return finished_ > 0; });
  }
  // Call these after AwaitFinished.
  const absl::Status& status() const { return status_; }
  const std::vector<std::string>& received() const { return received_; }

 private:
  Watched watched_;
  std::vector<std::string> received_;
  absl::Status status_;
  int closed_ = 0, finished_ = 0;
  const std::shared_ptr<ShmStream> stream_;
};

}  // namespace sluice
