// Tests what a connection to a gRPC server may hold. The other bounds are tested where they can be
// shortened: unary_call_test.cc, grpc_stream_server_test.cc and tests/system/hostile_peers_test.py.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/transport/grpc_convert.h"
#include "common/transport/grpc_stream_server.h"
#include "common/transport/grpc_transport.h"
#include "tests/common/transport/grpc_servers.h"
#include "tests/common/transport/recording_streams.h"

namespace sluice {
namespace {

using ::testing::Contains;

constexpr size_t kMessageBytes = size_t{4} << 20;
constexpr int kClients = 4, kMessages = 8;  // of each client

// Drops no message until it is told to.
class Hoard {
 public:
  StreamHandlerFactory factory() {
    return [this](std::shared_ptr<Stream> stream, const PeerIdentity&) {
      return std::make_unique<Handler>(this, std::move(stream));
    };
  }
  size_t bytes() {
    MutexLock lock(&mutex_);
    return bytes_;
  }

 private:
  class Handler : public StreamHandler {
   public:
    Handler(Hoard* hoard, std::shared_ptr<Stream> stream)
        : hoard_(hoard), stream_(std::move(stream)) {}
    void OnMessage(Message message) override {
      {
        MutexLock lock(&hoard_->mutex_);
        hoard_->bytes_ += MessageSize(message);
        hoard_->messages_.push_back(std::move(message));
      }
      stream_->Send({Slice::FromString("taken")});
    }
    void OnClosed() override {}

   private:
    Hoard* const hoard_;
    const std::shared_ptr<Stream> stream_;
  };

  Mutex mutex_;
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Message> messages_ ABSL_GUARDED_BY(mutex_);
};

struct Outcome {
  int taken = 0;                      // of all messages; the server holds them
  std::vector<absl::StatusCode> cut;  // how streams have ended
};
// The bound is `max_received_bytes`, or becomes that once the server has started.
Outcome SendAll(size_t max_received_bytes, bool later = false) {
  Hoard hoard;
  GrpcStreamServer::Options options;
  if (!later) options.max_received_bytes = max_received_bytes;
  const auto server = StartServer(hoard.factory(), options);
  if (later) server->SetMaxReceivedBytes(max_received_bytes);
  std::vector<std::unique_ptr<GrpcTransport>> transports;
  std::vector<std::unique_ptr<RecordingClient>> clients;
  for (int i = 0; i < kClients; ++i) {
    transports.push_back(std::make_unique<GrpcTransport>());
    clients.push_back(
        std::make_unique<RecordingClient>(transports.back().get(), AddressOf(*server)));
  }
  Outcome outcome;
  for (auto& client : clients) {
    bool open = true;
    for (int m = 1; m <= kMessages && open; ++m) {
      client->Send(std::string(kMessageBytes, 'x'));
      open = client->AwaitMessageOrEnd(m);
    }
    client->Destroy();
    if (!open) outcome.cut.push_back(client->status().code());
  }
  outcome.taken = static_cast<int>(hoard.bytes() / kMessageBytes);
  return outcome;
}

// Makes the time without calls, which must be bounded, a thousandth of what it is.
class ShortenIdleTime : public grpc::ServerBuilderOption {
 public:
  explicit ShortenIdleTime(int* idle_ms) : idle_ms_(idle_ms) {}
  void UpdateArguments(grpc::ChannelArguments* arguments) override {
    const grpc_channel_args set = arguments->c_channel_args();
    for (size_t i = 0; i < set.num_args; ++i) {
      if (set.args[i].key != std::string(GRPC_ARG_MAX_CONNECTION_IDLE_MS)) continue;
      *idle_ms_ = set.args[i].value.integer;
      set.args[i].value.integer /= 1000;
    }
  }
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>*) override {}

 private:
  int* const idle_ms_;
};

TEST(ConnectionBoundsTest, AConnectionWithoutCallsIsClosed) {
  grpc::ServerBuilder builder;
  grpc::CallbackGenericService service;  // which has no method
  int port = 0, idle_ms = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&service);
  BoundConnections(grpc::ResourceQuota("server"), &builder);
  builder.SetOption(std::make_unique<ShortenIdleTime>(&idle_ms));
  const auto server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(idle_ms, 300'000);
  const auto channel =
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials());
  const auto deadline = GrpcDeadline(absl::Seconds(20));
  ASSERT_TRUE(channel->WaitForConnected(deadline));
  EXPECT_TRUE(channel->WaitForStateChange(GRPC_CHANNEL_READY, deadline)) << "the server closes it";
  EXPECT_TRUE(channel->WaitForConnected(deadline)) << "clients connect again";
}

TEST(ConnectionBoundsTest, CallsAreCutWhenTooMuchHasBeenReceived) {
  constexpr absl::StatusCode kRefused = absl::StatusCode::kResourceExhausted;
  const Outcome all = SendAll(size_t{4} << 30);
  EXPECT_EQ(all.taken, kClients * kMessages);
  EXPECT_TRUE(all.cut.empty());
  // 32 MiB are 8 of the 32 messages.
  for (const bool later : {false, true}) {
    // On a busy machine the end of a connection can overtake the statuses of its calls.
    std::vector<absl::StatusCode> cut;
    for (int i = 0; i < 10 && std::count(cut.begin(), cut.end(), kRefused) == 0; ++i) {
      const Outcome bounded = SendAll(size_t{32} << 20, later);
      EXPECT_LT(bounded.taken, 16);
      EXPECT_FALSE(bounded.cut.empty());
      cut.insert(cut.end(), bounded.cut.begin(), bounded.cut.end());
    }
    EXPECT_THAT(cut, Contains(kRefused));
  }
}

}  // namespace
}  // namespace sluice
