#include "scheduler/job/export_plan.h"

#include <gmock/gmock.h>

#include "tests/scheduler/job_checkpoints_fixture.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ExportPlanTest : public testing::Test {
 protected:
  static ExportConfig Steps(uint64_t every_steps) {
    ExportConfig config;
    config.set_every_steps(every_steps);
    return config;
  }
  // The part of a job with one table. `since` 0 makes it the part of a base.
  static HostedCut Part(uint64_t since, uint64_t schedule_step, uint64_t rows = 10,
                        uint64_t gone = 0) {
    HostedCut part = PartOf({}, {schedule_step});
    if (since > 0) part.add_since(since);
    part.set_rows(rows);
    part.set_gone(gone);
    return part;
  }
  // By table.
  static HostedCut PartOf(const std::vector<uint64_t>& since,
                          const std::vector<uint64_t>& schedule_steps) {
    HostedCut part;
    part.set_checkpoint(2);
    part.set_state(HostedCut::WRITTEN);
    part.mutable_since()->Assign(since.begin(), since.end());
    part.mutable_schedule_step()->Assign(schedule_steps.begin(), schedule_steps.end());
    return part;
  }
  // Completes the export of these parts.
  void Complete(const std::vector<HostedCut>& parts, uint64_t to, uint64_t step = 0) {
    Manifest manifest;
    manifest.set_global_step(step);
    ASSERT_TRUE(plan_.Fill(parts, 7, to, manifest.mutable_export_()).ok());
    plan_.Completed(manifest, "/x", At(1), At(2));
  }

  ExportPlan plan_{Steps(10), "/export", 0, kStart};
};

TEST_F(ExportPlanTest, ABaseComesFirstThenDeltasOfWhatCameAfter) {
  EXPECT_THAT(plan_.since(), IsEmpty());
  ExportFacts base;
  ASSERT_TRUE(plan_.Fill({Part(0, 12), Part(0, 11), HostedCut()}, 7, 2, &base).ok());
  EXPECT_EQ(base.from(), 0u);
  EXPECT_EQ(base.to(), 2u);
  EXPECT_EQ(base.instance(), 7u);
  EXPECT_EQ(base.rows(), 20u);
  EXPECT_EQ(base.schedule_step(), 11u) << "the least: more rows than needed do no harm";
  Complete({Part(0, 12), Part(0, 11)}, 2);
  EXPECT_THAT(plan_.since(), ElementsAre(11u));
  ExportFacts delta;
  ASSERT_TRUE(plan_.Fill({Part(11, 20, 3, 1), Part(11, 21, 4, 2)}, 7, 4, &delta).ok());
  EXPECT_EQ(delta.from(), 2u);
  EXPECT_EQ(delta.gone(), 3u);
  EXPECT_EQ(plan_.status(At(3)).bases(), 1u);
}

// Of 4 tables: a dense one, an old one, one that has joined the job, and one of the other pserver.
TEST_F(ExportPlanTest, EachTableGoesOnFromItsOwnStep) {
  const std::vector<uint64_t> base = {UINT64_MAX, 1000020, 20, UINT64_MAX};
  Complete({PartOf({}, base), PartOf({}, {UINT64_MAX, 1000021, 19, 500})}, 2);
  const std::vector<uint64_t> since = {UINT64_MAX, 1000020, 19, 500};
  EXPECT_EQ(plan_.since(), since);
  Complete({PartOf(since, {UINT64_MAX, 1000030, 31, UINT64_MAX}),
            PartOf(since, {UINT64_MAX, 1000031, 30, 510})},
           4);
  EXPECT_THAT(plan_.since(), ElementsAre(UINT64_MAX, 1000030, 30, 510));
  // Rows of one table are missing, though the other has more than it needs.
  const std::vector<uint64_t> third = {UINT64_MAX, 1000040, 40, 520};
  ExportFacts facts;
  EXPECT_EQ(plan_.Fill({PartOf({UINT64_MAX, 1000031, 19, 510}, third)}, 7, 6, &facts).code(),
            absl::StatusCode::kUnavailable);
  facts.Clear();
  ASSERT_TRUE(plan_.Fill({PartOf(since, third)}, 7, 6, &facts).ok());
  EXPECT_EQ(facts.from(), 4u);
  EXPECT_EQ(facts.schedule_step(), 40u) << "the least, dense tables aside";
}

