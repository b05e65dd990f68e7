// Speaks to a follower as a primary and as a successor, message by message.
#include "server/service/replica_handler.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "server/tables/job_tables.h"
#include "tests/common/base/fake_clock.h"
#include "tests/server/replicated_job.h"

namespace sluice {
namespace {

// The handler's end of a stream, which records what it sends.
class RecordingStream : public Stream {
 public:
  void Send(Message message) override { sent.push_back(DecodeReplica(std::move(message))->header); }
  void Close() override { closed = true; }

  std::vector<ReplicaHeader> sent;
  bool closed = false;
};

class ReplicaHandlerTest : public testing::Test {
 protected:
  // A stream and its handler.
  struct Peer {
    std::shared_ptr<RecordingStream> stream = std::make_shared<RecordingStream>();
    std::unique_ptr<ReplicaHandler> handler;

    void Say(const ReplicaHeader& header) { handler->OnMessage(EncodeReplica(header, {})); }
    void Say(const ReplicaHello& hello) {
      ReplicaHeader header;
      *header.mutable_hello() = hello;
      Say(header);
    }
    const ReplicaHeader& last() const { return stream->sent.back(); }
    // The code of the last answer, if it ended the stream.
    absl::StatusCode refusal() const {
      return stream->closed ? static_cast<absl::StatusCode>(last().code()) : absl::StatusCode::kOk;
    }
  };

  // Pserver 1, which follows pserver 0 and has no follower itself.
  ReplicaHandlerTest() : spec_(Replicated(1)) {
    spec_.set_instance(9);
    spec_.set_follower(1, 1);
    auto job = JobTables::Open(spec_, kFollower, TestResources(&clock_));
    EXPECT_TRUE(job.ok()) << job.status();
    job_ = *std::move(job);
    primary_ = FirstView(LayoutsOf(spec_), UpdatePolicy(), spec_.route(), kSelf);
    EXPECT_EQ(PushToBlock(primary_->FindShard(0, 0), {0, 1, 1, 1}, 6).status, PART_OK);
  }
  ~ReplicaHandlerTest() override {
    if (job_ != nullptr) job_->Close();
  }

  Peer NewPeer() {
    Peer peer;
    peer.handler = std::make_unique<ReplicaHandler>(
        peer.stream, [this](const std::string& id) { return id == "job-1" ? job_ : nullptr; });
    return peer;
  }
  // Makes a primary that has sent the images of its shards, or only the first.
  Peer Seeded(bool all = true) {
    Peer peer = NewPeer();
    peer.Say(HelloOf(spec_));
    EXPECT_EQ(peer.refusal(), absl::StatusCode::kOk) << peer.last().message();
    bool more = true;
    primary_->ForEachShard([&](Shard* shard) {
      if (more) {
        for (const Message& message : ImageOf(shard)) peer.handler->OnMessage(message);
      }
      more = all;
    });
    return peer;
  }
  static ReplicaHeader Complete() {
    ReplicaHeader header;
    header.set_complete(true);
    header.set_position(1);
    return header;
  }
  // Makes a primary whose copies are complete.
  Peer Completed() {
    Peer peer = Seeded();
    peer.Say(Complete());
    EXPECT_TRUE(HasComplete());
    return peer;
  }
  // A piece of an image that has not begun.
  static ReplicaHeader Misfit() {
    ReplicaHeader header;
    header.mutable_piece()->set_table(1);
    return header;
  }
  // A route in which another process may take over from pserver 0.
  ReplicaHello SuccessorOf(uint64_t generation) {
    spec_.mutable_route()->set_generation(generation);
    const absl::Status taken = job_->UpdateRoute(spec_);
    EXPECT_TRUE(taken.ok()) << taken;
    return HelloOf(spec_, /*read=*/true);
  }
  int copies() { return job_->Report().copies_size(); }
  bool HasComplete() {
    const HostedJob report = job_->Report();
    return report.copies_size() == 1 && report.copies(0).complete();
  }

