#include "scheduler/job/row_deletion.h"

#include <gmock/gmock.h>

#include "tests/scheduler/job_checkpoints_fixture.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A deletion, number 9, beside the checkpoints of a sync job with two pservers.
class RowDeletionTest : public JobCheckpointsTest {
 protected:
  void Begin(uint64_t told, bool exports = false) {
    d_.Begin(9, {1, {3, 5}}, 2, told, exports, kStart);
  }
  static HostedJob Holds(uint64_t at, uint64_t id = 9) {
    HostedJob hosted;
    hosted.mutable_deletion()->set_id(id);
    hosted.mutable_deletion()->set_at(at);
    return hosted;
  }
  void Confirm(uint64_t at) {
    for (const uint32_t pserver : {0, 1}) d_.TakeHosted(pserver, Holds(at), kStart);
  }
  DeletionOrder Told(uint32_t pserver) {
    CutOrder order;
    d_.AddTo(pserver, &order);
    return order.deletion();
  }
  // Reports of both pservers' cuts.
  void Cut(uint64_t number, uint64_t deletion, uint64_t deleted) {
    for (const uint32_t pserver : {0, 1}) {
      HostedJob hosted = Holds(Told(pserver).at());
      hosted.mutable_cut()->set_checkpoint(number);
      hosted.mutable_cut()->set_state(HostedCut::WRITTEN);
      hosted.mutable_cut()->set_deletion(deletion);
      hosted.mutable_cut()->set_deleted(deletion == 0 ? 0 : deleted + pserver);
      d_.TakeHosted(pserver, hosted, kStart);
    }
  }

  RowDeletion d_;
};

TEST_F(RowDeletionTest, NobodyIsToldOfTheCheckpointBeforeEveryPserverHasConfirmed) {
  JobCheckpoints c = Make(0);
  EXPECT_TRUE(d_.MayTell(1));
  EXPECT_FALSE((Told(0).at() != 0));
  Begin(/*told=*/0);
  EXPECT_EQ(Told(1).id(), 9u);
  EXPECT_EQ(Told(1).at(), 1u);
  EXPECT_EQ(Told(1).table(), 1u);
  EXPECT_THAT(Told(1).keys(), ElementsAre(3, 5));
  EXPECT_FALSE(d_.MayTell(1));
  EXPECT_FALSE(d_.TakeHosted(0, Holds(1), kStart));
  EXPECT_FALSE(d_.TakeHosted(1, Holds(1, /*id=*/8), kStart)) << "an earlier deletion";
  EXPECT_EQ(Told(0).keys_size(), 0) << "it has them";
  EXPECT_THAT(Told(1).keys(), ElementsAre(3, 5));
  EXPECT_EQ(d_.Missing(), "pserver 1");
  EXPECT_EQ(d_.progressed_at(), kStart);
  EXPECT_FALSE(d_.Advance(&c, kStart));
  EXPECT_EQ(c.asked().number, 0u);
  EXPECT_TRUE(d_.TakeHosted(1, Holds(1), kStart));
  EXPECT_EQ(d_.progressed_at(), absl::InfiniteFuture());
  EXPECT_TRUE(d_.MayTell(1));
  EXPECT_FALSE(d_.MayTell(2));
  EXPECT_FALSE(d_.Advance(&c, kStart));
  EXPECT_EQ(c.asked().number, 1u);
  Cut(1, 9, 2);
  Complete(&c, 1, 40, At(1), At(2));
  EXPECT_EQ(d_.OutcomeOf(9), nullptr);
  EXPECT_TRUE(d_.Advance(&c, At(2)));
  EXPECT_FALSE(d_.under_way());
  ASSERT_NE(d_.OutcomeOf(9), nullptr);
  EXPECT_TRUE(d_.OutcomeOf(9)->done());
  EXPECT_EQ(d_.OutcomeOf(9)->error(), "");
  EXPECT_EQ(d_.OutcomeOf(9)->rows(), 5u);
  EXPECT_EQ(d_.OutcomeOf(9)->step(), 40u);
  EXPECT_EQ(d_.OutcomeOf(9)->dir(), "/ckpt/step-40");
  EXPECT_EQ(d_.OutcomeOf(8), nullptr);
  EXPECT_TRUE(d_.MayTell(2));
  EXPECT_FALSE((Told(0).at() != 0));
}

TEST_F(RowDeletionTest, ANumberThatAMemberKnowsAlreadyIsMadeFirstWithTheRows) {
  JobCheckpoints c = Make(/*every_steps=*/1000);
  ASSERT_EQ(c.asked(), (JobCheckpoints::Asked{1, 1000}));
  Begin(/*told=*/1);
  EXPECT_EQ(Told(0).at(), 2u);
  EXPECT_TRUE(d_.MayTell(1));
  Confirm(2);
  d_.Advance(&c, kStart);
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{1, 0}));
  Cut(1, 0, 0);
  Complete(&c, 1, 40, At(1), At(2));
  EXPECT_FALSE(d_.Advance(&c, At(2)));
  EXPECT_TRUE(d_.under_way());
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{2, 0}));
  Cut(2, 9, 1);
  Complete(&c, 2, 50, At(3), At(4));
  EXPECT_TRUE(d_.Advance(&c, At(4)));
  EXPECT_EQ(d_.OutcomeOf(9)->step(), 50u);
}

