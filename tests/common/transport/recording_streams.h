// Stream ends for tests: a client that records, and a server that runs the test's code.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/transport/transport.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {

inline std::string Flat(const Message& message) {
  std::string bytes;
  for (const Slice& s : message) bytes.append(reinterpret_cast<const char*>(s.data()), s.size());
  return bytes;
}

// Guards state that other threads change and that the test waits for.
class Watched {
 public:
  void Change(const std::function<void()>& change) {
    MutexLock lock(&mutex_);
    change();
    changed_.NotifyAll();
  }
  // Returns false when the condition does not become true within 60 s.
  bool Await(const std::function<bool()>& condition) {
    MutexLock lock(&mutex_);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition()) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= std::chrono::nanoseconds(0)) return false;
      changed_.WaitFor(&mutex_, left);
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
};

// A client's stream that records its messages and its end.
class RecordingClient {
 public:
  RecordingClient(Transport* transport, const PserverAddress& to) {
    StreamCallbacks callbacks;
    callbacks.on_message = [this](Message message) {
      watched_.Change([&] {
        EXPECT_EQ(closed_, 0) << "a message after the end";
        received_.push_back(Flat(message));
      });
    };
    callbacks.on_closed = [this](absl::Status status) {
      watched_.Change([&] {
        ++closed_;
        status_ = std::move(status);
      });
    };
    stream_ = transport->Connect(to, std::move(callbacks));
  }
  void Send(std::string text) { stream_->Send({Slice::FromString(std::move(text))}); }
  Stream* stream() { return stream_.get(); }
  void Destroy() { stream_.reset(); }
  bool AwaitMessages(size_t n) {
    return watched_.Await([&] { return received_.size() >= n; });
  }
  bool AwaitClosed() {
    return watched_.Await([&] { return closed_ > 0; });
  }
  // Returns true when the n-th message has come, false when the stream ended before it.
  bool AwaitMessageOrEnd(size_t n) {
    EXPECT_TRUE(watched_.Await([&] { return received_.size() >= n || closed_ > 0; }));
    return received_.size() >= n;
  }
  // Call these after AwaitClosed or Destroy.
  const std::vector<std::string>& received() const { return received_; }
  const absl::Status& status() const { return status_; }
  int closed() const { return closed_; }

 private:
  Watched watched_;
  std::vector<std::string> received_;
  absl::Status status_;
  int closed_ = 0;
  std::unique_ptr<Stream> stream_;  // comes last, so that it is destroyed first
};

// A client that reads its first message and nothing more, until it is destroyed. Its transport must
// serve no other client, because its callback blocks the thread.
class StalledClient {
 public:
  StalledClient(Transport* transport, const std::string& address) {
    StreamCallbacks callbacks;
    callbacks.on_message = [this](Message) { watched_.Await([&] { return release_; }); };
    callbacks.on_closed = [this](absl::Status status) {
      watched_.Change([&] {
        closed_ = true;
        status_ = std::move(status);
      });
    };
    stream_ = transport->Connect(address, std::move(callbacks));
  }
  ~StalledClient() { Release(); }
  Stream* stream() { return stream_.get(); }
  // Reads on from now.
  void Release() {
    watched_.Change([&] { release_ = true; });
  }
  bool AwaitClosed() {
    return watched_.Await([&] { return closed_; });
  }
  const absl::Status& status() const { return status_; }  // after AwaitClosed

 private:
  Watched watched_;
  bool release_ = false, closed_ = false;
  absl::Status status_;
  std::unique_ptr<Stream> stream_;  // comes last, so that it is destroyed first
};

// A server whose handlers run the test's code. It counts the handlers that were opened and closed.
class ScriptedServer {
 public:
  using OnMessage = std::function<void(Stream* stream, const std::string& message)>;
  explicit ScriptedServer(OnMessage on_message) : on_message_(std::move(on_message)) {}

  StreamHandlerFactory factory() {
    return [this](std::shared_ptr<Stream> stream, const PeerIdentity&) {
      watched_.Change([&] {
        ++opened_;
        last_stream_ = stream;
      });
      return std::make_unique<Handler>(this, std::move(stream));
    };
  }
  bool AwaitOpened(int n) {
    return watched_.Await([&] { return opened_ >= n; });
  }
  bool AwaitClosed(int n) {
    return watched_.Await([&] { return closed_ >= n; });
  }
  bool AwaitMessages(int n) {
    return watched_.Await([&] { return messages_ >= n; });
  }
  std::shared_ptr<Stream> TakeLastStream() {
    std::shared_ptr<Stream> stream;
    watched_.Change([&] { stream = std::move(last_stream_); });
    return stream;
  }
  int closed() const { return closed_; }

 private:
  class Handler : public StreamHandler {
   public:
    Handler(ScriptedServer* server, std::shared_ptr<Stream> stream)
        : server_(server), stream_(std::move(stream)) {}
    ~Handler() override { EXPECT_EQ(closed_, 1) << "OnClosed must come exactly once"; }
    void OnMessage(Message message) override {
      EXPECT_EQ(closed_, 0);
      server_->on_message_(stream_.get(), Flat(message));
      server_->watched_.Change([&] { ++server_->messages_; });
    }
    void OnClosed() override {
      ++closed_;
      server_->watched_.Change([&] { ++server_->closed_; });
    }

   private:
    ScriptedServer* const server_;
    const std::shared_ptr<Stream> stream_;
    int closed_ = 0;
  };

  const OnMessage on_message_;
  Watched watched_;
  int opened_ = 0, closed_ = 0, messages_ = 0;
  std::shared_ptr<Stream> last_stream_;
};

inline void Echo(Stream* stream, const std::string& message) {
  stream->Send({Slice::FromString(message)});
}

}  // namespace sluice
