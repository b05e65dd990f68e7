#include "common/transport/served_streams.h"

#include <gtest/gtest.h>

#include <list>

#include "tests/common/base/failing_allocations.h"
#include "tests/common/security/recorded_audit.h"

namespace sluice {
namespace {

constexpr char kMethod[] = "/sluice.Pserver/Exchange";

class FakeStream final : public ServedStream {
 public:
  std::shared_ptr<ServedStream> Hold() override {
    return gone ? nullptr : std::shared_ptr<ServedStream>(this, [](ServedStream*) {});
  }
  bool ending() override { return closed; }
  size_t queued_bytes() override { return claimed ? 0 : queued; }
  size_t incoming_bytes() override { return claimed ? 0 : incoming; }
  bool ClaimCut() override { return !std::exchange(claimed, true); }
  void Cut(const absl::Status& why) override {
    ++cuts;
    status = why;
  }
  void Abort(const absl::Status& why) override { status = why; }

  size_t queued = 0, incoming = 0;
  bool closed = false, gone = false, claimed = false;
  int cuts = 0;
  absl::Status status;
};

class ServedStreamsTest : public ::testing::Test {
 protected:
  ServedStreamsTest() {
    bounds_.max_streams = 3;
    bounds_.max_total_queued_bytes = bounds_.max_total_incoming_bytes = 100;
  }
  ServedStreams* table() {
    if (table_ != nullptr) return table_.get();
    RoomReports::Options reports;
    reports.audit = audit_.log();
    reports.on_cut = [this](const std::string& address, const absl::Status&) {
      reported_.push_back(address);
    };
    table_ = std::make_unique<ServedStreams>(bounds_, reports);
    return table_.get();
  }
  FakeStream* NewStream() { return &streams_.emplace_back(); }
  // A stream that has spoken.
  FakeStream* Open(const std::string& address, const void* owner = nullptr,
                   const std::string& certificate = "") {
    FakeStream* const stream = NewStream();
    EXPECT_TRUE(Admit(stream, address, owner, certificate).ok());
    table()->Spoke(stream);
    return stream;
  }
  // Without TLS, unless there is a certificate.
  absl::Status Admit(FakeStream* stream, const std::string& address, const void* owner = nullptr,
                     const std::string& certificate = "") {
    const std::string role = certificate.empty() ? "unverified" : "worker";
    return table()->Admit(stream, owner, {role, certificate, address}, kMethod);
  }

  uint64_t reports() {
    return audit_.Refusals(kMethod, "room") + audit_.Refusals(kMethod, "invalid");
  }

  StreamBounds bounds_;
  RecordedAudit audit_{"served_streams_test"};
  std::vector<std::string> reported_;  // cuts of streams that are not read