TEST_F(ExportPlanTest, DenseTablesAloneMakeDeltasAndATableAtStepZeroMakesNone) {
  Complete({PartOf({}, {UINT64_MAX})}, 2);
  EXPECT_THAT(plan_.since(), ElementsAre(UINT64_MAX));
  Complete({PartOf({UINT64_MAX}, {UINT64_MAX})}, 4);
  EXPECT_THAT(plan_.since(), ElementsAre(UINT64_MAX));
  // An update of async may still have step 0.
  plan_.EndChain("a test");
  Complete({PartOf({}, {20, 1}), PartOf({}, {20, 0})}, 6);
  EXPECT_THAT(plan_.since(), IsEmpty());
}

TEST_F(ExportPlanTest, PartsThatDoNotFitTogetherMakeNoDelta) {
  Complete({Part(0, 12), Part(0, 12)}, 2);
  ExportFacts facts;
  // One has not heard that a delta is wanted.
  EXPECT_EQ(plan_.Fill({Part(0, 20), Part(12, 20)}, 7, 4, &facts).code(),
            absl::StatusCode::kUnavailable);
  // None has: it is whole.
  facts.Clear();
  EXPECT_TRUE(plan_.Fill({Part(0, 20), Part(0, 20)}, 7, 4, &facts).ok());
  EXPECT_EQ(facts.from(), 0u);
  Complete({Part(12, 20), Part(12, 20)}, 4);
  // Rows since an earlier export than needed are rows too many.
  facts.Clear();
  EXPECT_TRUE(plan_.Fill({Part(12, 30), Part(20, 30)}, 7, 6, &facts).ok());
  EXPECT_EQ(facts.from(), 4u);
  // Rows are missing.
  facts.Clear();
  EXPECT_EQ(plan_.Fill({Part(21, 30), Part(20, 30)}, 7, 6, &facts).code(),
            absl::StatusCode::kUnavailable);
  plan_.EndChain("pserver 1 was lost");
  EXPECT_THAT(plan_.since(), IsEmpty());
  EXPECT_EQ(plan_.Fill({Part(20, 30), Part(20, 30)}, 7, 6, &facts).code(),
            absl::StatusCode::kUnavailable)
      << "a base is wanted";
  EXPECT_EQ(plan_.status(At(3)).new_base(), "pserver 1 was lost");
  EXPECT_THAT(plan_.TakeWarning(), HasSubstr("new base"));
}

