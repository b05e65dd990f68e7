#include "client/pull_operation.h"

#include <gtest/gtest.h>

#include "tests/client/two_tables.h"

namespace sluice {
namespace {

using Destination = PullOperation::Destination;
using Shards = std::vector<uint32_t>;

class PullOperationTest : public ::testing::Test {
 protected:
  PullOperationTest() {
    routes_.Apply(TwoPservers());
    delivery_.OnRoute(routes_.owners());
    delivery_.OnOpen(0);
    delivery_.OnOpen(1);
  }
  // Makes a pull of these shards, one row each.
  PullOperation Pull(const Shards& shards, PullOperation::Purpose purpose = {}) {
    PullOperation op(&index_, std::move(purpose));
    for (uint32_t flat : shards) {
      PullOperation::Piece piece;
      piece.flat = flat;
      piece.rows = 1;
      EXPECT_TRUE(op.Add(std::move(piece)).ok());
    }
    return op;
  }
  bool Wants(const PullOperation& op, uint32_t link) { return op.Wants(link, routes_, delivery_); }
  // Asks `link` in request `id` and returns the shards in the request.
  Shards Ask(PullOperation* op, uint32_t link, uint64_t id) {
    head_.Clear();
    op->Ask(link, id, routes_, delivery_, &head_);
    Shards shards;
    for (int i = 0; i < head_.pull().parts().table_size(); ++i) {
      shards.push_back(index_.Flat(head_.pull().parts().table(i), head_.pull().parts().shard(i)));
    }
    return shards;
  }
  static void Write(PullOperation* op, const Shards& shards) {
    std::vector<Destination> destinations;
    for (uint32_t flat : shards) {
      Destination to;
      to.flat = flat;
      to.wanted = true;
      destinations.push_back(to);
    }
    op->BeginWrite(destinations);
    EXPECT_TRUE(op->writing());
    op->EndWrite(destinations);
  }