  FakeClock clock_;
  JobSpec spec_;
  std::shared_ptr<JobTables> job_;
  std::shared_ptr<const JobView> primary_;
};

TEST_F(ReplicaHandlerTest, AStreamBeginsWithAHelloAndEndsWithItsFirstError) {
  Peer silent = NewPeer(), garbled = NewPeer();
  silent.Say(Complete());
  EXPECT_EQ(silent.refusal(), absl::StatusCode::kInvalidArgument);
  silent.Say(HelloOf(spec_));
  EXPECT_EQ(silent.stream->sent.size(), 1u) << "it is over";
  garbled.handler->OnMessage({Slice::FromString("what is this")});
  EXPECT_EQ(garbled.refusal(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(copies(), 0);
}

TEST_F(ReplicaHandlerTest, AnImageSentTwiceDoesNotStandForAnother) {
  Peer peer = Seeded(/*all=*/false);
  EXPECT_EQ(peer.refusal(), absl::StatusCode::kOk);
  peer.handler->OnMessage(ImageOf(primary_->FindShard(0, 0)).front());
  EXPECT_EQ(peer.refusal(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(copies(), 0);
}

TEST_F(ReplicaHandlerTest, RefusesAnImageWithMoreWaitingFramesThanTheJobAllows) {
  std::vector<Message> image = ImageOf(primary_->FindShard(0, 0));
  DecodedReplica first = DecodeReplica(image.front()).value();
  first.header.mutable_seed()->set_held_frames(1);  // gradients_to_wait is 1
  image.front() = EncodeReplica(first.header, {});
  Peer peer = NewPeer();
  peer.Say(HelloOf(spec_));
  for (const Message& message : image) peer.handler->OnMessage(message);
  EXPECT_EQ(peer.refusal(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ReplicaHandlerTest, RefusesAHelloThatItCannotServe) {
  const auto refusal = [&](const std::function<void(ReplicaHello*)>& change) {
    ReplicaHello hello = HelloOf(spec_);
    change(&hello);
    Peer peer = NewPeer();
    peer.Say(hello);
    return peer.refusal();
  };
  using Hello = ReplicaHello;
  EXPECT_EQ(refusal([](Hello* h) { h->set_protocol(kDataProtocol + 1); }),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal([](Hello* h) { h->set_job_id("job-2"); }), absl::StatusCode::kNotFound);
  EXPECT_EQ(refusal([](Hello* h) { h->set_job_id(std::string(257, 'j')); }),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal([](Hello* h) { h->set_instance(8); }), absl::StatusCode::kNotFound);
  EXPECT_EQ(refusal([](Hello* h) { h->set_generation(0); }), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refusal([](Hello* h) { h->set_pserver(1); }), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refusal([](Hello* h) { h->set_pserver(2); }), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal([](Hello* h) { h->set_read(true); }), absl::StatusCode::kNotFound);
  EXPECT_EQ(refusal([](Hello*) {}), absl::StatusCode::kOk);
}

TEST_F(ReplicaHandlerTest, OnlyThePserverItselfMaySendOrReadCopies) {
  job_->Close();
  spec_.set_pass_key(JobPassKey(std::string(32, 'k'), spec_.instance()));
  job_ = JobTables::Open(spec_, kFollower, TestResources(&clock_)).value();
  const JobPasses passes(spec_.pass_key());
  const auto refusal = [&](bool read, const std::string& pass) {
    ReplicaHello hello = HelloOf(spec_, read);
    hello.set_pass(pass);
    Peer peer = NewPeer();
    peer.Say(hello);
    return peer.refusal();
  };
  for (const bool read : {false, true}) {
    EXPECT_EQ(refusal(read, ""), absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(refusal(read, passes.OfPserver(1)), absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(refusal(read, passes.OfWorker(0, 1)), absl::StatusCode::kPermissionDenied);
  }
  EXPECT_EQ(copies(), 0);
  EXPECT_EQ(refusal(false, passes.OfPserver(0)), absl::StatusCode::kOk);
}

TEST_F(ReplicaHandlerTest, ConfirmsEachMessageAndKeepsCompleteCopies) {
  {
    Peer primary = NewPeer();
    primary.Say(HelloOf(spec_));
    ASSERT_EQ(primary.stream->sent.size(), 1u);
    EXPECT_EQ(primary.last().code(), 0);
    uint64_t bytes = 0;
    primary_->ForEachShard([&](Shard* shard) {
      for (const Message& message : ImageOf(shard)) {
        const size_t answers = primary.stream->sent.size();
        bytes += DecodeReplica(message)->payload.remaining();
        primary.handler->OnMessage(message);
        ASSERT_EQ(primary.stream->sent.size(), answers + 1);
        EXPECT_EQ(primary.last().seed_bytes(), bytes);
      }
    });
    EXPECT_FALSE(HasComplete());
    primary.Say(Complete());
    EXPECT_EQ(primary.last().confirmed(), 1u);
    EXPECT_TRUE(HasComplete());
  }
  EXPECT_TRUE(HasComplete()) << "the stream is over";
}

TEST_F(ReplicaHandlerTest, IncompleteCopiesEndWithTheirStream) {
  Seeded();
  EXPECT_EQ(copies(), 0);
  Peer early = Seeded(/*all=*/false);
  EXPECT_EQ(copies(), 1);
  early.Say(Complete());
  EXPECT_EQ(early.refusal(), absl::StatusCode::kInvalidArgument) << "shards are missing";
  EXPECT_EQ(copies(), 0);
}

TEST_F(ReplicaHandlerTest, AChangeThatDoesNotFitMakesCompleteCopiesUseless) {
  Peer primary = Completed();
  primary.Say(Misfit());
  EXPECT_EQ(primary.refusal(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(copies(), 0);
}

TEST_F(ReplicaHandlerTest, SealedCopiesConfirmNoChangeAndStay) {
  Peer primary = Completed();
  Peer successor = NewPeer();
  successor.Say(SuccessorOf(2));
  primary.Say(Misfit());
  EXPECT_EQ(primary.refusal(), absl::StatusCode::kAborted);
  EXPECT_TRUE(HasComplete());
}

TEST_F(ReplicaHandlerTest, ASuccessorGetsAllImagesAndThenHasTheCopiesDropped) {
  Completed();
  Peer successor = NewPeer();
  successor.Say(SuccessorOf(2));
  size_t seeds = 0, ends = 0;
  for (const ReplicaHeader& header : successor.stream->sent) {
    seeds += header.has_seed();
    ends += header.has_piece() && header.piece().last();
  }
  EXPECT_EQ(seeds, 5u);
  EXPECT_EQ(ends, 5u);
  EXPECT_TRUE(successor.last().complete());
  const size_t sent = successor.stream->sent.size();
  successor.Say(ReplicaHeader());  // a confirmation
  EXPECT_EQ(successor.stream->sent.size(), sent) << "there is no more to send";
  ReplicaHeader drop;
  drop.set_drop(true);
  successor.Say(drop);
  EXPECT_TRUE(successor.last().drop());
  EXPECT_EQ(copies(), 0);
}

TEST_F(ReplicaHandlerTest, ALaterSuccessorEndsTheReadOfAnEarlierOne) {
  Completed();
  Peer earlier = NewPeer(), confirms = NewPeer(), later = NewPeer();
  const ReplicaHello second = SuccessorOf(2);
  earlier.Say(second);
  confirms.Say(second);
  later.Say(SuccessorOf(3));
  ReplicaHeader drop;
  drop.set_drop(true);
  earlier.Say(drop);
  EXPECT_EQ(earlier.refusal(), absl::StatusCode::kFailedPrecondition);
  confirms.Say(ReplicaHeader());
  EXPECT_EQ(confirms.refusal(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(HasComplete());
  EXPECT_EQ(later.refusal(), absl::StatusCode::kOk);
}

TEST_F(ReplicaHandlerTest, AStreamDoesNotKeepTheTablesOfAJobThatIsGone) {
  Peer primary = Completed();
  const std::weak_ptr<JobTables> tables = job_;
  job_->Close();
  job_.reset();
  EXPECT_TRUE(tables.expired());
  primary.Say(Complete());
  EXPECT_EQ(primary.refusal(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace sluice