TEST_F(ExportPlanTest, APserverThatHasForgottenWhatWentMakesABaseAtOnce) {
  HostedCut forgotten = Part(0, 20);
  forgotten.set_error("more rows have gone than are kept");
  Complete({Part(0, 12), Part(0, 12)}, 2);
  // One of two: the export is no base yet, but the next one is.
  ExportFacts facts;
  EXPECT_EQ(plan_.Fill({Part(12, 20), forgotten}, 7, 4, &facts).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_THAT(plan_.since(), IsEmpty());
  EXPECT_THAT(plan_.status(At(3)).new_base(),
              testing::AllOf(HasSubstr("pserver 1"), HasSubstr("than are kept")));
  EXPECT_THAT(plan_.TakeWarning(),
              testing::AllOf(HasSubstr("new base"), HasSubstr("nothing is lost")));
  Complete({Part(0, 30), Part(0, 30)}, 6);
  ASSERT_THAT(plan_.since(), ElementsAre(30u));
  // Both.
  facts.Clear();
  ASSERT_TRUE(plan_.Fill({forgotten, forgotten}, 7, 8, &facts).ok());
  EXPECT_EQ(facts.from(), 0u);
  EXPECT_THAT(plan_.TakeWarning(), HasSubstr("new base"));
  Complete({forgotten, forgotten}, 8);
  EXPECT_THAT(plan_.since(), ElementsAre(20u)) << "a delta follows";
  const ExportStatus status = plan_.status(At(3));
  EXPECT_EQ(status.failed(), 0u);
  EXPECT_EQ(status.bases(), 3u);
  EXPECT_THAT(status.new_base(), HasSubstr("than are kept"));
}

TEST_F(ExportPlanTest, TooManyGoneKeysAndRepeatedFailuresEndTheChain) {
  Complete({Part(0, 12, 5), Part(0, 12, 5)}, 2);
  Complete({Part(12, 20, 1, 6), Part(12, 20, 1, 4)}, 4);
  EXPECT_THAT(plan_.since(), ElementsAre(20u)) << "as many as the base has rows";
  Complete({Part(20, 30, 1, 1), Part(20, 30, 1, 0)}, 6);
  EXPECT_THAT(plan_.since(), IsEmpty());
  EXPECT_THAT(plan_.status(At(3)).new_base(), HasSubstr("11 keys"));
  EXPECT_THAT(plan_.TakeWarning(), HasSubstr("nothing is lost"));
  Complete({Part(0, 40), Part(0, 40)}, 8);
  plan_.Failed("the disk is full", 50, /*counts=*/true);
  EXPECT_THAT(plan_.since(), ElementsAre(40u));
  plan_.Failed("a loss", 55, /*counts=*/false);
  EXPECT_EQ(plan_.status(At(3)).failed(), 1u);
  plan_.Failed("the disk is full", 60, /*counts=*/true);
  EXPECT_THAT(plan_.since(), IsEmpty());
  EXPECT_THAT(plan_.status(At(3)).last_error(), HasSubstr("step 60"));
}

TEST_F(ExportPlanTest, ExportsThatTakeLongerThanTheirIntervalAreSaidOnce) {
  // Completes exports during which this many steps pass.
  uint64_t cut = 0, step = 0;
  const auto make = [&](const std::vector<uint64_t>& passed) {
    for (const uint64_t steps : passed) {
      cut += 2;
      plan_.pace().NoteStep(step + steps);
      std::vector<HostedCut> parts = {Part(cut == 2 ? 0 : 10 * (cut - 2), 10 * cut)};
      Complete(parts, cut, step);
      step += steps;
    }
    return plan_.TakeWarning();
  };
  EXPECT_EQ(make({30, 9, 10, 10, 9}), "") << "a base may take longer, and a delta once";
  EXPECT_THAT(make({10, 10, 17}),
              testing::AllOf(HasSubstr("every_steps: 10 "), HasSubstr("every_steps: 34 or more"),
                             HasSubstr("newest 1.0 s")));
  EXPECT_EQ(make({9, 10, 10, 10, 10}), "");
  // Seconds begin at the end of the one before.
  ExportConfig seconds;
  seconds.set_every_s(1);
  ExportPlan by_time(seconds, "/export", 0, kStart);
  for (int i = 0; i < 5; ++i) {
    by_time.Completed(Manifest(), "/x", At(1), At(3));
    EXPECT_EQ(by_time.TakeWarning(), "");
  }
}

TEST_F(ExportPlanTest, AChainOfManyDeltasEndsByItself) {
  uint64_t cut = 2;
  for (int chain = 0; chain < 2; ++chain) {
    Complete({Part(0, 10 * cut)}, cut);
    for (uint32_t i = 0; i < ExportPlan::kMostDeltas; ++i) {
      EXPECT_THAT(plan_.since(), ElementsAre(10 * cut)) << i;
      cut += 2;
      Complete({Part(10 * (cut - 2), 10 * cut)}, cut);
    }
    EXPECT_THAT(plan_.since(), IsEmpty());
    EXPECT_THAT(plan_.status(At(3)).new_base(), HasSubstr("256 deltas"));
    EXPECT_EQ(plan_.TakeWarning(), "");
    cut += 2;
  }
}

// The exports of a job among its checkpoints.
class JobExportsTest : public JobCheckpointsTest {
 protected:
  static JobCheckpoints MakeWith(uint64_t every_checkpoint, uint64_t every_export,
                                 Mode mode = Mode::kSync, uint64_t over = 0,
                                 uint32_t every_epochs = 0) {
    JobCheckpoints::Options options;
    options.over = over;
    options.config.set_every_epochs(every_epochs);
    options.ranks_write = mode == Mode::kAsync;
    options.config.set_every_steps(every_checkpoint);
    options.root = "/ckpt";
    options.worker_num = options.pserver_num = 2;
    options.instance = 7;
    options.mode = mode;
    options.exports.emplace();
    options.exports->set_every_steps(every_export);
    options.export_root = "/export";
    return JobCheckpoints(options, kStart);
  }
  // All parts of an export; the manifest to write.
  static std::optional<Manifest> Bring(JobCheckpoints* c, uint64_t number, uint64_t step,
                                       uint64_t since, double at) {
    for (const uint32_t i : {0, 1}) {
      HostedCut cut = Hosted(HostedCut::WRITTEN, number, step);
      if (since > 0) cut.add_since(since);
      cut.add_schedule_step(step);
      c->TakeHosted(i, cut, At(at));
    }
    if (c->needs_state()) c->SetState(State(step), At(at));
    for (const uint32_t rank : {0, 1}) c->TakeWorker(Worker(rank, number, step), At(at));
    return c->TakeCommit();
  }
  // Export 2 is being completed. It is made, and then a checkpoint is asked for at once.
  static void ExpectMadeBeforeCheckpoint(JobCheckpoints* c, double at) {
    EXPECT_TRUE(c->committing());
    c->Committed(2, absl::OkStatus(), At(at));
    EXPECT_EQ(c->export_status()->made(), 1u);
    EXPECT_EQ(c->asked(), (JobCheckpoints::Asked{3, 0}));
  }
};

TEST_F(JobExportsTest, TheMultipleThatComesFirstIsNamedAndOthersAreMadeUpFor) {
  JobCheckpoints c = MakeWith(100, 40);
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{2, 40})) << "exports have even numbers";
  auto base = Bring(&c, 2, 40, 0, 1);
  ASSERT_TRUE(base);
  EXPECT_EQ(base->export_().from(), 0u);
  EXPECT_FALSE(base->has_checkpoint()) << "it is a model";
  EXPECT_EQ(c.status().doing(), "");
  EXPECT_THAT(c.export_status()->doing(), HasSubstr("step 40"));
  c.Committed(2, absl::OkStatus(), At(2));
  EXPECT_EQ(c.over(), 2u);
  EXPECT_THAT(c.ordered().export_since, ElementsAre(40u));
  EXPECT_EQ(c.status().made(), 0u) << "it is no checkpoint";
  EXPECT_EQ(c.export_status()->made(), 1u);
  EXPECT_EQ(c.export_status()->dir(), "/export/0000000000000007-000002");
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{4, 40}));
  c.NoteStep(81, At(3));
  c.Plan(At(3));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{4, 0})) << "80 has passed";
  const auto delta = Bring(&c, 4, 82, 40, 4);
  ASSERT_TRUE(delta);
  EXPECT_EQ(delta->export_().from(), 2u);
  c.NoteStep(121, At(5));
  c.Committed(4, absl::OkStatus(), At(5));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{5, 0})) << "the checkpoint of 100 goes first";
  Complete(&c, 5, 122, At(6), At(7));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{6, 0})) << "then the export of 120";
  EXPECT_EQ(c.newest_manifest()->global_step(), 122u);
}

