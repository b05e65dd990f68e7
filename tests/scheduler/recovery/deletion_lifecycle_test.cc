// Deletions of rows of running jobs in a whole core with fake members.
#include "scheduler/recovery/deletion_lifecycle.h"

#include <gmock/gmock.h>

#include "common/daemon/control_plane.h"
#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class DeletionLifecycleTest : public testing::Test {
 protected:
  DeletionLifecycleTest() : c_(2, 2) { c_.JoinAll(2, 2); }

  // Sync, or async with k_steps 0.
  static JobConfig Config(int k_steps = -1) {
    JobConfig config = FakeCluster::Config(k_steps, 2, 2);
    config.mutable_checkpoint()->set_every_steps(1000);
    config.mutable_checkpoint()->set_keep(2);
    config.set_output_dir("/out");
    config.add_tables()->set_name("w");
    TableConfig* const sparse = config.add_tables();
    sparse->set_name("e");
    sparse->set_kind(TableConfig::SPARSE);
    return config;
  }
  void StartTraining(const JobConfig& config) {
    job_ = c_.Run(config);
    PhaseReport first = Indexed(50, 0);
    if (config.strategy().a_sync()) {
      DataFile* const file = first.mutable_index()->add_files();
      file->set_path("train.csv");
      file->set_bytes(1000);
    }
    c_.Phase(job_, 0, first).status().IgnoreError();
    ASSERT_EQ(c_.Phase(job_, 1, Indexed(50, 1))->phase().kind(), Phase::TRAIN);
    for (const uint32_t rank : {0, 1}) {
      if (!config.strategy().a_sync()) continue;
      EXPECT_EQ(c_.Phase(job_, rank)->phase().kind(), Phase::TRAIN);
      EXPECT_EQ(c_.Task(job_, rank, 0, 0)->kind(), NextTaskReply::TASK);
    }
    c_.PollAll();
    c_.core_.TakeActions();
  }
  absl::StatusOr<DeleteRowsReply> Delete(std::vector<uint64_t> keys,
                                         const std::string& table = "e") {
    return c_.core_.operators().DeleteRows(job_, table, std::move(keys), c_.now_);
  }
  absl::StatusOr<DeleteRowsReply> Outcome(uint64_t id) {
    return c_.core_.operators().DeletionOutcome(job_, id);
  }
  CutOrder Order(size_t pserver) { return c_.desired_[c_.pservers_[pserver]].cuts(0); }
  uint64_t Asked() { return c_.desired_[c_.workers_[0]].assignment().checkpoint().number(); }
  // The pserver says that it has the keys, or has carried the deletion out in its part of `cut`.
  void Report(size_t pserver, uint64_t id, uint64_t at, uint64_t cut = 0, uint64_t step = 0,
              bool deletes = true) {
    HostedJob more;
    more.mutable_deletion()->set_id(id);
    more.mutable_deletion()->set_at(at);
    if (cut > 0) {
      more.mutable_cut()->set_checkpoint(cut);
      more.mutable_cut()->set_step(step);
      more.mutable_cut()->set_state(HostedCut::WRITTEN);
      more.mutable_cut()->add_files()->set_name(absl::StrCat("p-", pserver, ".shard"));
      if (deletes) {
        more.mutable_cut()->set_deletion(id);
        more.mutable_cut()->set_deleted(10 + pserver);
      }
    }
    c_.hosted_more_[c_.pservers_[pserver]] = more;
  }
  // All parts of a checkpoint, which is then in force.
  void Complete(uint64_t id, uint64_t at, uint64_t number, uint64_t step, bool deletes) {
    for (const uint32_t i : {0, 1}) {
      Report(i, id, at, number, step, deletes);
      WorkerCut cut;
      cut.set_job_id(job_);
      cut.set_rank(i);
      cut.set_incarnation(c_.Incarnation(job_, i));
      cut.set_checkpoint(number);
      cut.set_step(step);
      cut.mutable_state()->mutable_train()->set_examples(7);
      c_.worker_cuts_[c_.workers_[i]] = cut;
    }
    c_.PollAll();
    int written = 0;
    for (const OutputAction& action : c_.core_.TakeActions())
      written += action.kind == OutputAction::kCheckpoint;
    ASSERT_EQ(written, 1);
    c_.core_.CheckpointWritten(job_, number, absl::OkStatus(), "", c_.now_);
    c_.PollAll();
  }

  void Wait(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      c_.PollAll();
      c_.Advance(absl::Seconds(1));
    }
    c_.PollAll();
  }

  FakeCluster c_;
  std::string job_;
};

