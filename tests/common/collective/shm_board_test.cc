#include "common/collective/shm_board.h"

#include <cstring>
#include <memory>
#include <thread>

#include "gtest/gtest.h"

namespace sluice {
namespace {

// Two ranks of this process on one memory, connected to each other.
class ShmBoardTest : public ::testing::Test {
 protected:
  explicit ShmBoardTest(absl::Duration timeout = absl::Seconds(30)) {
    std::vector<std::unique_ptr<ShmRendezvous>> sides;
    std::vector<CollectiveCard> cards;
    for (uint32_t r = 0; r < 2; ++r) {
      sides.push_back(std::make_unique<ShmRendezvous>(CollectiveOptions()));
      cards.push_back(*sides.back()->Listen(1, r, 2));
    }
    std::thread other([&] { groups_[1] = *sides[1]->Join(cards); });
    groups_[0] = *sides[0]->Join(cards);
    other.join();
    CollectiveOptions options;
    options.timeout = timeout;
    for (uint32_t r = 0; r < 2; ++r) {
      boards_[r] =
          std::make_unique<ShmBoard>(&groups_[r], r, std::vector<uint32_t>{10, 11}, options);
    }
    barrier_.kind = OperationHeader::kBarrier;
  }

  ShmRendezvous::Group groups_[2];
  std::unique_ptr<ShmBoard> boards_[2];
  OperationHeader barrier_;
};

TEST_F(ShmBoardTest, AwaitReturnsOnceThePositionIsReached) {
  std::thread other([&] {
    while (boards_[0]->waiting_for().empty()) std::this_thread::yield();
    EXPECT_NE(boards_[0]->waiting_for().find("rank 11"), std::string::npos);
    boards_[1]->Publish(ShmBoard::kFilled, 1);
  });
  EXPECT_TRUE(boards_[0]->Await(ShmBoard::kFilled, 1, barrier_).ok());
  other.join();
  EXPECT_EQ(boards_[0]->waiting_for(), "");
}

TEST_F(ShmBoardTest, HeadersOfAChunkAreThoseOfAllRanks) {
  OperationHeader header;
  for (uint32_t r = 0; r < 2; ++r) {
    header.n = 100 + r;
    boards_[r]->PublishHeader(3, header);
  }
  EXPECT_EQ(boards_[0]->Headers(3)[1].n, 101u);
  EXPECT_EQ(boards_[1]->Headers(3)[0].n, 100u);
}

class ImpatientBoardTest : public ShmBoardTest {
 protected:
  ImpatientBoardTest() : ShmBoardTest(absl::Milliseconds(100)) {}
};

TEST_F(ImpatientBoardTest, ASilentRankIsNamedByBoth) {
  const absl::Status status = boards_[0]->Await(ShmBoard::kFilled, 1, barrier_);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_EQ(RankAtFault(status), 11u);
  const absl::Status told = boards_[1]->Await(ShmBoard::kFilled, 1, barrier_);
  EXPECT_EQ(told.code(), absl::StatusCode::kDeadlineExceeded) << told;
  EXPECT_EQ(RankAtFault(told), 11u);
}

TEST_F(ShmBoardTest, AnEndedRankIsAnErrorOnlyForWhatItHasNotDone) {
  boards_[1]->Publish(ShmBoard::kFilled, 1);
  groups_[1].connections[0] = UnixConnection();
  EXPECT_TRUE(boards_[0]->Await(ShmBoard::kFilled, 1, barrier_).ok());
  const absl::Status status = boards_[0]->Await(ShmBoard::kFilled, 2, barrier_);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(RankAtFault(status), 11u);
}

TEST_F(ShmBoardTest, ImpossiblePositionsAreAnError) {
  boards_[1]->Publish(ShmBoard::kFilled, 1000);
  EXPECT_EQ(boards_[0]->Await(ShmBoard::kFilled, 1, barrier_).code(), absl::StatusCode::kDataLoss);
}

TEST_F(ShmBoardTest, OwnPositionsAreNeverReadBack) {
  boards_[0]->Publish(ShmBoard::kFilled, 1);
  boards_[1]->Publish(ShmBoard::kFilled, 1);
  // The other rank may write this one's words as well.
  std::memset(groups_[1].memory.data() + 4 * 64, 0xFF, 64);
  EXPECT_TRUE(boards_[0]->Await(ShmBoard::kFilled, 1, barrier_).ok());
}

TEST_F(ImpatientBoardTest, GarbageInEveryWordEndsInAnErrorInTime) {
  for (const int byte : {0x01, 0x7F, 0xFF}) {
    std::memset(groups_[1].memory.data(), byte, 4096);
    EXPECT_FALSE(boards_[0]->Await(ShmBoard::kReduced, 1, barrier_).ok() &&
                 boards_[0]->Await(ShmBoard::kReduced, ~uint64_t{0}, barrier_).ok());
  }
}

}  // namespace
}  // namespace sluice
