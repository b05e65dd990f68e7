// A server over gRPC and one through shared memory, with one table of streams.
#include <gtest/gtest.h>

#include <thread>

#include "common/shm_transport/shm_handshake.h"
#include "common/shm_transport/shm_stream_server.h"
#include "common/shm_transport/shm_transport.h"
#include "common/transport/grpc_transport.h"
#include "tests/common/transport/grpc_servers.h"
#include "tests/common/transport/recorded_cuts.h"
#include "tests/common/transport/recording_streams.h"

namespace sluice {
namespace {

// Answers with as many MiB as the request has bytes: in one message if it is all of '1', else in
// one for each byte.
void Blocks(Stream* stream, const std::string& text) {
  if (text[0] == '1') return stream->Send({Slice::FromString(std::string(text.size() << 20, 'x'))});
  const std::string block(1 << 20, 'x');
  for (size_t i = 0; i < text.size(); ++i) stream->Send({Slice::FromString(block)});
}

class SharedBoundsTest : public ::testing::Test {
 protected:
  void Start(const StreamBounds& bounds) {
    const auto table = std::make_shared<ServedStreams>(bounds, cuts_.reports());
    ShmStreamServer::Options shm;
    shm.ring_bytes = 1 << 20;
    shm.streams = table;
    shm_ = std::make_unique<ShmStreamServer>(shm, scripted_.factory());
    ASSERT_TRUE(shm_->Start().ok());
    GrpcStreamServer::Options grpc;
    grpc.streams = table;
    grpc_ = std::make_unique<GrpcStreamServer>(grpc, scripted_.factory());
    grpc_->RegisterUnary(
        kOpenSharedMemoryMethod,
        [this](const PeerIdentity& peer, const std::string& request) {
          return shm_->Invite(peer, request);
        },
        GrpcStreamServer::UnaryThread::kOfStreams);
    ASSERT_TRUE(grpc_->Start().ok());
    ShmTransport::Options options;
    options.control = options.fallback = &over_grpc_;
    through_shm_ = std::make_unique<ShmTransport>(options);
  }
  std::string address() const { return AddressOf(*grpc_); }

  RecordedCuts cuts_;
  ScriptedServer scripted_{Blocks};
  std::unique_ptr<ShmStreamServer> shm_;
  std::unique_ptr<GrpcStreamServer> grpc_;
  GrpcTransport over_grpc_, other_grpc_;
  std::unique_ptr<ShmTransport> through_shm_;
};

TEST_F(SharedBoundsTest, StreamsOfBothTransportsCountTogether) {
  StreamBounds bounds;
  bounds.max_streams = 2;
  Start(bounds);
  RecordingClient grpc(&over_grpc_, address()), shm(through_shm_.get(), address());
  for (RecordingClient* client : {&grpc, &shm}) {
    client->Send("x");
    ASSERT_TRUE(client->AwaitMessageOrEnd(1)) << client->status();
  }
  EXPECT_EQ(grpc_->open_streams(), 1);
  EXPECT_EQ(shm_->open_streams(), 1);
  RecordingClient third(through_shm_.get(), address()), fourth(&over_grpc_, address());
  for (RecordingClient* client : {&third, &fourth}) {
    ASSERT_TRUE(client->AwaitClosed());
    EXPECT_EQ(client->status().code(), absl::StatusCode::kResourceExhausted) << client->status();
  }
}

TEST_F(SharedBoundsTest, SilentStreamsOfAPeerCountTogether) {
  StreamBounds bounds;
  bounds.max_silent_streams_per_peer = 2;
  Start(bounds);
  RecordingClient shm(through_shm_.get(), address());
  ASSERT_TRUE(scripted_.AwaitOpened(1));
  RecordingClient first(&over_grpc_, address()), second(&over_grpc_, address());
  ASSERT_TRUE(shm.AwaitClosed()) << "the oldest silent stream of the busiest connection";
  EXPECT_EQ(shm.status().code(), absl::StatusCode::kResourceExhausted) << shm.status();
}

TEST_F(SharedBoundsTest, QueuedBytesOfBothTransportsCountTogether) {
  StreamBounds bounds;
  bounds.max_total_queued_bytes = 40 << 20;
  Start(bounds);
  StalledClient greedy(&other_grpc_, address());
  greedy.stream()->Send({Slice::FromString(std::string(36, 'x'))});
  while (grpc_->queued_bytes() < size_t{24} << 20) std::this_thread::yield();
  RecordingClient modest(through_shm_.get(), address());
  modest.Send(std::string(20, '1'));
  EXPECT_TRUE(modest.AwaitMessageOrEnd(1)) << modest.status();
  EXPECT_TRUE(scripted_.AwaitClosed(1)) << "the stream over gRPC is cut";
  EXPECT_EQ(cuts_.all().size(), 1u);
}

}  // namespace
}  // namespace sluice