TEST_F(JobExportsTest, APserverWithoutShardsIsNoPartOfADelta) {
  JobCheckpoints::Options options;
  options.worker_num = 2;
  options.pserver_num = 3;
  options.without_shards = {2};
  options.instance = 7;
  options.exports.emplace();
  options.exports->set_every_steps(40);
  options.export_root = "/export";
  JobCheckpoints c(options, kStart);
  ASSERT_TRUE(Bring(&c, 2, 40, 0, 1));
  c.Committed(2, absl::OkStatus(), At(2));
  const auto delta = Bring(&c, 4, 80, 40, 3);
  ASSERT_TRUE(delta);
  EXPECT_EQ(delta->export_().from(), 2u);
}

TEST_F(JobExportsTest, BothTakeTurnsWhenEachLastsLongerThanTheIntervals) {
  JobCheckpoints c = MakeWith(10, 10);
  c.NoteStep(15, At(1));
  c.Plan(At(1));
  ASSERT_EQ(c.asked(), (JobCheckpoints::Asked{1, 0}));
  Complete(&c, 1, 25, At(2), At(3));
  c.NoteStep(35, At(3));
  c.Plan(At(3));
  ASSERT_EQ(c.asked(), (JobCheckpoints::Asked{2, 0})) << "although a checkpoint is due, too";
  ASSERT_TRUE(Bring(&c, 2, 36, 0, 4));
  c.NoteStep(55, At(5));
  c.Committed(2, absl::OkStatus(), At(5));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{3, 0}));
  Complete(&c, 3, 56, At(6), At(7));
  c.NoteStep(75, At(8));
  EXPECT_GT(c.Demand(At(8)), 4u);
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{5, 0})) << "who waits goes first";
}

