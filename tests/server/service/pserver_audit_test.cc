// What a pserver writes to its audit log about the streams of its peers, and what it does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/security/job_passes.h"
#include "server/service/pserver.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/security/recorded_audit.h"
#include "tests/server/replicated_job.h"
#include "tests/server/test_worker.h"

namespace sluice {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class SilentStream : public Stream {
 public:
  void Send(Message) override {}
  void Close() override {}
};

class PserverAuditTest : public testing::Test {
 protected:
  PserverAuditTest() : spec_(MakeSpec(2, /*a_sync=*/false, 0)), pserver_(Resources()) {
    spec_.set_instance(9);
    spec_.set_pass_key(key_);
    worker_.verified = true;
    worker_.role = PeerRole::kWorker;
    worker_.address = "10.0.0.7:51230";
    Reconcile({spec_});
  }

  JobResources Resources() {
    JobResources resources = TestResources(&clock_);
    resources.audit = audit_.log();
    return resources;
  }
  void Reconcile(const std::vector<JobSpec>& specs) {
    pserver_.Reconcile(kSelf, {specs.begin(), specs.end()});
  }

  // A worker's stream, and what it says.
  struct Peer {
    std::shared_ptr<FakeStream> stream = std::make_shared<FakeStream>();
    std::unique_ptr<StreamHandler> handler;
    uint64_t next_id = 1;

    // The code of the answer.
    int Say(FrameHeader header, const std::string& payload = "") {
      header.set_request_id(next_id++);
      header.set_last(true);
      if (header.generation() == 0) header.set_generation(1);
      Message bytes;
      if (!payload.empty()) bytes.push_back(Slice::FromString(payload));
      handler->OnMessage(EncodeFrame(header, std::move(bytes)));
      return stream->answers[next_id - 1].code;
    }
  };
  Peer NewPeer() {
    Peer peer;
    peer.handler = pserver_.NewHandler(peer.stream, worker_);
    return peer;
  }
  FrameHeader HelloOf(uint32_t rank, uint64_t incarnation = 1) {
    FrameHeader header;
    Hello* const hello = header.mutable_hello();
    hello->set_protocol(kDataProtocol);
    hello->set_job_id("job-1");
    hello->set_instance(9);
    hello->set_rank(rank);
    hello->set_incarnation(incarnation);
    hello->set_pass(JobPasses(key_).OfWorker(rank, incarnation));
    return header;
  }
  Peer Greeted(uint32_t rank, uint64_t incarnation = 1) {
    Peer peer = NewPeer();
    EXPECT_EQ(peer.Say(HelloOf(rank, incarnation)), 0);
    return peer;
  }
  // A pull of the dense table that waits for a step that has not closed.
  static FrameHeader PullOfStep(uint64_t step) {
    FrameHeader header;
    header.mutable_pull()->set_applied_sequence(step);
    header.mutable_pull()->mutable_parts()->add_table(0);
    header.mutable_pull()->mutable_parts()->add_shard(0);
    header.mutable_pull()->mutable_parts()->add_rows(0);
    return header;
  }

  uint64_t Refusals(const std::string& reason, const char* method = kExchangeMethod) {
    return audit_.Refusals(method, reason);
  }
  uint64_t AllRefusals() {
    uint64_t all = 0;
    for (const auto& [key, n] : audit_.log()->counts().refusals) all += n;
    return all;
  }
  void PassTime(absl::Duration time) {
    clock_.Advance(time);
    pserver_.RecordStrayHellos();
  }

