#include "common/collective/queued_collective.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/collective/rank_card.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// An engine of a group of one rank. An operation of step `waits_in` lasts until the engine is
// abandoned.
class FakeEngine : public CollectiveEngine {
 public:
  absl::StatusOr<std::string> Listen(uint64_t, uint32_t, uint32_t) override {
    return std::string(card_bytes, 'c');
  }
  absl::Status Join(uint64_t, const std::vector<std::string>& peers,
                    const std::vector<uint32_t>&) override {
    abandoned = false;
    return peers[0].size() == card_bytes ? absl::OkStatus() : absl::DataLossError("another card");
  }
  void Leave() override { left = true; }
  void SetTimeout(absl::Duration) override {}
  absl::Status Reduce(const OperationHeader& header, absl::Span<float>) override {
    steps.push_back(header.step);
    if (header.step == waits_in) {
      started = true;
      while (!abandoned) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return absl::UnavailableError("abandoned");
    }
    return header.step == fails_in ? absl::DataLossError("failed") : absl::OkStatus();
  }
  absl::Status AllGather(const OperationHeader&, absl::Span<float>) override {
    return absl::OkStatus();
  }
  absl::Status Broadcast(const OperationHeader&, absl::Span<uint8_t>) override {
    return absl::OkStatus();
  }
  absl::Status Barrier(const OperationHeader&) override {
    ++barriers;
    return absl::OkStatus();
  }
  void Abandon(const absl::Status& why) override {
    reasons.push_back(why.code());
    abandoned = true;
  }
  void Cancel() override { cancelled = true; }
  std::string WaitingFor() const override { return waiting; }
  const char* name() const override { return "fake"; }

  size_t card_bytes = 10;
  uint64_t waits_in = 1000, fails_in = 1000;
  std::vector<uint64_t> steps;
  std::vector<absl::StatusCode> reasons;
  int barriers = 0;
  std::string waiting;
  std::atomic<bool> started{false}, abandoned{false}, cancelled{false};
  bool left = false;
};

class QueuedCollectiveTest : public ::testing::Test {
 protected:
  void Make(int engines) {
    std::vector<std::unique_ptr<CollectiveEngine>> made;
    for (int i = 0; i < engines; ++i) {
      auto engine = std::make_unique<FakeEngine>();
      engines_.push_back(engine.get());
      made.push_back(std::move(engine));
    }
    collective_ = std::make_unique<QueuedCollective>(std::move(made));
  }
  absl::Status JoinAlone(uint64_t generation) {
    const auto card = collective_->Listen(generation, 0, 1);
    return card.ok() ? collective_->Join(generation, {*card}, 0) : card.status();
  }
  Collective::Ticket Start(uint64_t step) { return collective_->WeightedMean(step, {}, 1); }

  std::vector<FakeEngine*> engines_;
  std::unique_ptr<QueuedCollective> collective_;
};

TEST_F(QueuedCollectiveTest, StartedOperationsGoToTheEnginesInTurn) {
  Make(3);
  ASSERT_TRUE(JoinAlone(1).ok());
  for (uint64_t step = 0; step < 5; ++step) Start(step);
  EXPECT_TRUE(collective_->Barrier().ok());
  EXPECT_TRUE(collective_->Wait(Start(5)).ok());
  EXPECT_THAT(engines_[0]->steps, ElementsAre(0, 3));
  EXPECT_THAT(engines_[1]->steps, ElementsAre(1, 4));
  EXPECT_THAT(engines_[2]->steps, ElementsAre(2, 5));
  EXPECT_EQ(engines_[0]->barriers, 1);
  EXPECT_EQ(engines_[1]->barriers, 0);
}

TEST_F(QueuedCollectiveTest, AnErrorEndsTheOperationsOfTheOtherEngines) {
  Make(3);
  engines_[1]->waits_in = 1;
  engines_[2]->fails_in = 2;
  ASSERT_TRUE(JoinAlone(1).ok());
  const Collective::Ticket good = Start(0), waiting = Start(1);
  while (!engines_[1]->started) std::this_thread::yield();
  EXPECT_TRUE(collective_->Wait(good).ok());  // before the failure, which would end it too
  const Collective::Ticket failed = Start(2), dropped = Start(4);
  for (const Collective::Ticket ticket : {waiting, failed, dropped})
    EXPECT_EQ(collective_->Wait(ticket).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(collective_->Barrier().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(engines_[0]->reasons, ElementsAre(absl::StatusCode::kDataLoss));
  EXPECT_THAT(engines_[1]->reasons, ElementsAre(absl::StatusCode::kDataLoss));
  EXPECT_THAT(engines_[2]->reasons, IsEmpty());
  ASSERT_TRUE(JoinAlone(2).ok());
  EXPECT_TRUE(collective_->Wait(Start(9)).ok());
  EXPECT_TRUE(collective_->Barrier().ok());
}

TEST_F(QueuedCollectiveTest, EachGroupBeginsWithTheFirstEngine) {
  Make(3);
  ASSERT_TRUE(JoinAlone(1).ok());
  const Collective::Ticket old = Start(0);
  Start(1);
  ASSERT_TRUE(collective_->Wait(2).ok());
  ASSERT_TRUE(JoinAlone(2).ok());
  Start(2);
  const Collective::Ticket newest = Start(3);
  EXPECT_TRUE(collective_->Wait(newest).ok());
  EXPECT_THAT(engines_[0]->steps, ElementsAre(0, 2));
  EXPECT_THAT(engines_[1]->steps, ElementsAre(1, 3));
  EXPECT_THAT(engines_[2]->steps, IsEmpty());
  EXPECT_EQ(collective_->Wait(old).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(QueuedCollectiveTest, CancelLeaveAndWaitingForConcernAllEngines) {
  Make(2);
  ASSERT_TRUE(JoinAlone(1).ok());
  engines_[1]->waiting = "rank 3";
  EXPECT_EQ(collective_->WaitingFor(), "rank 3");
  collective_->Cancel();
  collective_->Leave();
  for (const FakeEngine* const engine : engines_) EXPECT_TRUE(engine->cancelled && engine->left);
}

TEST_F(QueuedCollectiveTest, ACardThatIsTooLargeIsRefused) {
  Make(8);
  for (FakeEngine* const engine : engines_) engine->card_bytes = kMaxCardBytes / 8;
  EXPECT_EQ(JoinAlone(1).code(), absl::StatusCode::kResourceExhausted);
  for (FakeEngine* const engine : engines_) engine->card_bytes = kMaxCardBytes / 9;
  EXPECT_TRUE(JoinAlone(2).ok());
}

TEST_F(QueuedCollectiveTest, ACardWithAnotherNumberOfCommunicatorsIsRefused) {
  Make(2);
  const auto card = collective_->Listen(1, 0, 1);
  ASSERT_TRUE(card.ok());
  CollectiveCard other;
  ASSERT_TRUE(other.ParseFromString(*card));
  other.add_communicators("c");
  EXPECT_EQ(collective_->Join(1, {other.SerializeAsString()}, 0).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
