// stream_round_trip/4KiB and stream_push/4MiB: streams of grpc_transport over loopback, with client
// and server in this process.
//
// The limits are the same exchange over one plain TCP connection.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/suite.h"
#include "bench/tcp_loopback.h"
#include "common/base/mutex.h"
#include "common/transport/grpc_stream_server.h"
#include "common/transport/grpc_transport.h"

namespace sluice::bench {
namespace {

// Answers every message with `answer_bytes` bytes.
class Answerer : public StreamHandler {
 public:
  Answerer(std::shared_ptr<Stream> stream, std::shared_ptr<const std::vector<char>> answer)
      : stream_(std::move(stream)), answer_(std::move(answer)) {}
  void OnMessage(Message message) override {
    stream_->Send({Slice(answer_->data(), answer_->size(), answer_)});
  }
  void OnClosed() override {}

 private:
  const std::shared_ptr<Stream> stream_;
  const std::shared_ptr<const std::vector<char>> answer_;
};

class GrpcLoopback {
 public:
  GrpcLoopback(size_t message_bytes, size_t answer_bytes)
      : message_(std::make_shared<std::vector<char>>(message_bytes)),
        server_({}, [answer = std::make_shared<const std::vector<char>>(answer_bytes)](
                        std::shared_ptr<Stream> stream, const PeerIdentity&) {
          return std::make_unique<Answerer>(std::move(stream), answer);
        }) {}

  absl::Status Start() {
    if (absl::Status s = server_.Start(); !s.ok()) return s;
    StreamCallbacks callbacks;
    callbacks.on_message = [this](Message) { Change(1, false); };
    callbacks.on_closed = [this](absl::Status) { Change(0, true); };
    stream_ = transport_.Connect(absl::StrCat("127.0.0.1:", server_.port()), std::move(callbacks));
    return absl::OkStatus();
  }

  ~GrpcLoopback() {
    stream_.reset();
    server_.Shutdown();
  }

  // Like TcpLoopback::Run.
  double Run(int messages, int in_flight) {
    {
      MutexLock lock(&mutex_);
      answered_ = 0;
    }
    const double start = Now();
    for (int sent = 0; sent < messages; ++sent) {
      if (!AwaitAnswers(sent - in_flight + 1)) break;
      stream_->Send({Slice(message_->data(), message_->size(), message_)});
    }
    AwaitAnswers(messages);
    return Now() - start;
  }

 private:
  void Change(int answers, bool closed) {
    MutexLock lock(&mutex_);
    answered_ += answers;
    closed_ = closed_ || closed;
    changed_.NotifyOne();
  }
  bool AwaitAnswers(int n) {
    MutexLock lock(&mutex_);
    while (answered_ < n && !closed_) changed_.Wait(&mutex_);
    return answered_ >= n;
  }

  const std::shared_ptr<std::vector<char>> message_;
  GrpcStreamServer server_;
  GrpcTransport transport_;
  Mutex mutex_;
  CondVar changed_;
  int answered_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Stream> stream_;
};

struct Shape {
  size_t message_bytes, answer_bytes;
  int messages, quick_messages, in_flight;
};

// `figure` converts seconds to the row's unit.
Benchmark StreamBenchmark(std::string name, std::string unit, std::string limit_name, Shape shape,
                          std::function<double(int messages, double seconds)> figure) {
  Benchmark benchmark{std::move(name), std::move(unit), std::move(limit_name), nullptr};
  benchmark.prepare = [shape, figure = std::move(figure)](
                          const Settings& settings) -> absl::StatusOr<std::function<Sample()>> {
    auto tcp = TcpLoopback::Create({shape.message_bytes, shape.answer_bytes});
    if (!tcp.ok()) return tcp.status();
    auto grpc = std::make_shared<GrpcLoopback>(shape.message_bytes, shape.answer_bytes);
    if (absl::Status s = grpc->Start(); !s.ok()) return s;
    const int messages = settings.quick ? shape.quick_messages : shape.messages;
    return std::function<Sample()>(
        [shape, figure, messages, grpc, tcp = std::shared_ptr<TcpLoopback>(*std::move(tcp))] {
          Sample sample;
          sample.limit = figure(messages, tcp->Run(messages, shape.in_flight));
          sample.value = figure(messages, grpc->Run(messages, shape.in_flight));
          return sample;
        });
  };
  return benchmark;
}

}  // namespace

void AddStreamBenchmarks(std::vector<Benchmark>* to) {
  to->push_back(StreamBenchmark(
      "stream_round_trip/4KiB", "us", "plain TCP, 4 KiB each way", {4096, 4096, 2000, 50, 1},
      [](int messages, double seconds) { return seconds / messages * 1e6; }));
  constexpr size_t kBytes = 4 << 20;
  to->push_back(StreamBenchmark(
      "stream_push/4MiB", "GB/s", "plain TCP, 4 in flight", {kBytes, 64, 64, 6, 4},
      [](int messages, double seconds) { return messages * double{kBytes} / seconds / 1e9; }));
}

}  // namespace sluice::bench