TEST_F(DeletionLifecycleTest, RowsGoWithACheckpointThatNobodyHearsOfBeforeThePserversDo) {
  StartTraining(Config());
  ASSERT_EQ(Asked(), 1u) << "rank 0 may name it in any commit";
  const auto begun = Delete({3, 5});
  ASSERT_TRUE(begun.ok()) << begun.status();
  EXPECT_FALSE(begun->done());
  const uint64_t id = begun->deletion();
  c_.PollAll();
  for (const size_t pserver : {0, 1}) {
    EXPECT_EQ(Order(pserver).deletion().id(), id);
    EXPECT_EQ(Order(pserver).deletion().at(), 2u);
    EXPECT_EQ(Order(pserver).deletion().table(), 1u);
    EXPECT_THAT(Order(pserver).deletion().keys(), ElementsAre(3, 5));
  }
  EXPECT_EQ(Delete({3, 5})->deletion(), id) << "the call is repeated";
  EXPECT_TRUE(absl::IsFailedPrecondition(Delete({3}).status()));
  // The first one ends before the pservers have answered: the second one is asked for, but not
  // told.
  Complete(/*id=*/0, /*at=*/0, 1, 2, /*deletes=*/false);
  EXPECT_EQ(Asked(), 0u);
  Report(0, id, 2);
  Wait(1);
  EXPECT_EQ(Asked(), 0u);
  Report(1, id, 2);
  Wait(1);
  EXPECT_EQ(Asked(), 2u);
  for (const size_t pserver : {0, 1}) EXPECT_EQ(Order(pserver).deletion().keys_size(), 0);
  EXPECT_FALSE(Outcome(id)->done());
  Complete(id, 2, 2, 4, /*deletes=*/true);
  ASSERT_TRUE(Outcome(id)->done());
  EXPECT_EQ(Outcome(id)->error(), "");
  EXPECT_EQ(Outcome(id)->rows(), 21u);
  EXPECT_EQ(Outcome(id)->step(), 4u);
  EXPECT_EQ(Outcome(id)->dir(), "/out/checkpoints/step-4");
  EXPECT_FALSE(Order(0).has_deletion());
  EXPECT_EQ(Asked(), 3u);
  EXPECT_TRUE(absl::IsNotFound(Outcome(id + 1).status()));
  EXPECT_NE(Delete({3, 5})->deletion(), id);
}

TEST_F(DeletionLifecycleTest, AsksForOneCheckpointAloneWhereNoneWasToldBefore) {
  JobConfig config = Config(0);
  config.mutable_checkpoint()->clear_every_steps();
  StartTraining(config);
  const uint64_t id = Delete({7})->deletion();
  c_.PollAll();
  EXPECT_EQ(Order(0).deletion().at(), 1u);
  ASSERT_TRUE(c_.core_.operators().CheckpointJob(job_, 0, c_.now_).ok());
  Wait(1);
  EXPECT_THAT(c_.Status(job_).checkpoint().doing(), HasSubstr("asking"));
  EXPECT_EQ(Asked(), 0u) << "somebody's checkpoint has this number, and waits as well";
  for (const size_t pserver : {0, 1}) Report(pserver, id, 1);
  Wait(1);
  EXPECT_EQ(Asked(), 1u);
}

