#include "worker/context/worker_cut.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace sluice {
namespace {

class WorkerCutsTest : public ::testing::Test {
 protected:
  void Want(uint64_t number, uint64_t every_steps) {
    WorkerCheckpoint wanted;
    wanted.set_number(number);
    wanted.set_every_steps(every_steps);
    cuts_.SetWanted(wanted);
  }
  static WorkerState Trained(uint64_t examples) {
    WorkerState state;
    state.mutable_train()->set_examples(examples);
    state.set_net_state("net");
    return state;
  }

  int reports_ = 0;
  WorkerCuts cuts_{"job-1", 2, 9, [this] { ++reports_; }};
};

TEST_F(WorkerCutsTest, ACommitOfAMultipleNamesACheckpointOnce) {
  EXPECT_EQ(cuts_.ForCommit(1), 0u);
  EXPECT_EQ(cuts_.named().number, 0u);
  Want(1, 3);
  EXPECT_EQ(cuts_.ForCommit(2), 0u);
  EXPECT_EQ(cuts_.ForCommit(3), 1u);
  EXPECT_EQ(cuts_.ForCommit(4), 0u);
  Want(1, 3);
  EXPECT_EQ(cuts_.ForCommit(6), 0u) << "the same wish again: it is still being written";
  EXPECT_EQ(cuts_.named().number, 1u);
  EXPECT_EQ(cuts_.named().step, 3u);
  Want(2, 3);
  EXPECT_EQ(cuts_.ForCommit(8), 0u);
  EXPECT_EQ(cuts_.ForCommit(9), 2u);
  Want(3, 0);
  EXPECT_EQ(cuts_.ForCommit(10), 3u) << "as soon as possible";
  Want(1, 0);
  EXPECT_EQ(cuts_.ForCommit(11), 0u) << "an older one";
}

TEST_F(WorkerCutsTest, OfTwoThatTakeTheSamePlaceOneIsNamed) {
  // A checkpoint, number 3, or an export, number 4, whichever is due first.
  WorkerCheckpoint wanted;
  wanted.set_number(3);
  wanted.set_every_steps(10);
  wanted.set_after(3);
  cuts_.SetWanted(wanted);
  wanted.set_number(4);
  cuts_.SetWanted(wanted);
  wanted.set_number(3);
  cuts_.SetWanted(wanted);
  EXPECT_EQ(cuts_.ForCommit(10), 3u);
  wanted.set_number(4);
  cuts_.SetWanted(wanted);
  EXPECT_EQ(cuts_.ForCommit(20), 0u) << "the scheduler has not heard of number 3 yet";
  wanted.set_number(6);
  wanted.set_after(4);
  cuts_.SetWanted(wanted);
  EXPECT_EQ(cuts_.ForCommit(30), 6u);
}

TEST_F(WorkerCutsTest, DoesNotNameACheckpointThatIsNoLongerWanted) {
  Want(1, 3);
  cuts_.SetWanted(WorkerCheckpoint());
  EXPECT_EQ(cuts_.ForCommit(3), 0u);
}

TEST_F(WorkerCutsTest, AfterALossTheStateOfTheStepThatIsAskedForIsRecorded) {
  WorkerCheckpoint wanted;
  wanted.set_number(3);
  wanted.set_at_step(5);
  wanted.set_by_order(true);
  for (const bool asked_first : {true, false}) {
    SCOPED_TRACE(asked_first);
    WorkerCuts cuts("job-1", 2, 9, nullptr);
    PollRequest report;
    if (asked_first) cuts.SetWanted(wanted);
    cuts.KeepState(4, Trained(40));
    EXPECT_EQ(cuts.ForCommit(5), 0u) << "no commit names it";
    cuts.AddTo(&report);
    EXPECT_FALSE(report.has_cut());
    cuts.KeepState(5, Trained(50));
    if (!asked_first) cuts.SetWanted(wanted);
    cuts.AddTo(&report);
    EXPECT_EQ(report.cut().checkpoint(), 3u);
    EXPECT_EQ(report.cut().step(), 5u);
    EXPECT_EQ(report.cut().state().train().examples(), 50u);
    EXPECT_EQ(report.cut().state().net_state(), "net");
  }
}

TEST_F(WorkerCutsTest, AfterALossNothingIsRecordedOfAnotherStep) {
  WorkerCheckpoint wanted;
  wanted.set_number(3);
  wanted.set_by_order(true);
  cuts_.SetWanted(wanted);  // a step that does not exist
  wanted.set_at_step(5);
  cuts_.KeepState(6, Trained(60));
  cuts_.SetWanted(wanted);
  PollRequest report;
  cuts_.AddTo(&report);
  EXPECT_FALSE(report.has_cut());
}

TEST_F(WorkerCutsTest, EveryReportHasTheNewestPart) {
  PollRequest report;
  cuts_.AddTo(&report);
  EXPECT_FALSE(report.has_cut());
  EXPECT_FALSE(cuts_.IsNew(0));
  EXPECT_TRUE(cuts_.IsNew(1));
  cuts_.Record(1, 40, Trained(400));
  EXPECT_EQ(reports_, 1);
  for (int i = 0; i < 2; ++i) {
    report.Clear();
    cuts_.AddTo(&report);
    EXPECT_EQ(report.cut().job_id(), "job-1");
    EXPECT_EQ(report.cut().rank(), 2u);
    EXPECT_EQ(report.cut().incarnation(), 9u);
    EXPECT_EQ(report.cut().checkpoint(), 1u);
    EXPECT_EQ(report.cut().step(), 40u);
    EXPECT_EQ(report.cut().state().train().examples(), 400u);
    EXPECT_EQ(report.cut().state().net_state(), "net");
  }
  EXPECT_FALSE(cuts_.IsNew(1));
  cuts_.Record(1, 41, Trained(410));
  cuts_.AddTo(&report);
  EXPECT_EQ(report.cut().step(), 40u) << "a cut is recorded once";
  EXPECT_EQ(reports_, 1);
  cuts_.Record(3, 60, Trained(600));
  cuts_.AddTo(&report);
  EXPECT_EQ(report.cut().checkpoint(), 3u);
  EXPECT_EQ(report.cut().step(), 60u);
  EXPECT_EQ(reports_, 2);
}

TEST_F(WorkerCutsTest, ReportSoonMayBeNull) {
  WorkerCuts quiet("job-1", 0, 1, nullptr);
  quiet.Record(1, 1, WorkerState());
  EXPECT_FALSE(quiet.IsNew(1));
}

class ParkedTest : public WorkerCutsTest {
 protected:
  void WantParked(uint64_t number, bool released) {
    WorkerCheckpoint wanted;
    wanted.set_number(number);
    wanted.set_park(true);
    wanted.set_released(released);
    cuts_.SetWanted(wanted);
  }
  WorkerCut Reported() const {
    PollRequest report;
    cuts_.AddTo(&report);
    return report.cut();
  }
  std::atomic<bool> cancelled_{false};
};

TEST_F(ParkedTest, ARankIsAskedUntilItHasAPart) {
  EXPECT_EQ(cuts_.asked(), 0u);
  WantParked(3, false);
  EXPECT_EQ(cuts_.asked(), 3u);
  cuts_.RecordParked(3, 17, Trained(5));
  EXPECT_EQ(cuts_.asked(), 0u);
  WantParked(3, true);
  EXPECT_EQ(cuts_.asked(), 0u);
  WantParked(4, false);
  EXPECT_EQ(cuts_.asked(), 4u);
  cuts_.RecordError(4, "disk full");
  EXPECT_EQ(cuts_.asked(), 0u);
  EXPECT_EQ(Reported().error(), "disk full");
  EXPECT_FALSE(Reported().parked());
  cuts_.SetWanted(WorkerCheckpoint());
  EXPECT_EQ(cuts_.asked(), 0u);
}

TEST_F(ParkedTest, AParkedRankContinuesWhenItIsReleasedAndSaysSo) {
  WantParked(3, false);
  cuts_.RecordParked(3, 17, Trained(5));
  EXPECT_TRUE(Reported().parked());
  EXPECT_EQ(Reported().step(), 17u);
  EXPECT_EQ(reports_, 1);
  std::atomic<bool> gone_on{false};
  std::thread rank([&] {
    cuts_.AwaitRelease(&cancelled_, nullptr);
    gone_on = true;
  });
  EXPECT_FALSE(gone_on);
  EXPECT_TRUE(Reported().parked());
  WantParked(3, true);
  rank.join();
  EXPECT_FALSE(Reported().parked());
  EXPECT_EQ(Reported().error(), "");
  EXPECT_EQ(Reported().state().train().examples(), 5u);
  EXPECT_EQ(reports_, 2);
  cuts_.AwaitRelease(&cancelled_, nullptr);  // it is not parked
  EXPECT_EQ(reports_, 2);
}

TEST_F(ParkedTest, AWithdrawnWishOrACancellationEndsTheWait) {
  WantParked(1, false);
  cuts_.RecordParked(1, 0, WorkerState());
  cuts_.SetWanted(WorkerCheckpoint());
  cuts_.AwaitRelease(&cancelled_, nullptr);
  EXPECT_EQ(Reported().error(), "");

  WantParked(2, false);
  cuts_.RecordParked(2, 0, WorkerState());
  cancelled_ = true;
  cuts_.AwaitRelease(&cancelled_, nullptr);
  EXPECT_EQ(Reported().error(), "");
}

TEST_F(ParkedTest, ARankTrainsOnWhenTheSchedulerIsSilentAndItsPartIsVoid) {
  WantParked(3, false);
  cuts_.RecordParked(3, 0, WorkerState());
  std::atomic<bool> silent{false}, gone_on{false};
  std::thread rank([&] {
    cuts_.AwaitRelease(&cancelled_, [&] { return silent.load(); });
    gone_on = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  EXPECT_FALSE(gone_on) << "the scheduler answers";
  silent = true;
  rank.join();
  EXPECT_FALSE(Reported().parked());
  EXPECT_NE(Reported().error(), "");
  EXPECT_EQ(reports_, 2);
  // What the scheduler says later does not make the part valid again.
  WantParked(3, true);
  cuts_.AwaitRelease(&cancelled_, nullptr);
  cuts_.GoOn();
  EXPECT_NE(Reported().error(), "");
}

TEST_F(ParkedTest, AReleaseThatHasComeCountsEvenIfTheSchedulerIsSilentNow) {
  WantParked(3, false);
  cuts_.RecordParked(3, 0, WorkerState());
  WantParked(3, true);
  cuts_.AwaitRelease(&cancelled_, [] { return true; });
  EXPECT_FALSE(Reported().parked());
  EXPECT_EQ(Reported().error(), "");
}

TEST_F(WorkerCutsTest, AfterALossOneRankWritesTheTablesOfTheStateThatItHasKept) {
  WorkerCuts cuts("job", 1, 5, nullptr);
  std::vector<uint64_t> asked;
  WorkerCuts::TablesSaved saved;
  WorkerState state;
  state.mutable_train()->set_examples(9);
  cuts.KeepState(4, state, [&](uint64_t number, WorkerCuts::TablesSaved done) {
    asked.push_back(number);
    saved = std::move(done);
  });
  WorkerCheckpoint wanted;
  wanted.set_number(2);
  wanted.set_at_step(4);
  wanted.set_by_order(true);
  wanted.set_writes_tables(true);
  for (int i = 0; i < 2; ++i) cuts.SetWanted(wanted);
  EXPECT_EQ(asked, std::vector<uint64_t>{2}) << "once";
  PollRequest report;
  cuts.AddTo(&report);
  EXPECT_FALSE(report.has_cut()) << "the files are being written";
  SavedFile file;
  file.set_name("dense");
  saved(std::vector<SavedFile>{file});
  cuts.AddTo(&report);
  EXPECT_EQ(report.cut().checkpoint(), 2u);
  EXPECT_EQ(report.cut().step(), 4u);
  EXPECT_EQ(report.cut().state().train().examples(), 9u);
  ASSERT_EQ(report.cut().state().dense_files_size(), 1);
  // The next try fails.
  wanted.set_number(3);
  cuts.SetWanted(wanted);
  saved(absl::UnavailableError("the disk is full"));
  cuts.AddTo(&report);
  EXPECT_EQ(report.cut().checkpoint(), 3u);
  EXPECT_EQ(report.cut().error(), "the disk is full");
}

}  // namespace
}  // namespace sluice
