#include "client/operation_table.h"

#include <gtest/gtest.h>

#include "tests/client/two_tables.h"

namespace sluice {
namespace {

class OperationTableTest : public ::testing::Test {
 protected:
  std::shared_ptr<PullOperation> Pull(PullOperation::Purpose purpose = {}) {
    auto op = std::make_shared<PullOperation>(&index_, std::move(purpose));
    PullOperation::Piece piece;
    EXPECT_TRUE(op->Add(std::move(piece)).ok());
    return op;
  }
  // Returns Pull.for_push of a new operation after the latest push, `pushed`.
  uint64_t NamedFor(std::shared_ptr<PullOperation> op, uint64_t pushed) {
    table_.Add(op, pushed);
    RouteMap routes(&index_);
    routes.Apply(TwoPservers());
    FrameHeader head;
    op->Ask(0, 1, routes, Delivery(std::vector<uint32_t>(kFlatShards, 0)), &head);
    return head.pull().for_push();
  }

  const ShardIndex index_{TwoTables()};
  OperationTable table_{2};
};

TEST_F(OperationTableTest, TicketFindsItsOperationUntilErased) {
  const auto first = Pull(), second = Pull();
  const auto a = table_.Add(first, 0), b = table_.Add(second, 0);
  EXPECT_EQ(*table_.Find(a), first);
  EXPECT_EQ(*table_.Find(b), second);
  EXPECT_EQ(table_.size(), 2u);
  table_.Erase(a);
  EXPECT_EQ(table_.Find(a).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(table_.Find(b + 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(table_.size(), 1u);
}

TEST_F(OperationTableTest, TicketOfAFailedOperationReturnsItsStatus) {
  const auto ticket = table_.AddFailed(absl::DataLossError("bad"));
  EXPECT_EQ(table_.Find(ticket).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_TRUE(table_.all().empty());
  table_.Erase(ticket);
  EXPECT_EQ(table_.size(), 0u);
}

TEST_F(OperationTableTest, FrameFindsItsOperationUnlessAbandoned) {
  const auto op = Pull();
  op->set_after(5);
  table_.Add(Pull(), 4);
  table_.Add(op, 5);
  EXPECT_EQ(table_.OfFrame(5), op);
  EXPECT_EQ(table_.OfFrame(6), nullptr);
  op->Abandon();
  EXPECT_EQ(table_.OfFrame(5), nullptr);
}

TEST_F(OperationTableTest, PullsNameThePushesOfThePipeline) {
  EXPECT_EQ(NamedFor(Pull(), 0), 1u);
  EXPECT_EQ(NamedFor(Pull(), 0), 2u);
  EXPECT_EQ(NamedFor(Pull(), 0), 2u) << "bounded by the depth of 2";
  EXPECT_EQ(NamedFor(Pull(), 1), 3u);
  PullOperation::Purpose evaluation;
  evaluation.evaluation = true;
  EXPECT_EQ(NamedFor(Pull(evaluation), 1), 0u);
  PullOperation::Purpose commit;
  commit.commit_sequence = 2;
  EXPECT_EQ(NamedFor(Pull(commit), 1), 0u);
  PullOperation::Purpose end;
  end.end_epoch = true;
  end.evaluation = true;
  NamedFor(Pull(end), 2);
  EXPECT_EQ(NamedFor(Pull(), 2), 3u) << "the pipeline was empty at the end of the epoch";
}

TEST_F(OperationTableTest, KeepsTheLargestOthersOfEachPserver) {
  table_.OnPulled({1, 7});
  table_.OnPulled({3, 5, 2});
  table_.OnPulled({2});
  EXPECT_EQ(table_.pulled_others(), (std::vector<uint64_t>{3, 7, 2}));
}

}  // namespace
}  // namespace sluice
