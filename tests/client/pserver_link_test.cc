#include "client/pserver_link.h"

#include <gtest/gtest.h>

#include "tests/client/scripted_transport.h"
#include "tests/common/base/fake_clock.h"

namespace sluice {
namespace {

class PserverLinkTest : public ::testing::Test, public PserverLink::Listener {
 protected:
  PserverLinkTest() : link_(Options()) {}
  ~PserverLinkTest() override { link_.Shutdown(); }

  PserverLink::Options Options() {
    PserverLink::Options options;
    options.transport = &transport_;
    options.clock = &clock_;
    options.listener = this;
    options.index = 4;
    options.to = "a";
    options.hello.set_job_id("job-1");
    return options;
  }
  void OnOpen(uint32_t link) override { heard_.push_back("open " + std::to_string(link)); }
  void OnReply(uint32_t link, DecodedReply reply) override {
    heard_.push_back("reply " + std::to_string(reply.header.request_id()));
  }
  void OnBroken(uint32_t link) override { heard_.push_back("broken " + std::to_string(link)); }
  void OnHelloRefused(uint32_t link, const ReplyHeader& header) override {
    heard_.push_back("refused " + std::to_string(header.code()));
  }
  void Send(uint64_t request_id) {
    FrameHeader header;
    header.set_request_id(request_id);
    link_.Enqueue(EncodeFrame(header, {}));
    link_.Flush();
  }
  void ConnectWhenDue() {
    const absl::Time due = link_.ConnectIfDue(1);
    if (due == absl::InfiniteFuture()) return;
    clock_.Advance(due - clock_.Now());
    EXPECT_EQ(link_.ConnectIfDue(1), absl::InfiniteFuture());
  }
  using Heard = std::vector<std::string>;

  FakeClock clock_;
  ScriptedTransport transport_;
  Heard heard_;
  PserverLink link_;
};

TEST_F(PserverLinkTest, ATransportThatCannotReachThePserverIsARefusal) {
  EXPECT_EQ(link_.ConnectIfDue(1), absl::InfiniteFuture());
  transport_.stream(0).on_closed(absl::UnimplementedError("--transport=shm: another host"));
  EXPECT_EQ(heard_, (Heard{"refused 12"}));
  EXPECT_FALSE(link_.open());
}

TEST_F(PserverLinkTest, SendsHelloFirstAndRequestsOnceAccepted) {
  EXPECT_EQ(link_.ConnectIfDue(7), absl::InfiniteFuture());
  ASSERT_EQ(transport_.sent().size(), 1u);
  EXPECT_EQ(transport_.sent()[0].header.hello().job_id(), "job-1");
  EXPECT_EQ(transport_.sent()[0].header.generation(), 7u);
  Send(1);
  EXPECT_EQ(transport_.sent().size(), 1u) << "lost: the link is not open";
  EXPECT_FALSE(link_.open());
  transport_.Reply(0, 0);
  EXPECT_TRUE(link_.open());
  Send(2);
  Send(3);
  ASSERT_EQ(transport_.sent().size(), 3u);
  EXPECT_EQ(transport_.sent()[1].header.request_id(), 2u);
  EXPECT_EQ(transport_.sent()[2].header.request_id(), 3u);
  transport_.Reply(0, 2);
  EXPECT_EQ(heard_, (Heard{"open 4", "reply 2"}));
}

TEST_F(PserverLinkTest, ReopensABrokenStreamAfterGrowingPauses) {
  absl::Duration last = absl::ZeroDuration();
  for (int stream = 0; stream < 4; ++stream) {
    ConnectWhenDue();
    transport_.stream(stream).on_closed(absl::UnavailableError("gone"));
    const absl::Duration pause = link_.ConnectIfDue(1) - clock_.Now();
    EXPECT_GT(pause, last);
    last = pause;
  }
  ConnectWhenDue();
  transport_.Reply(4, 0);
  transport_.stream(4).on_closed(absl::OkStatus());
  EXPECT_GT(link_.ConnectIfDue(1) - clock_.Now(), last) << "it was open for a moment only";
  ConnectWhenDue();
  transport_.Reply(5, 0);
  clock_.Advance(absl::Seconds(10));
  transport_.stream(5).on_closed(absl::OkStatus());
  EXPECT_LT(link_.ConnectIfDue(1) - clock_.Now(), absl::Milliseconds(20)) << "it was open";
  EXPECT_EQ(heard_.back(), "broken 4");
  for (int stream = 6; stream < 10; ++stream) {
    ConnectWhenDue();
    transport_.Reply(stream, 0);
    transport_.Reply(stream, 1);
    transport_.stream(stream).on_closed(absl::OkStatus());
    EXPECT_LT(link_.ConnectIfDue(1) - clock_.Now(), absl::Milliseconds(20)) << "it was of use";
  }
}

TEST_F(PserverLinkTest, IgnoresCallbacksOfEarlierStreams) {
  ConnectWhenDue();
  transport_.stream(0).on_closed(absl::UnavailableError("gone"));
  ConnectWhenDue();
  heard_.clear();
  transport_.Reply(0, 0);
  transport_.stream(0).on_closed(absl::OkStatus());
  EXPECT_EQ(heard_, Heard());
  transport_.Reply(1, 0);
  transport_.Reply(0, 9);
  EXPECT_EQ(heard_, (Heard{"open 4"}));
}

TEST_F(PserverLinkTest, RetriesARefusedHelloOnlyIfThePserverMayBecomeReady) {
  ConnectWhenDue();
  transport_.Reply(0, 0, absl::StatusCode::kNotFound);
  EXPECT_EQ(heard_, (Heard{"broken 4"}));
  ConnectWhenDue();
  transport_.Reply(1, 0, absl::StatusCode::kAborted);
  EXPECT_EQ(heard_.back(),
            "refused " + std::to_string(static_cast<int>(absl::StatusCode::kAborted)));
}

TEST_F(PserverLinkTest, BreakDropsQueuedMessagesWithoutCallingTheListener) {
  ConnectWhenDue();
  transport_.Reply(0, 0);
  FrameHeader header;
  header.set_request_id(5);
  link_.Enqueue(EncodeFrame(header, {}));
  link_.Break(absl::NotFoundError("the job is not open"));
  link_.Flush();
  EXPECT_EQ(transport_.sent().size(), 1u) << "only Hello";
  EXPECT_EQ(heard_, (Heard{"open 4"}));
  EXPECT_FALSE(link_.open());
  ConnectWhenDue();
  EXPECT_EQ(transport_.streams(), 2u);
}

TEST_F(PserverLinkTest, LentRepliesAreHeardAsOthers) {
  const auto lend = [&](std::string bytes) {
    transport_.stream(0).on_lent(LentMessage({Slice(bytes.data(), bytes.size(), nullptr)}));
    std::fill(bytes.begin(), bytes.end(), '!');
  };
  ConnectWhenDue();
  ReplyHeader hello;
  hello.set_last(true);
  const Slice bytes = EncodeReply(hello, {}).front();
  lend(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  EXPECT_EQ(heard_, (Heard{"open 4"}));
  lend("what is this");
  EXPECT_EQ(heard_.back(), "broken 4");
}

TEST_F(PserverLinkTest, MalformedReplyBreaksTheStream) {
  ConnectWhenDue();
  transport_.Reply(0, 0);
  transport_.stream(0).on_message({Slice::FromString("what is this")});
  EXPECT_EQ(heard_.back(), "broken 4");
}

}  // namespace
}  // namespace sluice