 private:
  std::list<FakeStream> streams_;
  std::unique_ptr<ServedStreams> table_;
};

TEST_F(ServedStreamsTest, AFullTableRefusesAndAnEndedStreamMakesRoom) {
  Open("h:1");
  FakeStream* const second = Open("h:2");
  Open("h:3");
  FakeStream late;
  EXPECT_EQ(Admit(&late, "h:4").code(), absl::StatusCode::kResourceExhausted);
  second->closed = true;
  EXPECT_TRUE(Admit(&late, "h:4").ok());
  EXPECT_EQ(second->cuts, 1);
  table()->Remove(&late);
}

TEST_F(ServedStreamsTest, EachEndedStreamMakesRoomOnce) {
  FakeStream* const first = Open("h:1");
  FakeStream* const second = Open("h:2");
  Open("h:3");
  first->closed = second->closed = true;
  // The servers have not removed the ended streams yet.
  Open("h:4");
  Open("h:5");
  EXPECT_EQ(first->cuts, 1);
  EXPECT_EQ(second->cuts, 1);
  FakeStream late;
  EXPECT_EQ(Admit(&late, "h:6").code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ServedStreamsTest, ACertificateThatFillsTheTableLosesItsNewestToOthers) {
  bounds_.max_streams = 4;
  FakeStream* const other = Open("h:1", nullptr, "0");
  FakeStream* const oldest = Open("g:1", nullptr, "7");
  FakeStream* const newest_of_busiest = Open("g:2", nullptr, "7");
  FakeStream* const newest = Open("i:3", nullptr, "7");
  FakeStream* const late = Open("h:2", nullptr, "0");
  EXPECT_EQ(newest_of_busiest->cuts, 1);
  EXPECT_EQ(newest_of_busiest->status.code(), absl::StatusCode::kResourceExhausted);
  for (const FakeStream* kept : {other, oldest, newest, late}) EXPECT_EQ(kept->cuts, 0);
}

TEST_F(ServedStreamsTest, ACertificateThatFillsTheTableEndsNobodysAnswer) {
  FakeStream* const answered = Open("h:1", nullptr, "0");
  Open("g:1", nullptr, "7");
  Open("g:2", nullptr, "7");
  answered->closed = true;
  FakeStream late;
  EXPECT_EQ(Admit(&late, "g:3", nullptr, "7").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(answered->cuts, 0);
}

TEST_F(ServedStreamsTest, ACertificateThatFillsTheTableGetsThePlacesOfItsOwnThatHaveEnded) {
  Open("h:1", nullptr, "0");
  FakeStream* const ended = Open("g:1", nullptr, "7");
  FakeStream* const open = Open("g:2", nullptr, "7");
  ended->closed = true;  // its worker does not read the end, and another one takes its place
  Open("i:1", nullptr, "7");
  EXPECT_EQ(ended->cuts, 1);
  EXPECT_EQ(open->cuts, 0);
}

TEST_F(ServedStreamsTest, APeerBeyondItsBoundEndsNobodysStream) {
  bounds_.max_streams_per_peer = 2;
  FakeStream* const ended = Open("h:1");
  Open("g:1");
  Open("g:2");
  ended->closed = true;
  FakeStream late;
  EXPECT_EQ(Admit(&late, "g:3").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ended->cuts, 0);
}

TEST_F(ServedStreamsTest, TheMostQueuedIsCutAndReportedOnce) {
  FakeStream* const small = Open("h:1");
  FakeStream* const large = Open("h:2");
  small->queued = 30;
  large->queued = 80;
  EXPECT_FALSE(table()->queued()->Add(110));
  table()->CutMostQueued();
  // Its bytes come back later; nobody else is cut for them.
  table()->CutMostQueued();
  EXPECT_EQ(small->cuts, 0);
  EXPECT_EQ(large->cuts, 1);
  EXPECT_EQ(large->status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(reported_, std::vector<std::string>{"h:2"});
}

TEST_F(ServedStreamsTest, AStreamForWhichThereIsNoMemoryIsNotInTheTable) {
  bounds_.max_streams = 2;
  Open("h:1", this);
  FakeStream* const stream = NewStream();
  const int failures = FailEachAllocation(
      [&] { EXPECT_TRUE(Admit(stream, "h:2", this, "a certificate with a name").ok()); },
      [&] { EXPECT_EQ(table()->CountOf(this), 1); });
  EXPECT_GT(failures, 5);
  EXPECT_EQ(table()->CountOf(this), 2);
}

TEST_F(ServedStreamsTest, AStreamThatEndsForSeveralReasonsIsReportedOnce) {
  Open("h:1");
  FakeStream* const answered = Open("h:2");
  Open("h:3");
  answered->closed = true;
  answered->queued = 150;                 // its client does not read the rest
  FakeStream* const large = Open("h:4");  // for which it makes room
  EXPECT_EQ(answered->cuts, 1);
  EXPECT_EQ(reports(), 1u);
  table()->CutMostQueued();
  table()->Cut(answered, absl::DeadlineExceededError("not read in time"));
  table()->EndFaulty(answered, absl::DataLossError("no message"));
  table()->GiveUpSilent(answered, absl::DeadlineExceededError("no message in time"));
  EXPECT_EQ(reports(), 1u);
  EXPECT_TRUE(reported_.empty());

  large->queued = 150;
  table()->CutMostQueued();
  EXPECT_EQ(reports(), 2u);
  large->closed = true;
  Open("h:5");
  EXPECT_EQ(large->cuts, 2) << "gone for good, whatever it was cut for before";
  EXPECT_EQ(reports(), 2u);
}

TEST_F(ServedStreamsTest, AFaultyStreamThatIsNotReadIsCut) {
  FakeStream* const faulty = Open("h:1");
  table()->EndFaulty(faulty, absl::DataLossError("no message"));
  EXPECT_EQ(faulty->cuts, 0);
  table()->Cut(faulty, absl::DeadlineExceededError("not read in time"));
  EXPECT_EQ(faulty->cuts, 1);
  EXPECT_EQ(reports(), 1u);
}

TEST_F(ServedStreamsTest, WhenMemoryIsShortTheMostQueuedIsCutBelowTheBound) {
  constexpr size_t kPiece = ByteBudget::kPiece;
  size_t left = 2 * kPiece;
  bounds_.max_total_queued_bytes = bounds_.max_total_incoming_bytes = 100 * kPiece;
  bounds_.take_memory = [&left](size_t bytes) {
    if (bytes > left) return false;
    left -= bytes;
    return true;
  };
  FakeStream* const small = Open("h:1");
  FakeStream* const large = Open("h:2");
  small->queued = kPiece;
  large->queued = 2 * kPiece;
  EXPECT_FALSE(table()->queued()->Add(3 * kPiece));
  table()->CutMostQueued();
  EXPECT_EQ(large->cuts, 1);
  EXPECT_EQ(small->cuts, 0);
  EXPECT_FALSE(table()->incoming()->Add(1)) << "the same memory";
}

TEST_F(ServedStreamsTest, UnfinishedMessagesAreCutUntilThereIsRoom) {
  FakeStream* const small = Open("h:1");
  FakeStream* const middle = Open("h:2");
  FakeStream* const large = Open("h:3");
  small->incoming = 20;
  middle->incoming = 30;
  large->incoming = 50;
  table()->CutMostIncoming(10);
  EXPECT_EQ(large->cuts, 1);
  EXPECT_EQ(middle->cuts, 0);
  table()->CutMostIncoming(50);
  EXPECT_EQ(middle->cuts, 0) << "there is room once the first has given its bytes back";
  table()->CutMostIncoming(60);
  EXPECT_EQ(middle->cuts, 1);
  EXPECT_EQ(small->cuts, 0);
}

TEST_F(ServedStreamsTest, AStreamThatIsAboutToGoIsLeftAlone) {
  FakeStream* const gone = Open("h:1");
  gone->gone = true;
  gone->queued = 200;
  table()->CutMostQueued();
  table()->AbortAll(nullptr, absl::UnavailableError("over"));
  EXPECT_EQ(gone->cuts, 0);
  EXPECT_TRUE(gone->status.ok());
}

TEST_F(ServedStreamsTest, ServersEndTheirOwnStreams) {
  const int a = 0, b = 0;
  FakeStream* const of_a = Open("h:1", &a);
  FakeStream* const of_b = Open("h:2", &b);
  EXPECT_EQ(table()->CountOf(&a), 1);
  table()->AbortAll(&a, absl::UnavailableError("over"));
  EXPECT_EQ(of_a->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(of_b->status.ok());
}

TEST(ByteBudgetTest, ABoundIsKeptAndASmallOneDoesNotBlockForEver) {
  ByteBudget budget(10);
  EXPECT_TRUE(budget.TryAdd(6));
  EXPECT_FALSE(budget.TryAdd(5));
  EXPECT_EQ(budget.bytes(), 6u);
  EXPECT_TRUE(budget.TryAdd(4));
  budget.Sub(10);
  EXPECT_TRUE(budget.TryAdd(11)) << "nobody holds anything";
  EXPECT_FALSE(budget.Add(1));
}

TEST(ByteBudgetTest, WhatIsHeldIsTakenFromMemoryInPieces) {
  constexpr size_t kPiece = ByteBudget::kPiece;
  size_t left = 3 * kPiece;
  ByteBudget budget(100 * kPiece, [&](size_t bytes) {
    if (bytes > left) return false;
    left -= bytes;
    return true;
  });
  EXPECT_TRUE(budget.Add(1));
  EXPECT_EQ(left, 2 * kPiece);
  EXPECT_TRUE(budget.Add(kPiece - 1)) << "paid for";
  EXPECT_EQ(left, 2 * kPiece);
  EXPECT_TRUE(budget.TryAdd(2 * kPiece));
  EXPECT_EQ(left, 0u);
  EXPECT_FALSE(budget.TryAdd(1));
  EXPECT_EQ(budget.max(), 3 * kPiece);
  EXPECT_FALSE(budget.Add(1)) << "it is held already, and whoever holds the most must give way";
  left = kPiece;  // somebody has freed memory
  EXPECT_TRUE(budget.Add(1));
  EXPECT_EQ(budget.max(), 100 * kPiece);
  budget.Sub(3 * kPiece + 2);
  EXPECT_TRUE(budget.Add(kPiece)) << "paid for";
  EXPECT_FALSE(budget.Add(1)) << "what was given back is not";
}

TEST(RoomReportsTest, APeerIsACertificateOnAHostAndNotOnEachOfItsAddresses) {
  EXPECT_EQ(PeerOn({"worker", "3", "10.0.0.7:5000"}), "worker 3@10.0.0.7");
  const std::string peer = PeerOn({"worker", "3", "[2001:db8:0:1::7]:5000"});
  EXPECT_EQ(PeerOn({"worker", "3", "[2001:db8:0:1:ffff::9]:80"}), peer);
  EXPECT_NE(PeerOn({"worker", "3", "[2001:db8:0:2::7]:5000"}), peer);
  EXPECT_NE(PeerOn({"worker", "4", "[2001:db8:0:1::7]:5000"}), peer);
}

TEST(RoomReportsTest, OnlyVerifiedCallersHaveACertificate) {
  EXPECT_EQ(CertificateOf({"worker", "3", "10.0.0.7:5000"}), "worker 3");
  EXPECT_NE(CertificateOf({"worker", "", "10.0.0.7:5000"}), "");
  EXPECT_EQ(CertificateOf({"unverified", "", "10.0.0.7:5000"}), "");
  EXPECT_EQ(CertificateOf({"none", "", "10.0.0.7:5000"}), "");
}

TEST(RoomReportsTest, AFloodOfCutsIsCountedAndWritesFewLines) {
  int lines = 0, cuts = 0;
  RoomReports::Options options;
  options.log = [&](const std::string&) { ++lines; };
  options.on_cut = [&](const std::string&, const absl::Status&) { ++cuts; };
  RoomReports reports(std::move(options));
  const int flood = 3 * LimitedLog::kBurstOfCallers;
  for (int i = 0; i < flood; ++i)
    reports.Cut({"worker", "3", "h:1"}, "/method", absl::ResourceExhaustedError("reads nothing"));
  EXPECT_EQ(cuts, flood);
  EXPECT_GE(lines, LimitedLog::kBurstOfCallers);
  EXPECT_LT(lines, 2 * LimitedLog::kBurstOfCallers);
}

}  // namespace
}  // namespace sluice