  const std::string key_ = JobPassKey(std::string(32, 'k'), 9);
  FakeClock clock_;
  RecordedAudit audit_{"pserver"};
  JobSpec spec_;
  PeerIdentity worker_;
  Pserver pserver_;
};

TEST_F(PserverAuditTest, AnotherRanksNameAndAReplayedHelloAreRecordedWithWhoAndWhere) {
  FrameHeader hello = HelloOf(1);
  hello.mutable_hello()->set_rank(0);
  EXPECT_EQ(NewPeer().Say(hello), static_cast<int>(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(Refusals("pass"), 1u);
  EXPECT_THAT(audit_.Text(), HasSubstr("\"event\": \"refusal\", \"method\": "
                                       "\"/sluice.Pserver/Exchange\", \"reason\": \"pass\", "
                                       "\"role\": \"worker\", \"name\": \"\", \"address\": "
                                       "\"10.0.0.7:51230\", \"detail\": \"rank 0 of job-1: "));
  const Peer later = Greeted(0, 2);
  EXPECT_EQ(NewPeer().Say(HelloOf(0, 1)), static_cast<int>(absl::StatusCode::kAborted));
  EXPECT_EQ(Refusals("fenced"), 1u);
  EXPECT_THAT(audit_.Text(), HasSubstr("\"reason\": \"fenced\", \"role\": \"worker\""));
  EXPECT_EQ(AllRefusals(), 2u);
}

TEST_F(PserverAuditTest, MalformedMessagesAreRecordedAsInvalid) {
  Peer garbled = NewPeer();
  garbled.handler->OnMessage({Slice::FromString("\x16\x03\x01 hello")});
  EXPECT_EQ(Refusals("invalid"), 1u);
  EXPECT_NE(NewPeer().Say(PullOfStep(0)), 0) << "not a hello";
  EXPECT_EQ(Refusals("invalid"), 2u);
  FrameHeader hello = HelloOf(0);
  hello.mutable_hello()->set_protocol(kDataProtocol + 1);
  EXPECT_NE(NewPeer().Say(hello), 0);
  EXPECT_EQ(Refusals("invalid"), 3u);
  Peer peer = Greeted(0);
  FrameHeader pull = PullOfStep(0);
  pull.mutable_pull()->mutable_parts()->set_table(0, 7);
  for (uint64_t n = 4; n < 6; ++n) {
    EXPECT_EQ(peer.Say(pull), static_cast<int>(absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(Refusals("invalid"), n) << "each request, and the stream goes on";
  }
  EXPECT_EQ(peer.Say(PullOfStep(3)), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(Refusals("invalid"), 6u) << "a step that is not open";
  FrameHeader push;
  push.mutable_push()->set_sequence(1);
  *push.mutable_push()->mutable_parts() = PullOfStep(0).pull().parts();
  push.mutable_push()->mutable_parts()->set_rows(0, 1);
  peer.Say(push, std::string(sizeof(float), '\0'));
  EXPECT_EQ(Refusals("invalid"), 7u) << "a block of another size";
  EXPECT_EQ(AllRefusals(), 7u);
  EXPECT_EQ(peer.Say(PullOfStep(0)), 0);
}

TEST_F(PserverAuditTest, WhoWantsMoreThanItMayHaveIsRecordedWithRoom) {
  Peer peer = Greeted(0);
  for (size_t i = 0; i < JobLedger::kMaxParkedPerWorker; ++i) peer.Say(PullOfStep(1));
  EXPECT_EQ(AllRefusals(), 0u);
  EXPECT_EQ(peer.Say(PullOfStep(1)), static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(Refusals("room"), 1u);
  std::vector<Peer> streams;
  for (size_t i = 0; i < RankStreams::kMaxPerRank; ++i) streams.push_back(Greeted(1));
  EXPECT_EQ(Refusals("room"), 1u);
  streams.push_back(Greeted(1));
  EXPECT_EQ(Refusals("room"), 2u) << "its oldest stream is closed";
}

TEST_F(PserverAuditTest, RacesOfNormalOperationAreNotRecorded) {
  Peer peer = Greeted(0), other = Greeted(1);
  FrameHeader push;
  push.mutable_push()->set_sequence(2);
  push.mutable_push()->set_weight(1);
  push.mutable_push()->mutable_parts()->add_table(0);
  push.mutable_push()->mutable_parts()->add_shard(0);
  push.mutable_push()->mutable_parts()->add_rows(0);
  EXPECT_EQ(peer.Say(push), 0);
  const std::vector<PartError>& errors = peer.stream->answers[peer.next_id - 1].errors;
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].status(), PART_OUT_OF_ORDER);
  FrameHeader stale = PullOfStep(0);
  stale.set_generation(7);
  EXPECT_EQ(peer.Say(stale), static_cast<int>(absl::StatusCode::kFailedPrecondition));
  // The rank's next life has begun, and this stream has not ended yet.
  const Peer next_life = Greeted(0, 2);
  EXPECT_EQ(peer.Say(PullOfStep(0)), static_cast<int>(absl::StatusCode::kAborted));
  // The job ends while a rank still works for it, and tries again.
  Reconcile({});
  EXPECT_EQ(other.Say(PullOfStep(0)), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(NewPeer().Say(HelloOf(1)), static_cast<int>(absl::StatusCode::kNotFound));
  PassTime(absl::Hours(1));
  EXPECT_EQ(AllRefusals(), 0u);
  EXPECT_THAT(audit_.Text(), IsEmpty());
}

TEST_F(PserverAuditTest, AHelloForAnotherJobIsRecordedUnlessTheJobComesSoon) {
  FrameHeader hello = HelloOf(0), instance = HelloOf(0), early = HelloOf(0);
  hello.mutable_hello()->set_job_id("job-2");
  instance.mutable_hello()->set_instance(8);
  early.mutable_hello()->set_instance(10);
  for (const FrameHeader& header : {hello, instance, early})
    EXPECT_EQ(NewPeer().Say(header), static_cast<int>(absl::StatusCode::kNotFound));
  PassTime(PeerRefusals::kPatience - absl::Seconds(1));
  EXPECT_EQ(AllRefusals(), 0u);
  spec_.set_instance(10);
  Reconcile({spec_});
  PassTime(absl::Seconds(1));
  EXPECT_EQ(Refusals("job"), 2u);
  EXPECT_THAT(audit_.Text(), HasSubstr("\"reason\": \"job\", \"role\": \"worker\", \"name\": "
                                       "\"\", \"address\": \"10.0.0.7:51230\", \"detail\": "
                                       "\"rank 0 of job-2: "));
  PassTime(absl::Hours(1));
  EXPECT_EQ(AllRefusals(), 2u);
}

TEST_F(PserverAuditTest, HellosForOtherJobsAreBoundedAndNotLostAtTheEnd) {
  FrameHeader hello = HelloOf(0);
  for (size_t i = 0; i < PeerRefusals::kMaxWaiting; ++i) {
    hello.mutable_hello()->set_job_id("guess-" + std::to_string(i));
    NewPeer().Say(hello);
  }
  EXPECT_EQ(Refusals("job"), 0u);
  hello.mutable_hello()->set_job_id("one more");
  NewPeer().Say(hello);
  EXPECT_EQ(Refusals("job"), 1u);
  hello.mutable_hello()->set_job_id(std::string(1000, 'x'));
  NewPeer().Say(hello);
  EXPECT_EQ(Refusals("invalid"), 1u) << "no job has such a name, so it is not kept";
  pserver_.Stop();
  EXPECT_EQ(Refusals("job"), PeerRefusals::kMaxWaiting + 1);
}

TEST_F(PserverAuditTest, WhatIsRefusedToOtherPserversIsRecorded) {
  JobSpec spec = Replicated(1);
  spec.set_instance(9);
  spec.set_pass_key(key_);
  spec.set_follower(1, 1);
  Reconcile({});
  pserver_.Reconcile(kFollower, {&spec, &spec + 1});
  PeerIdentity pserver;
  pserver.verified = true;
  pserver.role = PeerRole::kPserver;
  pserver.name = "4";
  std::vector<std::unique_ptr<StreamHandler>> handlers;
  const auto say = [&](const ReplicaHeader& header) {
    handlers.push_back(pserver_.NewReplicaHandler(std::make_shared<SilentStream>(), pserver));
    handlers.back()->OnMessage(EncodeReplica(header, {}));
  };
  ReplicaHeader header;
  *header.mutable_hello() = sluice::HelloOf(spec);
  say(header);
  EXPECT_EQ(Refusals("pass", kReplicaMethod), 1u);
  EXPECT_THAT(audit_.Text(), HasSubstr("\"role\": \"pserver\", \"name\": \"4\""));
  header.mutable_hello()->set_protocol(kDataProtocol + 1);
  say(header);
  EXPECT_EQ(Refusals("invalid", kReplicaMethod), 1u);
  header.mutable_hello()->set_protocol(kDataProtocol);
  header.mutable_hello()->set_pass(JobPasses(key_).OfPserver(0));
  header.mutable_hello()->set_generation(0);
  say(header);
  EXPECT_EQ(AllRefusals(), 2u) << "an old route, which a primary may have for a moment";
  header.mutable_hello()->set_generation(spec.route().generation());
  say(header);
  EXPECT_EQ(AllRefusals(), 2u);
  ReplicaHeader misfit;
  misfit.mutable_piece()->set_table(1);
  handlers.back()->OnMessage(EncodeReplica(misfit, {}));
  EXPECT_EQ(Refusals("invalid", kReplicaMethod), 2u);
  header.mutable_hello()->set_instance(7);
  say(header);
  PassTime(PeerRefusals::kPatience);
  EXPECT_EQ(Refusals("job", kReplicaMethod), 1u);
  handlers.clear();
}

}  // namespace
}  // namespace sluice