  const ShardIndex index_{TwoTables()};
  RouteMap routes_{&index_};
  Delivery delivery_{std::vector<uint32_t>(kFlatShards, 0)};
  FrameHeader head_;
};

TEST_F(PullOperationTest, DoneWhenEveryPieceIsWritten) {
  PullOperation op = Pull({0, 1, 2});
  EXPECT_EQ(Ask(&op, 0, 1), (Shards{0, 1}));
  EXPECT_FALSE(Wants(op, 0));
  EXPECT_EQ(Ask(&op, 1, 2), (Shards{2}));
  Write(&op, {0, 1});
  EXPECT_FALSE(op.OnAnswered(1, {}));
  EXPECT_FALSE(op.Done());
  EXPECT_EQ(op.WaitsFor(routes_), 1u);
  Write(&op, {2});
  EXPECT_TRUE(op.Done());
  EXPECT_EQ(op.WaitsFor(routes_), ShardIndex::kNone);
}

TEST_F(PullOperationTest, ExpectsAPieceOnlyFromTheRequestThatAskedForIt) {
  PullOperation op = Pull({0});
  EXPECT_EQ(op.Expected(1, 0), nullptr);
  Ask(&op, 0, 1);
  EXPECT_NE(op.Expected(1, 0), nullptr);
  EXPECT_EQ(op.Expected(2, 0), nullptr);
  EXPECT_EQ(op.Expected(1, 5), nullptr);
  Write(&op, {0});
  EXPECT_EQ(op.Expected(1, 0), nullptr) << "it is there";
}

TEST_F(PullOperationTest, RefusesASecondPieceOfAShard) {
  PullOperation op = Pull({3});
  PullOperation::Piece again;
  again.flat = 3;
  EXPECT_EQ(op.Add(std::move(again)).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PullOperationTest, PiecesWaitUntilTheirFrameWasSentToTheirShard) {
  PullOperation op = Pull({0, 2});
  op.set_after(1);
  delivery_.Add(1);
  EXPECT_FALSE(Wants(op, 0));
  ASSERT_TRUE(delivery_.Next(0).has_value());
  EXPECT_TRUE(Wants(op, 0));
  EXPECT_FALSE(Wants(op, 1));
}

TEST_F(PullOperationTest, PartsMissingFromAReplyWaitForARoute) {
  PullOperation op = Pull({0, 1});
  Ask(&op, 0, 1);
  Write(&op, {0});
  EXPECT_TRUE(op.OnAnswered(1, {}));
  EXPECT_FALSE(Wants(op, 0));
  op.OnRoute(routes_, routes_.Apply(TwoPservers()));
  EXPECT_EQ(Ask(&op, 0, 2), (Shards{1}));
}

TEST_F(PullOperationTest, LostPiecesAreAskedAgainAndRefusedOnesAfterARoute) {
  PullOperation op = Pull({0, 2});
  Ask(&op, 0, 1);
  Ask(&op, 1, 2);
  op.OnLost(1, /*needs_route=*/false);
  op.OnLost(2, /*needs_route=*/true);
  EXPECT_TRUE(Wants(op, 0));
  EXPECT_FALSE(Wants(op, 1));
  op.OnRoute(routes_, routes_.Apply(TwoPservers(2)));
  EXPECT_TRUE(Wants(op, 1));
}

TEST_F(PullOperationTest, PieceInFlightFromAnEarlierOwnerIsAskedOfTheNewOne) {
  PullOperation op = Pull({0, 1});
  Ask(&op, 0, 1);
  op.OnRoute(routes_, routes_.Apply(RouteTo(2, {"a", "b"}, {0, 1, 1, 1, 0, 0, 1})));
  EXPECT_NE(op.Expected(1, 0), nullptr);
  EXPECT_EQ(op.Expected(1, 1), nullptr) << "the old owner's answer is not taken";
  EXPECT_EQ(Ask(&op, 1, 2), (Shards{1}));
}

TEST_F(PullOperationTest, PieceIsPulledAgainWhenItsPushWasRefused) {
  PullOperation op = Pull({0});
  op.set_after(1);
  delivery_.Add(1);
  const auto send = delivery_.Next(0);
  Ask(&op, 0, 1);
  Write(&op, {0});
  EXPECT_FALSE(op.OnAnswered(1, {{0, PART_OUT_OF_ORDER, 0}}));
  EXPECT_FALSE(op.Done());
  EXPECT_TRUE(Wants(op, 0));
}

TEST_F(PullOperationTest, ExchangePullsOnlyThePartsMissingFromTheReply) {
  PullOperation::Purpose purpose;
  purpose.exchange = true;
  PullOperation op = Pull({0, 1}, std::move(purpose));
  op.set_after(1);
  delivery_.Add(1);
  const auto send = delivery_.Next(0);
  op.AskByPush(1, send->shards);
  EXPECT_NE(op.Expected(1, 0), nullptr);
  Write(&op, {0});
  ASSERT_TRUE(delivery_.OnReply(*send, {}).ok());
  EXPECT_FALSE(op.OnAnswered(1, {}));
  EXPECT_EQ(Ask(&op, 0, 2), (Shards{1}));
}

TEST_F(PullOperationTest, CommitGoesToEveryPserverAndAsksEachForAPiece) {
  PullOperation::Purpose purpose;
  purpose.commit_sequence = purpose.applied_sequence = 4;
  PullOperation op = Pull({0}, std::move(purpose));
  op.AddressAll(routes_);
  EXPECT_EQ(Ask(&op, 0, 1), (Shards{0}));
  EXPECT_EQ(head_.commit().sequence(), 4u);
  EXPECT_EQ(head_.pull().applied_sequence(), 4u);
  EXPECT_EQ(Ask(&op, 1, 2), (Shards{2})) << "a sparse shard, of no rows";
  EXPECT_EQ(head_.commit().sequence(), 4u);
  EXPECT_EQ(head_.pull().parts().rows(0), 0u);
  Write(&op, {0});
  op.OnAnswered(1, {});
  EXPECT_FALSE(op.Done());
  op.OnAnswered(2, {});
  EXPECT_TRUE(op.Done()) << "a piece of no rows needs no values";
}

TEST_F(PullOperationTest, ResentCommitNamesItsCheckpointAgain) {
  PullOperation::Purpose purpose;
  purpose.commit_sequence = purpose.applied_sequence = 4;
  purpose.checkpoint = 9;
  PullOperation op = Pull({0}, std::move(purpose));
  op.AddressAll(routes_);
  for (uint64_t request = 1; request <= 2; ++request) {
    Ask(&op, 1, request);
    EXPECT_EQ(head_.commit().checkpoint(), 9u);
    op.OnLost(request, /*needs_route=*/false);
  }
}

TEST_F(PullOperationTest, RecordsTheCheckpointThatAnyPserverNames) {
  PullOperation op = Pull({0});
  EXPECT_EQ(op.checkpoint(), 0u);
  op.NoteCheckpoint(3);
  op.NoteCheckpoint(0);
  EXPECT_EQ(op.checkpoint(), 3u);
}

TEST_F(PullOperationTest, EndOfEpochIsRepeatedAfterAChangeOfGeneration) {
  PullOperation::Purpose purpose;
  purpose.end_epoch = true;
  purpose.epoch = 3;
  PullOperation op(&index_, std::move(purpose));
  op.AddressAll(routes_);
  Ask(&op, 0, 1);
  EXPECT_EQ(head_.end_epoch().epoch(), 3u);
  op.OnAnswered(1, {});
  op.OnRoute(routes_, routes_.Apply(TwoPservers(1)));
  EXPECT_FALSE(Wants(op, 0)) << "the same generation";
  op.OnRoute(routes_, routes_.Apply(TwoPservers(2)));
  EXPECT_TRUE(Wants(op, 0));
  EXPECT_TRUE(Wants(op, 1));
}

TEST_F(PullOperationTest, AbandonedOperationAsksForNothing) {
  PullOperation op = Pull({0});
  op.Abandon();
  EXPECT_FALSE(Wants(op, 0));
}

TEST_F(PullOperationTest, KeepsTheLargestCountOfOthersOfEachPserver) {
  PullOperation op = Pull({0});
  op.NoteOthers(1, 4);
  op.NoteOthers(1, 3);
  EXPECT_EQ(op.others(), (std::vector<uint64_t>{0, 4}));
}

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