TEST_F(JobExportsTest, OneAtATimeWhoeverIsReportedFirst) {
  JobCheckpoints c = MakeWith(100, 40);
  // Rank 0 has followed an older wish.
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 1, 100), At(1));
  EXPECT_EQ(c.open_number(), 1u);
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 2, 120), At(1));
  EXPECT_EQ(c.open_step(), 100u);
  EXPECT_EQ(c.asked().number, 0u);
  c.GiveUp("it takes too long", At(2));
  EXPECT_EQ(c.over(), 1u);
  EXPECT_EQ(c.asked().number, 2u) << "of the same place";
}

TEST_F(JobExportsTest, ADemandedCheckpointDoesNotWaitForAnExport) {
  JobCheckpoints c = MakeWith(0, 40);
  ASSERT_TRUE(Bring(&c, 2, 40, 0, 1));
  c.Committed(2, absl::OkStatus(), At(2));
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 4, 80), At(3));
  ASSERT_EQ(c.open_number(), 4u);
  EXPECT_EQ(c.Demand(At(4)), 5u);
  EXPECT_EQ(c.over(), 4u) << "its writers are told to stop";
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{5, 0}));
  EXPECT_EQ(c.export_status()->failed(), 0u);
  // One that was still writing refuses the next cut. It is tried again when all have stopped.
  HostedCut refused = Hosted(HostedCut::FAILED, 5, 84);
  c.TakeHosted(0, refused, At(5));
  EXPECT_EQ(c.Followed(5), 7u);
  c.Plan(At(14));
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{7, 0}));
  Complete(&c, 7, 88, At(15), At(16));
  ASSERT_NE(c.OutcomeOf(7), nullptr);
  EXPECT_EQ(c.OutcomeOf(7)->error, "");
  const auto delta = Bring(&c, 8, 90, 40, 17);
  ASSERT_TRUE(delta);
  EXPECT_EQ(delta->export_().from(), 2u) << "the chain continues";
}

TEST_F(JobExportsTest, ADemandedCheckpointWaitsForAnExportThatIsBeingCompleted) {
  JobCheckpoints c = MakeWith(0, 40);
  ASSERT_TRUE(Bring(&c, 2, 40, 0, 1));
  EXPECT_EQ(c.Demand(At(2)), 3u);
  ExpectMadeBeforeCheckpoint(&c, 3);
}

TEST_F(JobExportsTest, ADemandedCheckpointGivesUpAnExportThatOvertakesIt) {
  JobCheckpoints c = MakeWith(0, 40);
  EXPECT_EQ(c.Demand(At(1)), 1u);
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{1, 0}));
  // Rank 0 had named it before it heard.
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 2, 40), At(2));
  EXPECT_FALSE(c.open());
  EXPECT_EQ(c.over(), 2u);
  EXPECT_EQ(c.Followed(1), 3u);
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{3, 0}));
  Complete(&c, 3, 44, At(4), At(5));
  ASSERT_NE(c.OutcomeOf(c.Followed(1)), nullptr);
  EXPECT_EQ(c.OutcomeOf(c.Followed(1))->error, "");
}

TEST_F(JobExportsTest, AsyncADemandedCheckpointDoesNotWaitForRanksThatAreAskedForAnExport) {
  JobCheckpoints c = MakeWith(0, 40, Mode::kAsync);
  JobCheckpoints::Training training;
  training.all_ranks = true;
  c.NoteTraining(training);
  c.NoteStep(41, At(1));
  c.Plan(At(1));
  ASSERT_EQ(c.asked().number, 2u);
  EXPECT_EQ(c.Demand(At(2)), 3u);
  EXPECT_EQ(c.asked().number, 3u);
  EXPECT_TRUE(c.asked().ranks_write);
}