TEST_F(DeletionLifecycleTest, TheSuccessorOfALostPserverGetsTheKeysFirst) {
  JobConfig config = Config(0);
  config.clear_recovery();
  StartTraining(config);
  const uint64_t id = Delete({7})->deletion();
  c_.PollAll();
  const uint64_t at = Order(0).deletion().at();
  for (const size_t pserver : {0, 1}) Report(pserver, id, at);
  MemberEndedRequest ended;
  ended.set_role(ROLE_PSERVER);
  ended.set_rank(1);
  ended.set_pid(1);
  ended.set_process_space("space");
  ended.set_reason("its process was killed by signal 9");
  c_.PollAll();
  ASSERT_TRUE(c_.core_.members().MemberEnded(ended, c_.now_));
  c_.desired_.erase(c_.pservers_[1]);
  RegisterRequest again = FakeCluster::Registration(ROLE_PSERVER, 1, /*pid=*/2);
  again.set_address("ps1-2");
  c_.pservers_[1] = c_.Join(again);
  c_.hosted_more_[c_.pservers_[1]] = HostedJob();
  c_.PollAll();
  ASSERT_EQ(c_.State(job_), JOB_RUNNING) << c_.Status(job_).message();
  EXPECT_EQ(Order(1).deletion().keys_size(), 1);
  EXPECT_EQ(Order(0).deletion().keys_size(), 0);
  Wait(15);
  const uint64_t then = Order(1).deletion().at();
  EXPECT_EQ(Asked(), 0u) << "not before it has them";
  Report(0, id, then);
  Report(1, id, then);
  Wait(15);
  EXPECT_EQ(Asked(), then);
  EXPECT_FALSE(Outcome(id)->done());
}

TEST_F(DeletionLifecycleTest, APserverThatDoesNotAnswerEndsIt) {
  StartTraining(Config());
  const uint64_t id = Delete({7})->deletion();
  c_.PollAll();
  Report(0, id, 2);
  Wait(130);
  ASSERT_TRUE(Outcome(id)->done());
  EXPECT_THAT(Outcome(id)->error(), HasSubstr("pserver 1"));
  EXPECT_THAT(Outcome(id)->error(), testing::Not(HasSubstr("pserver 0")));
  c_.PollAll();
  EXPECT_FALSE(Order(0).has_deletion());
  EXPECT_EQ(c_.State(job_), JOB_RUNNING);
}

TEST_F(DeletionLifecycleTest, TheEndOfTheJobEndsIt) {
  StartTraining(Config());
  const uint64_t id = Delete({7})->deletion();
  ASSERT_TRUE(c_.core_.operators().CancelJob(job_, c_.now_).ok());
  ASSERT_TRUE(Outcome(id)->done());
  EXPECT_THAT(Outcome(id)->error(), HasSubstr("the job ended"));
  EXPECT_TRUE(absl::IsFailedPrecondition(Delete({7}).status()));
}

TEST_F(DeletionLifecycleTest, RefusesWhatItCannotDo) {
  job_ = "no-job";
  EXPECT_TRUE(absl::IsNotFound(Delete({7}).status()));
  StartTraining(Config());
  EXPECT_TRUE(absl::IsInvalidArgument(Delete({}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Delete(std::vector<uint64_t>(kMaxDeletedKeys + 1)).status()));
  for (const char* table : {"w", "other"}) {
    const absl::Status refused = Delete({7}, table).status();
    EXPECT_TRUE(absl::IsNotFound(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("give one of e"));
  }
  c_.PollAll();
  for (const CutOrder& order : c_.desired_[c_.pservers_[0]].cuts())
    EXPECT_FALSE(order.has_deletion());
}

TEST_F(DeletionLifecycleTest, RefusesGeo) {
  StartTraining(Config(/*k_steps=*/10));
  const absl::Status refused = Delete({7}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("Geo"));
}

// An earlier best model would bring the rows back at the end of the job.
TEST_F(DeletionLifecycleTest, RefusesWhereTheBestModelIsKept) {
  JobConfig config = Config();
  config.mutable_checkpoint()->set_save(CheckpointConfig::BEST);
  StartTraining(config);
  const absl::Status refused = Delete({7}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("save: BEST"));
}

}  // namespace
}  // namespace sluice
