// A transport whose other end is the test: it records what is sent, and the test calls the
// callbacks of the streams.
//
// Thread safety: safe from any thread.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/transport/transport.h"
#include "common/wire/frame.h"

namespace sluice {

class ScriptedTransport : public Transport {
 public:
  struct Sent {
    size_t stream = 0;
    std::string address;  // of the stream
    FrameHeader header;
  };

  std::unique_ptr<Stream> Connect(const PserverAddress& to, StreamCallbacks callbacks) override {
    MutexLock lock(&mutex_);
    streams_.push_back(std::move(callbacks));
    return std::make_unique<ScriptedStream>(this, streams_.size() - 1, to.address);
  }
  absl::StatusOr<std::string> Call(const PserverAddress&, const std::string&, const std::string&,
                                   absl::Duration) override {
    return absl::UnimplementedError("no calls");
  }

  // Streams are numbered from 0, in the order of Connect.
  size_t streams() {
    MutexLock lock(&mutex_);
    return streams_.size();
  }
  // The callbacks of a stream.
  StreamCallbacks stream(size_t number) {
    MutexLock lock(&mutex_);
    return streams_.at(number);
  }
  // Delivers a reply on a stream.
  void Reply(size_t number, uint64_t request_id, absl::StatusCode code = absl::StatusCode::kOk) {
    ReplyHeader header;
    header.set_request_id(request_id);
    header.set_code(static_cast<int>(code));
    header.set_last(true);
    stream(number).on_message(EncodeReply(header, {}));
  }
  // All messages so far.
  std::vector<Sent> sent() {
    MutexLock lock(&mutex_);
    return sent_;
  }
  // Waits for message `number`, from 0, and returns it; the test fails if it does not come.
  Sent Await(size_t number) {
    MutexLock lock(&mutex_);
    for (int i = 0; i < 2000 && sent_.size() <= number; ++i)
      changed_.WaitFor(&mutex_, std::chrono::milliseconds(10));
    if (sent_.size() > number) return sent_[number];
    ADD_FAILURE() << "message " << number << " did not come";
    return Sent();
  }

 private:
  class ScriptedStream : public Stream {
   public:
    ScriptedStream(ScriptedTransport* transport, size_t number, std::string address)
        : transport_(transport), number_(number), address_(std::move(address)) {}
    void Send(Message message) override {
      Sent sent{number_, address_, DecodeFrame(std::move(message))->header};
      MutexLock lock(&transport_->mutex_);
      transport_->sent_.push_back(std::move(sent));
      transport_->changed_.NotifyAll();
    }
    void Close() override {}

   private:
    ScriptedTransport* const transport_;
    const size_t number_;
    const std::string address_;
  };

  Mutex mutex_;
  CondVar changed_;
  std::vector<StreamCallbacks> streams_ ABSL_GUARDED_BY(mutex_);
  std::vector<Sent> sent_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
