// Unary calls to a GrpcStreamServer: who is refused when, and what an open call costs at most.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/transport/grpc_convert.h"
#include "common/transport/grpc_stream_server.h"
#include "common/transport/grpc_transport.h"
#include "tests/common/security/recorded_audit.h"
#include "tests/common/security/test_certificates.h"
#include "tests/common/transport/grpc_servers.h"
#include "tests/common/transport/recording_streams.h"

namespace sluice {
namespace {

constexpr char kMethod[] = "/sluice.Pserver/SaveShards";
constexpr absl::Duration kPatience = absl::Seconds(60);

// A call of which the server has only the headers, until Ask, and whose answer waits until Read.
class SilentCall {
 public:
  explicit SilentCall(const std::shared_ptr<grpc::Channel>& channel) : stub_(channel) {
    context_.set_deadline(GrpcDeadline(kPatience));
    call_ = stub_.PrepareCall(&context_, kMethod, &queue_);
    call_->StartCall(this);
    Await();
  }
  void Ask(const std::string& request) {
    call_->WriteLast(ToByteBuffer({Slice::FromString(request)}), grpc::WriteOptions(), this);
    Await();
  }
  // Returns the length of the answer.
  size_t Read() {
    grpc::ByteBuffer answer;
    call_->Read(&answer, this);
    Await();
    return answer.Length();
  }
  grpc::StatusCode End() {
    grpc::Status status;
    call_->Finish(&status, this);
    Await();
    return status.error_code();
  }
  ~SilentCall() {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }

 private:
  void Await() {
    void* tag;
    bool ok;
    EXPECT_TRUE(queue_.Next(&tag, &ok));
  }
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

class UnaryCallTest : public testing::Test {
 protected:
  void Serve(GrpcStreamServer::Options options, size_t max_bytes = 100) {
    options.audit = audit_.log();
    server_ = std::make_unique<GrpcStreamServer>(options, nullptr);
    server_->RegisterCall(
        kMethod,
        [this](const std::shared_ptr<UnaryCall>& call, const std::string& request) {
          if (request == "reply") call->Reply(request);
          watched_.Change([&] {
            ++handled_;
            if (request == "keep") kept_.push_back(call);
          });
        },
        GrpcStreamServer::UnaryThread::kOfStreams, max_bytes);
    const absl::Status started = server_->Start();
    ASSERT_TRUE(started.ok()) << started;
  }
  ~UnaryCallTest() override { kept_.clear(); }

  std::shared_ptr<grpc::Channel> Channel() const {
    return grpc::CreateChannel(AddressOf(*server_), grpc::InsecureChannelCredentials());
  }
  absl::StatusCode Call(const std::string& request, absl::Duration timeout = kPatience) {
    return transport_.Call(AddressOf(*server_), kMethod, request, timeout).status().code();
  }
  bool AwaitKept(size_t n) {
    return watched_.Await([&] { return kept_.size() == n; });
  }