TEST_F(JobExportsTest, TheEndOfAnEpochGivesUpAnExportThatLastsTooLongAndWaitsForTheNextOne) {
  JobCheckpoints c = MakeWith(0, 40, Mode::kSync, /*over=*/0, /*every_epochs=*/1);
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 2, 40), At(1));
  c.EpochEnds(End(0, 60), At(10));
  c.Plan(At(69.5));
  EXPECT_EQ(c.open_number(), 2u);
  EXPECT_TRUE(c.holds_phase());
  c.Plan(At(70));
  EXPECT_EQ(c.over(), 2u) << "its writers are told to stop";
  EXPECT_EQ(c.open_number(), 3u);
  EXPECT_EQ(c.ordered().number, 3u);
  EXPECT_EQ(c.export_status()->failed(), 0u);
  // A writer that had not stopped refuses the cut.
  c.TakeHosted(0, Hosted(HostedCut::FAILED, 3, 60), At(71));
  EXPECT_TRUE(c.holds_phase()) << "the end is saved once all have stopped";
  c.Plan(At(81));
  ASSERT_EQ(c.ordered().number, 5u);
  for (const uint32_t i : {0, 1}) c.TakeHosted(i, Hosted(HostedCut::WRITTEN, 5, 60), At(82));
  ASSERT_TRUE(c.TakeCommit());
  c.Committed(5, absl::OkStatus(), At(83));
  // The next epoch. Its export may finish.
  c.EpochBegins(At(83));
  c.NoteStep(81, At(84));
  c.Plan(At(84));
  ASSERT_EQ(c.asked(), (JobCheckpoints::Asked{6, 0}));
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 6, 82), At(85));
  c.EpochEnds(End(1, 120), At(90));
  c.Plan(At(1000));
  EXPECT_EQ(c.open_number(), 6u);
  ASSERT_TRUE(Bring(&c, 6, 82, 0, 1001));
  c.Committed(6, absl::OkStatus(), At(1002));
  EXPECT_EQ(c.export_status()->made(), 1u);
  EXPECT_EQ(c.open_number(), 7u);
  for (const uint32_t i : {0, 1}) c.TakeHosted(i, Hosted(HostedCut::WRITTEN, 7, 120), At(1003));
  ASSERT_TRUE(c.TakeCommit());
  c.Committed(7, absl::OkStatus(), At(1004));
  // The export after that gives way again, also to the checkpoint of the job's end.
  c.EpochBegins(At(1004));
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 8, 130), At(1005));
  c.EpochEnds(End(2, 180, /*last=*/true), At(1010));
  c.Plan(At(1070));
  EXPECT_EQ(c.open_number(), 9u);
}

TEST_F(JobExportsTest, ACheckpointThatIsDueGivesUpAnExportThatLastsTooLong) {
  for (const Mode mode : {Mode::kSync, Mode::kAsync}) {
    JobCheckpoints c = MakeWith(100, 40, mode);
    JobCheckpoints::Training training;
    training.all_ranks = true;
    c.NoteTraining(training);
    c.NoteStep(41, At(1));
    c.Plan(At(1));
    ASSERT_EQ(c.asked().number, 2u);
    c.TakeHosted(0, Hosted(HostedCut::WRITING, 2, 41), At(2));
    c.Plan(At(90));
    c.NoteStep(100, At(100));
    c.Plan(At(100));
    c.Plan(At(159.5));
    EXPECT_EQ(c.open_number(), 2u) << "the checkpoint is due since 59.5 s";
    c.Plan(At(160));
    EXPECT_EQ(c.over(), 2u);
    EXPECT_EQ(c.asked().number, 3u);
    EXPECT_EQ(c.export_status()->failed(), 0u);
  }
}

TEST_F(JobExportsTest, AnExportThatIsBeingCompletedDoesNotGiveWay) {
  JobCheckpoints c = MakeWith(100, 40);
  ASSERT_TRUE(Bring(&c, 2, 40, 0, 1));
  c.NoteStep(100, At(2));
  for (const double at : {2, 1000}) c.Plan(At(at));
  ExpectMadeBeforeCheckpoint(&c, 1001);
}

TEST_F(JobExportsTest, AJobThatContinuesWithoutARankDoesNotWaitForAnExport) {
  JobCheckpoints c = MakeWith(0, 40);
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 2, 40), At(1));
  c.TakeWorker(Worker(1, 2, 40), At(1));
  c.Hold(At(2));
  c.RankLost(1, At(2));
  EXPECT_FALSE(c.open());
  EXPECT_EQ(c.over(), 2u);
  EXPECT_EQ(c.export_status()->failed(), 0u);
  EXPECT_EQ(c.CutAfterLoss(57, {{1, WorkerState()}}, At(3)), 3u);
}

TEST_F(JobExportsTest, TheEndOfAnEpochWaitsForAnExportAndIsNoExport) {
  JobCheckpoints c = MakeWith(0, 10);
  JobCheckpoints::Options options;
  c.NoteNamed(2, 10, At(1));
  c.EpochEnds(End(0, 10, /*last=*/true), At(1));
  EXPECT_FALSE(c.finishes_job()) << "no checkpoint of the end is asked for";
  ASSERT_TRUE(Bring(&c, 2, 10, 0, 2));
  c.Committed(2, absl::OkStatus(), At(3));
  EXPECT_EQ(c.export_status()->made(), 1u);
}