TEST_F(RowDeletionTest, ACheckpointThatFailsIsFollowedByAnotherUntilTooManyHave) {
  JobCheckpoints c = Make(0);
  Begin(0);
  uint64_t at = 1;
  for (; d_.under_way() && at < 10; ++at) {
    ASSERT_EQ(Told(0).at(), at);
    EXPECT_EQ(Told(0).keys_size(), at == 1 ? 2 : 0);
    EXPECT_FALSE(d_.MayTell(at)) << "they have confirmed the one before";
    Confirm(at);
    EXPECT_TRUE(d_.MayTell(at));
    const absl::Time now = At(100.0 * at);
    c.Plan(now);
    d_.Advance(&c, now);
    ASSERT_EQ(c.asked().number, at);
    Cut(at, 9, at == 1 ? 7 : 0);
    c.TakeHosted(0, Hosted(HostedCut::WRITING, at, 10 * at), now);
    c.TakeHosted(0, Hosted(HostedCut::FAILED, at, 10 * at), now);
    ASSERT_EQ(c.over(), at);
    EXPECT_TRUE(d_.Advance(&c, now));
  }
  EXPECT_EQ(at, 4u);
  ASSERT_NE(d_.OutcomeOf(9), nullptr);
  EXPECT_THAT(d_.OutcomeOf(9)->error(), HasSubstr("no space left"));
  EXPECT_EQ(d_.OutcomeOf(9)->rows(), 15u) << "they went with the first one";
  EXPECT_TRUE(d_.MayTell(at));
}

TEST_F(RowDeletionTest, ACheckpointThatAPserverMadeWithTheRowsDoesNotCount) {
  JobCheckpoints c = Make(0);
  Begin(0);
  Confirm(1);
  d_.Advance(&c, kStart);
  Cut(1, 0, 0);
  Complete(&c, 1, 40, At(1), At(2));
  EXPECT_TRUE(d_.Advance(&c, At(2)));
  EXPECT_TRUE(d_.under_way());
  EXPECT_EQ(Told(0).at(), 2u);
}

TEST_F(RowDeletionTest, ASuccessorAndANewAttemptGetTheKeys) {
  Begin(0);
  Confirm(1);
  EXPECT_TRUE(d_.MayTell(1));
  d_.PserverLost(1, At(3));
  EXPECT_FALSE(d_.MayTell(1));
  EXPECT_EQ(Told(0).keys_size(), 0);
  EXPECT_EQ(Told(1).keys_size(), 2);
  EXPECT_EQ(d_.progressed_at(), At(3));
  EXPECT_TRUE(d_.TakeHosted(1, Holds(1), At(4)));
  // A process that has lost them says so.
  EXPECT_TRUE(d_.TakeHosted(1, HostedJob(), At(5)));
  EXPECT_EQ(Told(1).keys_size(), 2);
  EXPECT_FALSE(d_.MayTell(1));
  EXPECT_TRUE(d_.TakeHosted(1, Holds(1), At(6)));
  EXPECT_TRUE(d_.Restart(3, At(7)));
  for (const uint32_t pserver : {0, 1, 2}) EXPECT_EQ(Told(pserver).keys_size(), 2);
  EXPECT_FALSE(d_.MayTell(1));
}

TEST_F(RowDeletionTest, AnExportThatHasTakenTheTurnIsLeftToGoFirst) {
  JobCheckpoints::Options options;
  options.over = 2;
  options.root = "/ckpt";
  options.worker_num = options.pserver_num = 2;
  options.exports.emplace();
  options.exports->set_every_steps(5);
  options.export_root = "/export";
  JobCheckpoints c(options, kStart);
  Begin(/*told=*/2, /*exports=*/true);
  ASSERT_EQ(Told(0).at(), 3u) << "odd numbers are checkpoints";
  EXPECT_FALSE(d_.MayTell(4));
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 4, 5), kStart);
  ASSERT_EQ(c.open_number(), 4u);
  EXPECT_TRUE(d_.Advance(&c, kStart));
  EXPECT_TRUE(d_.MayTell(4));
  EXPECT_EQ(Told(0).at(), 5u);
  EXPECT_FALSE(d_.MayTell(5));
}

TEST_F(RowDeletionTest, AJobThatTrainsNoMoreDeletesNothing) {
  JobCheckpoints c = Make(0);
  Begin(0);
  JobCheckpoints::Training training;
  training.more = false;
  c.NoteTraining(training);
  EXPECT_TRUE(d_.Advance(&c, kStart));
  EXPECT_THAT(d_.OutcomeOf(9)->error(), HasSubstr("last step"));
  EXPECT_FALSE(d_.GiveUp("nothing is under way"));
}

}  // namespace
}  // namespace sluice