  RecordedAudit audit_{"pserver"};
  Watched watched_;
  int handled_ = 0;
  std::unique_ptr<GrpcStreamServer> server_;
  std::vector<std::shared_ptr<UnaryCall>> kept_;
  GrpcTransport transport_;
};

TEST_F(UnaryCallTest, ACallThatSendsOnlyItsHeadersIsEndedAndRecorded) {
  GrpcStreamServer::Options options;
  options.first_message_timeout = absl::Seconds(1);
  Serve(options);
  SilentCall silent(Channel());
  EXPECT_EQ(silent.End(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(audit_.Refusals(kMethod, "room"), 1u);
  EXPECT_EQ(Call("reply"), absl::StatusCode::kOk);
  EXPECT_EQ(handled_, 1);
}

TEST_F(UnaryCallTest, ACallThatHasSentItsRequestMayWaitForLonger) {
  GrpcStreamServer::Options options;
  options.first_message_timeout = absl::Seconds(1);
  Serve(options);
  std::thread caller([&] { EXPECT_EQ(Call("keep"), absl::StatusCode::kOk); });
  ASSERT_TRUE(AwaitKept(1));
  SilentCall silent(Channel());
  EXPECT_EQ(silent.End(), grpc::StatusCode::DEADLINE_EXCEEDED);
  kept_[0]->Reply("late");
  caller.join();
  EXPECT_EQ(audit_.Refusals(kMethod, "room"), 1u);
}

TEST_F(UnaryCallTest, SilentCallsOfAPeerMakeRoomForOnesThatSpeak) {
  GrpcStreamServer::Options options;
  options.threads = 1;  // which takes the calls in their order
  options.call_bounds.max_silent_streams_per_peer = 4;
  Serve(options);
  const auto channel = Channel();
  std::vector<std::unique_ptr<SilentCall>> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(std::make_unique<SilentCall>(channel));
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(silent[i]->End(), grpc::StatusCode::RESOURCE_EXHAUSTED) << i;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Call("reply"), absl::StatusCode::kOk);
  EXPECT_GE(audit_.Refusals(kMethod, "room"), 6u);
}

TEST_F(UnaryCallTest, TheOpenCallsOfAPeerAreBounded) {
  GrpcStreamServer::Options options;
  options.call_bounds.max_streams_per_peer = 3;
  Serve(options);
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i)
    callers.emplace_back([&] { EXPECT_EQ(Call("keep"), absl::StatusCode::kOk); });
  ASSERT_TRUE(AwaitKept(3));
  EXPECT_EQ(Call("reply"), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(audit_.Refusals(kMethod, "room"), 1u);
  for (const auto& call : kept_) call->Reply("done");
  kept_.clear();
  for (std::thread& caller : callers) caller.join();
  while (Call("reply") != absl::StatusCode::kOk) std::this_thread::yield();
}

TEST_F(UnaryCallTest, ACertificateWithAllCallsMakesRoomForOthers) {
  TestCertificates certificates("unary_call");
  GrpcStreamServer::Options options;
  options.credentials = GrpcCredentials::Create(certificates.Of(PeerRole::kPserver, "0")).value();
  options.call_bounds.max_streams = 8;
  Serve(options);
  const auto transport_of = [&](const char* rank) {
    GrpcTransport::Options worker;
    worker.credentials = GrpcCredentials::Create(certificates.Of(PeerRole::kWorker, rank)).value();
    return std::make_unique<GrpcTransport>(worker);
  };
  const auto greedy = transport_of("7"), other = transport_of("0");
  const auto call = [&](GrpcTransport* transport, const std::string& request) {
    return transport->Call(AddressOf(*server_), kMethod, request, kPatience).status().code();
  };
  std::atomic<int> done{0}, no_room{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] {
      const absl::StatusCode code = call(greedy.get(), "keep");
      ++(code == absl::StatusCode::kResourceExhausted ? no_room : done);
      EXPECT_TRUE(code == absl::StatusCode::kOk || code == absl::StatusCode::kResourceExhausted)
          << code;
    });
  }
  ASSERT_TRUE(AwaitKept(8));
  EXPECT_EQ(call(other.get(), "reply"), absl::StatusCode::kOk);
  EXPECT_EQ(audit_.Refusals(kMethod, "room"), 1u);
  for (const auto& kept : kept_) kept->Reply("done");
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(done, 7);
  EXPECT_EQ(no_room, 1);
}

TEST_F(UnaryCallTest, AnUnreadAnswerMakesRoomAndItsCallerLearnsWhy) {
  GrpcStreamServer::Options options;
  options.call_bounds.max_streams = 1;
  Serve(options);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // else gRPC takes much of what nobody reads
  SilentCall slow(grpc::CreateCustomChannel(AddressOf(*server_), grpc::InsecureChannelCredentials(),
                                            arguments));
  slow.Ask("keep");
  ASSERT_TRUE(AwaitKept(1));
  EXPECT_EQ(Call("reply"), absl::StatusCode::kResourceExhausted) << "it has no answer yet";
  kept_[0]->Reply(std::string(4 << 20, 'x'));
  EXPECT_EQ(Call("reply"), absl::StatusCode::kOk);
  EXPECT_EQ(slow.Read(), 0u);
  EXPECT_EQ(slow.End(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(UnaryCallTest, AnAnswerBeyondTheBoundEndsItsCall) {
  GrpcStreamServer::Options options;
  options.call_bounds.max_queued_bytes = 1 << 20;
  Serve(options);
  std::thread caller([&] { EXPECT_EQ(Call("keep"), absl::StatusCode::kResourceExhausted); });
  ASSERT_TRUE(AwaitKept(1));
  kept_[0]->Reply(std::string((1 << 20) + 1, 'x'));
  caller.join();
  EXPECT_EQ(Call("reply"), absl::StatusCode::kOk);
}

TEST_F(UnaryCallTest, TheCallWithTheMostQueuedIsCutWhenAllHaveTooMuch) {
  constexpr size_t kMiB = 1 << 20;
  GrpcStreamServer::Options options;
  options.call_bounds.max_total_queued_bytes = 6 * kMiB;
  Serve(options);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // else gRPC takes much of what nobody reads
  const auto channel =
      grpc::CreateCustomChannel(AddressOf(*server_), grpc::InsecureChannelCredentials(), arguments);
  std::vector<std::unique_ptr<SilentCall>> calls;
  for (size_t mib : {1, 3, 1, 2}) {
    calls.push_back(std::make_unique<SilentCall>(channel));
    calls.back()->Ask("keep");
    ASSERT_TRUE(AwaitKept(calls.size()));
    kept_.back()->Reply(std::string(mib * kMiB, 'x'));
  }
  EXPECT_EQ(calls[1]->Read(), 0u);
  EXPECT_NE(calls[1]->End(), grpc::StatusCode::OK);
  EXPECT_EQ(audit_.Refusals(kMethod, "room"), 1u);
  for (size_t i : {0, 2, 3}) {
    EXPECT_EQ(calls[i]->Read(), (i == 3 ? 2 : 1) * kMiB);
    EXPECT_EQ(calls[i]->End(), grpc::StatusCode::OK);
  }
}

TEST_F(UnaryCallTest, OneConnectionHasABoundedNumberOfCalls) {
  constexpr size_t kCalls = 100;  // BoundConnections
  Serve({});
  const auto channel = Channel();
  std::vector<std::unique_ptr<SilentCall>> calls;
  for (size_t i = 0; i < kCalls; ++i) {
    calls.push_back(std::make_unique<SilentCall>(channel));
    calls.back()->Ask("keep");
  }
  ASSERT_TRUE(AwaitKept(kCalls));
  // The next one waits in the client, as its connection has no room.
  grpc::GenericStub stub(channel);
  const auto call = [&stub](absl::Duration timeout) {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(timeout));
    grpc::CompletionQueue queue;
    const grpc::ByteBuffer request = ToByteBuffer({Slice::FromString("reply")});
    const auto reader = stub.PrepareUnaryCall(&context, kMethod, request, &queue);
    reader->StartCall();
    grpc::ByteBuffer answer;
    grpc::Status status;
    reader->Finish(&answer, &status, nullptr);
    void* tag;
    bool ok;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    return status.error_code();
  };
  EXPECT_EQ(call(absl::Milliseconds(300)), grpc::StatusCode::DEADLINE_EXCEEDED);
  watched_.Change([&] { EXPECT_EQ(handled_, static_cast<int>(kCalls)); });
  EXPECT_EQ(Call("reply"), absl::StatusCode::kOk) << "on another connection";
  for (const auto& kept : kept_) kept->Reply("done");
  EXPECT_EQ(call(kPatience), grpc::StatusCode::OK);
}

TEST_F(UnaryCallTest, ARequestThatIsTooLongNeverReachesItsHandler) {
  Serve({}, 100);
  EXPECT_EQ(Call(std::string(101, 'x')), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Call(std::string(1 << 20, 'x')), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(handled_, 0);
  EXPECT_EQ(audit_.Refusals(kMethod, "invalid"), 2u);
  EXPECT_EQ(Call(std::string(100, 'x')), absl::StatusCode::kInternal) << "dropped by the handler";
  EXPECT_EQ(handled_, 1);
}

TEST_F(UnaryCallTest, ACallerWithoutTheRightIsRefusedBeforeItsRequestComes) {
  TestCertificates certificates("unary_call");
  GrpcStreamServer::Options options;
  options.credentials = GrpcCredentials::Create(certificates.Of(PeerRole::kPserver, "0")).value();
  Serve(options);
  const auto credentials = GrpcCredentials::Create(certificates.Of(PeerRole::kPserver, "1"));
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  SilentCall silent(
      grpc::CreateChannel(AddressOf(*server_), credentials->ForClientOf(PeerRole::kPserver)));
  EXPECT_EQ(silent.End(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(audit_.Refusals(kMethod, "role"), 1u);
}

TEST_F(UnaryCallTest, TheHandlerLearnsThatTheCallerHasGone) {
  Serve({});
  for (const bool asks_before : {true, false}) {
    auto caller = std::make_unique<SilentCall>(Channel());
    caller->Ask("keep");
    ASSERT_TRUE(AwaitKept(1));
    bool told = false;
    const auto ask = [&] { kept_[0]->OnCancel([&] { watched_.Change([&] { told = true; }); }); };
    if (asks_before) ask();
    caller.reset();
    while (!kept_[0]->cancelled()) std::this_thread::yield();
    if (!asks_before) ask();
    EXPECT_TRUE(watched_.Await([&] { return told; }));
    kept_[0]->Reply("to nobody");
    kept_.clear();
  }
}

TEST_F(UnaryCallTest, ACallThatWasAnsweredIsNotCancelled) {
  Serve({});
  bool told = false;
  std::thread caller([&] { EXPECT_EQ(Call("keep"), absl::StatusCode::kOk); });
  ASSERT_TRUE(AwaitKept(1));
  kept_[0]->OnCancel([&] { told = true; });
  kept_[0]->Reply("in time");
  kept_[0]->Reply(absl::InternalError("the first reply counts"));
  caller.join();
  kept_.clear();
  server_->Shutdown();
  EXPECT_FALSE(told);
}

TEST_F(UnaryCallTest, SilentCallsDoNotHoldUpTheEndOfTheServer) {
  Serve({});
  SilentCall silent(Channel());
  server_->Shutdown();
  EXPECT_NE(silent.End(), grpc::StatusCode::OK);
}

}  // namespace
}  // namespace sluice