TEST_F(JobExportsTest, LossesEndAnExportAndOnlyThoseOfShardsTheChain) {
  JobCheckpoints c = MakeWith(0, 40);
  ASSERT_TRUE(Bring(&c, 2, 40, 0, 1));
  c.Committed(2, absl::OkStatus(), At(2));
  c.TakeHosted(0, Hosted(HostedCut::WRITING, 4, 80), At(3));
  c.RankLost(1, At(3));
  EXPECT_EQ(c.open_number(), 0u);
  EXPECT_EQ(c.over(), 4u);
  EXPECT_THAT(c.ordered().export_since, ElementsAre(40u)) << "the chain continues";
  EXPECT_EQ(c.export_status()->failed(), 0u);
  bool discarded = false;
  for (const auto& discard : c.TakeDiscards(At(3)))
    discarded = discarded || (discard.is_export && discard.number == 4);
  EXPECT_TRUE(discarded);
  c.ShardsLost(0, At(4));
  EXPECT_THAT(c.ordered().export_since, IsEmpty());
  EXPECT_THAT(c.export_status()->new_base(), HasSubstr("pserver 0"));
  // Nothing is open, but rank 0 may have named either.
  c.RankLost(0, At(5));
  EXPECT_EQ(c.over(), 6u);
}

TEST_F(JobExportsTest, NoDeltaFollowsAnExportThatWasBeingCompletedWhenShardsWereLost) {
  JobCheckpoints c = MakeWith(0, 40);
  ASSERT_TRUE(Bring(&c, 2, 40, 0, 1));
  c.ShardsLost(1, At(2));
  c.Committed(2, absl::OkStatus(), At(3));
  EXPECT_EQ(c.export_status()->made(), 1u);
  EXPECT_THAT(c.ordered().export_since, IsEmpty());
  EXPECT_THAT(c.export_status()->new_base(), HasSubstr("pserver 1"));
}

TEST_F(JobExportsTest, ANewSchedulerBeginsWithABase) {
  JobCheckpoints c = MakeWith(0, 40, Mode::kSync, /*over=*/3);
  EXPECT_EQ(c.asked(), (JobCheckpoints::Asked{4, 40}));
  EXPECT_THAT(c.export_status()->new_base(), HasSubstr("scheduler"));
}

TEST_F(JobExportsTest, AnotherRunOfTheJobBeginsWithABase) {
  JobCheckpoints c = MakeWith(0, 40);
  ASSERT_TRUE(Bring(&c, 2, 40, 0, 1));
  c.Committed(2, absl::OkStatus(), At(2));
  c.Interrupt(At(3));
  JobCheckpoints::NextRun run;
  run.instance = 8;
  run.worker_num = run.pserver_num = 2;
  c.Restart(run, At(4));
  EXPECT_THAT(c.ordered().export_since, IsEmpty());
  const auto base = Bring(&c, 4, 40, 0, 5);
  ASSERT_TRUE(base);
  EXPECT_EQ(base->export_().from(), 0u);
  EXPECT_EQ(base->export_().instance(), 8u);
}

TEST_F(JobExportsTest, AManifestThatMayBeInForceEndsTheChain) {
  JobCheckpoints c = MakeWith(0, 40);
  ASSERT_TRUE(Bring(&c, 2, 40, 0, 1));
  c.Committed(2, absl::OkStatus(), At(2));
  ASSERT_TRUE(Bring(&c, 4, 80, 40, 3));
  c.Committed(4, absl::UnavailableError("the store does not answer"), At(4));
  EXPECT_THAT(c.ordered().export_since, IsEmpty());
  EXPECT_EQ(c.export_status()->failed(), 1u);
}

TEST_F(JobExportsTest, AsyncAsksAllRanksAndOrdersThePservers) {
  JobCheckpoints c = MakeWith(0, 40, Mode::kAsync);
  JobCheckpoints::Training training;
  training.all_ranks = true;
  c.NoteTraining(training);
  c.NoteStep(41, At(1));
  c.Plan(At(1));
  EXPECT_EQ(c.asked().number, 2u);
  EXPECT_FALSE(c.asked().ranks_write) << "an export has no files of ranks";
  for (const uint32_t rank : {0, 1}) c.TakeWorker(Worker(rank, 2, 0), At(2));
  EXPECT_EQ(c.ordered().number, 2u);
}

}  // namespace
}  // namespace sluice
