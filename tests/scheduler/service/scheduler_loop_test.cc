#include "scheduler/service/scheduler_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <new>
#include <string>
#include <thread>

#include "tests/common/base/fake_clock.h"
#include "tests/scheduler/logged_lines.h"
#include "tests/scheduler/loop_fixture.h"

namespace sluice {
namespace {

using PollAnswer = absl::StatusOr<PollReply>;
using CheckpointAnswer = absl::StatusOr<CheckpointJobReply>;

class KeptLoopTest : public KeptState {};

TEST(SchedulerLoopTest, PollWaitsUntilTheDesiredStateChanges) {
  LocalScheduler scheduler;
  PollRequest request = scheduler.Join(Worker(1));
  std::promise<PollAnswer> first;
  scheduler.intake().Poll(&request, Into(&first));
  request.set_seen_version(first.get_future().get()->version());
  request.set_wait_ms(30000);
  std::promise<PollAnswer> second;
  scheduler.intake().Poll(&request, Into(&second));
  std::future<PollAnswer> answer = second.get_future();
  EXPECT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_TRUE(scheduler.Shutdown().ok());
  EXPECT_TRUE(answer.get()->stop());
}

TEST(SchedulerLoopTest, ACallForACheckpointWaitsForItsEnd) {
  LocalScheduler scheduler;
  TwoMembers members(&scheduler);
  SubmitJobRequest submit = SmallJob("sync", 1);
  submit.mutable_config()->mutable_strategy()->set_a_sync(false);
  const auto job = scheduler.Submit(submit);
  ASSERT_TRUE(job.ok()) << job.status();
  CheckpointJobRequest request;
  request.set_job_id("no-job");
  EXPECT_TRUE(absl::IsNotFound(scheduler.Checkpoint(request).status()));
  request.set_job_id(job->job_id());
  EXPECT_TRUE(absl::IsFailedPrecondition(scheduler.Checkpoint(request).status()));

  ASSERT_NO_FATAL_FAILURE(members.OpenTables(job->job_id()));
  // The output folder is made ready on another thread.
  while (!scheduler.Report(members.of_worker).has_assignment()) std::this_thread::yield();
  const auto asked = scheduler.Checkpoint(request);  // does not wait
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_FALSE(asked->done());
  EXPECT_EQ(scheduler.Report(members.of_worker).assignment().checkpoint().number(),
            asked->number());

  request.set_number(asked->number());
  request.set_wait_ms(30000);
  std::promise<CheckpointAnswer> waiting;
  scheduler.intake().CheckpointJob(&request, Into(&waiting));
  std::future<CheckpointAnswer> end = waiting.get_future();
  EXPECT_EQ(end.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  HostedCut* const cut = members.of_pserver.mutable_hosted(0)->mutable_cut();
  cut->set_checkpoint(asked->number());
  cut->set_state(HostedCut::FAILED);
  cut->set_error("disk full");
  scheduler.Report(members.of_pserver);
  const CheckpointAnswer failed = end.get();
  ASSERT_TRUE(failed.ok()) << failed.status();
  EXPECT_TRUE(failed->done());
  EXPECT_NE(failed->error().find("disk full"), std::string::npos) << failed->error();
}

TEST(SchedulerLoopTest, ACallThatDeletesRowsWaitsForTheirEnd) {
  LocalScheduler scheduler;
  TwoMembers members(&scheduler);
  SubmitJobRequest submit = SmallJob("sync", 1);
  submit.mutable_config()->mutable_strategy()->set_a_sync(false);
  Feature* const feature = submit.mutable_config()->add_features();
  feature->set_name("c");
  feature->mutable_categorical();
  const auto job = scheduler.Submit(submit);
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_NO_FATAL_FAILURE(members.OpenTables(job->job_id()));
  // The output folder is made ready on another thread.
  while (!scheduler.Report(members.of_worker).has_assignment()) std::this_thread::yield();
  using Answer = absl::StatusOr<DeleteRowsReply>;
  DeleteRowsRequest request;
  request.set_job_id(job->job_id());
  request.set_wait_ms(30000);
  request.set_table("embedding");
  for (const uint64_t key : {9, 7, 9, 8}) request.add_keys(key);
  std::promise<Answer> waiting;
  scheduler.intake().DeleteRows(&request, Into(&waiting));
  std::future<Answer> end = waiting.get_future();
  EXPECT_EQ(end.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  const DeletionOrder told = scheduler.Report(members.of_pserver).cuts(0).deletion();
  EXPECT_THAT(told.keys(), testing::ElementsAre(7, 8, 9)) << "ascending and each once";
  ASSERT_TRUE(scheduler.Cancel(job->job_id()).ok());
  const Answer over = end.get();
  ASSERT_TRUE(over.ok()) << over.status();
  EXPECT_TRUE(over->done());
  EXPECT_NE(over->error(), "");
  // Whoever has missed the answer asks with its number.
  request.clear_keys();
  request.set_deletion(told.id());
  std::promise<Answer> again;
  scheduler.intake().DeleteRows(&request, Into(&again));
  EXPECT_EQ(again.get_future().get()->error(), over->error());
}

TEST(SchedulerLoopTest, FencedPollIsAnsweredAtOnce) {
  LocalScheduler scheduler;
  PollRequest request = scheduler.Join(Worker(1));
  std::promise<PollAnswer> first;
  scheduler.intake().Poll(&request, Into(&first));
  request.set_seen_version(first.get_future().get()->version());
  request.set_wait_ms(30000);
  std::promise<PollAnswer> second;
  scheduler.intake().Poll(&request, Into(&second));
  RegisterRequest newcomer = Worker(2);
  newcomer.set_ended_pid(1);
  ASSERT_TRUE(scheduler.intake().Register(newcomer).ok());
  EXPECT_TRUE(absl::IsAborted(second.get_future().get().status()));
}

TEST(SchedulerLoopTest, AMemberWhoseProcessHasEndedIsLostBeforeItsLease) {
  LocalScheduler::Options options = LocalScheduler::Small();
  options.core.heartbeat = absl::Milliseconds(10);
  options.core.lease = absl::Hours(1);
  options.process_space = "space";
  options.process_has_ended = [](uint32_t pid) { return pid == 1; };
  LocalScheduler scheduler(std::move(options));
  PollRequest request = scheduler.Join(Worker(1));
  request.set_seen_version(1);
  request.set_wait_ms(30000);
  std::promise<PollAnswer> answer;
  scheduler.intake().Poll(&request, Into(&answer));
  EXPECT_TRUE(absl::IsNotFound(answer.get_future().get().status()));
}

TEST(SchedulerLoopTest, SettingTheTimeOfDayLosesNobody) {
  FakeClock clock;
  LocalScheduler::Options options = LocalScheduler::Small();
  options.clock = &clock;
  LocalScheduler scheduler(std::move(options));
  PollRequest request = scheduler.Join(Worker(1));
  for (const absl::Duration step : {absl::Hours(1), -absl::Hours(2)}) {
    clock.StepWall(step);
    std::promise<PollAnswer> answer;
    scheduler.intake().Poll(&request, Into(&answer));
    EXPECT_TRUE(answer.get_future().get().ok());
    ASSERT_EQ(scheduler.loop().GetStatus().members_size(), 1);
    EXPECT_TRUE(scheduler.loop().GetStatus().members(0).alive());
    EXPECT_EQ(scheduler.loop().GetStatus().members(0).last_seen_s(), 0);
  }
}

TEST(SchedulerLoopTest, WatchersAndRanksAreAnsweredWhenTheirJobEnds) {
  LocalScheduler::Options options = LocalScheduler::Small();
  options.core.worker_num = 2;
  LocalScheduler scheduler(std::move(options));
  PollRequest pserver, workers[2];
  RegisterRequest self = Worker(1);
  for (const uint32_t rank : {0, 1}) {
    self.set_rank(rank);
    workers[rank] = scheduler.Join(self);
    scheduler.Report(workers[rank]);
  }
  self.set_role(ROLE_PSERVER);
  self.set_rank(0);
  self.set_address("a:1");
  pserver = scheduler.Join(self);
  const std::string job = scheduler.Submit(SmallJob("waits", 2))->job_id();
  const JobSpec spec = scheduler.Report(pserver).host(0);
  HostedJob* hosted = pserver.add_hosted();
  hosted->set_job_id(spec.job_id());
  hosted->set_instance(spec.instance());
  hosted->set_generation(spec.route().generation());
  scheduler.Report(pserver);

  // Rank 0 ends the first phase and waits for rank 1.
  PollReply told = scheduler.Report(workers[0]);
  // The job runs once its output folder is ready.
  for (; !told.has_assignment(); told = scheduler.Report(workers[0])) std::this_thread::yield();
  const WorkerAssignment assignment = told.assignment();
  NextPhaseRequest phase;
  phase.set_job_id(job);
  phase.set_rank(assignment.rank());
  phase.set_incarnation(assignment.incarnation());
  phase.set_pass(assignment.pass());
  phase.mutable_report()->set_number(1);
  phase.set_wait_ms(30000);
  std::promise<absl::StatusOr<NextPhaseReply>> next_phase;
  scheduler.intake().NextPhase(&phase, Into(&next_phase));
  phase.Clear();  // a call that waits needs its request no more
  WatchJobRequest watch;
  watch.set_job_id(job);
  std::promise<absl::StatusOr<WatchJobReply>> looked, watched;
  scheduler.intake().WatchJob(&watch, Into(&looked));
  const uint64_t version = looked.get_future().get()->status().version();
  watch.set_seen_version(version);
  watch.set_wait_ms(30000);
  scheduler.intake().WatchJob(&watch, Into(&watched));
  watch.Clear();

  auto next = next_phase.get_future();
  auto seen = watched.get_future();
  EXPECT_EQ(next.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_EQ(seen.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  ASSERT_TRUE(scheduler.Cancel(job).ok());
  ASSERT_EQ(next.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_EQ(next.get()->phase().kind(), Phase::FINISH);
  ASSERT_EQ(seen.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_GT(seen.get()->status().version(), version);
}

TEST(SchedulerLoopTest, WaitEndsAtItsDeadline) {
  LocalScheduler scheduler;
  PollRequest request = scheduler.Join(Worker(1));
  request.set_seen_version(1);
  request.set_wait_ms(1);
  std::promise<PollAnswer> answer;
  scheduler.intake().Poll(&request, Into(&answer));
  EXPECT_EQ(answer.get_future().get()->version(), 1u);
}

TEST(SchedulerLoopTest, StopWaitingAnswersEverybody) {
  LocalScheduler scheduler;
  PollRequest request = scheduler.Join(Worker(1));
  request.set_seen_version(1);
  request.set_wait_ms(30000);
  std::promise<PollAnswer> waiting, later;
  scheduler.intake().Poll(&request, Into(&waiting));
  scheduler.loop().StopWaiting();
  EXPECT_TRUE(waiting.get_future().get().ok());
  scheduler.intake().Poll(&request, Into(&later));
  EXPECT_TRUE(later.get_future().get().ok());
}

TEST(SchedulerLoopTest, EmptyClusterEndsAfterShutdown) {
  std::promise<void> ended;
  LocalScheduler::Options options = LocalScheduler::Small();
  options.on_end = [&ended] { ended.set_value(); };
  LocalScheduler scheduler(std::move(options));
  EXPECT_TRUE(scheduler.Shutdown().ok());
  scheduler.loop().WaitEnd();
  ended.get_future().get();
}

TEST(SchedulerLoopTest, AnEventWithoutMemoryIsCutShortAndTheNextOneRuns) {
  LoggedLines log;
  LocalScheduler::Options options = LocalScheduler::Small();
  options.log = [&log](const std::string& line) { log.Add(line); };
  LocalScheduler scheduler(std::move(options));
  absl::Status answer = SchedulerLoop::NoMemory();
  scheduler.loop().Run([&](SchedulerCore&, absl::Time) {
    throw std::bad_alloc();
    answer = absl::OkStatus();
  });
  EXPECT_TRUE(absl::IsResourceExhausted(answer));
  EXPECT_EQ(log.Get().size(), 1u);
  const auto wait = [](SchedulerCore&, absl::Time, uint32_t* wait_ms) {
    *wait_ms = 30000;
    throw std::bad_alloc();
  };
  EXPECT_FALSE(scheduler.loop().RunOrWait(wait, {})) << "it would wait for news of nothing";
  scheduler.loop().Run([&](SchedulerCore&, absl::Time) { answer = absl::OkStatus(); });
  EXPECT_TRUE(answer.ok());
}

TEST(SchedulerLoopTest, TheLogNamesTheCallerWhoseCallIsAnsweredEarly) {
  std::vector<std::string> answered;
  LoggedLines log;
  LocalScheduler::Options options = LocalScheduler::Small();
  options.log = [&log](const std::string& line) { log.Add(line); };
  LocalScheduler scheduler(std::move(options));  // answers the rest when it ends
  const auto wait = [&](const std::string& caller) {
    WaitingCalls::Call call;
    call.caller = caller;
    call.key = WaitKey::Status("none");
    call.ready = [](SchedulerCore&) { return false; };
    call.finish = [&answered, caller](SchedulerCore&, absl::Time) -> WaitingCalls::Answer {
      return [&answered, caller] { answered.push_back(caller); };
    };
    const auto event = [](SchedulerCore&, absl::Time, uint32_t* wait_ms) { *wait_ms = 30000; };
    EXPECT_TRUE(scheduler.loop().RunOrWait(event, std::move(call)));
  };
  const CallRoom room;
  for (size_t i = 0; i + 1 < room.waiting_per_caller; ++i) wait("the busiest");
  for (size_t i = room.waiting_per_caller - 1; i < room.waiting; ++i)
    wait("other " + std::to_string(i % 20));
  ASSERT_TRUE(answered.empty());
  wait("the newcomer");
  EXPECT_EQ(answered, std::vector<std::string>{"the busiest"});
  // The timer may have logged other lines.
  EXPECT_THAT(log.Get(), testing::Contains(testing::HasSubstr("the busiest")));
  EXPECT_THAT(log.Get(), testing::Not(testing::Contains(testing::HasSubstr("the newcomer"))));
}

TEST_F(KeptLoopTest, TheStoreSaysWhoseItIs) {
  LocalScheduler::Options options = NextLife();
  options.core.cluster = "mine";
  { LocalScheduler scheduler(std::move(options)); }
  EXPECT_EQ(Stored().next.cluster(), "mine");
}

TEST_F(KeptLoopTest, ANewerSchedulerEndsThisOne) {
  LocalScheduler::Options options = NextLife();
  std::promise<void> superseded;
  options.on_superseded = [&](const absl::Status&) { superseded.set_value(); };
  LocalScheduler scheduler(std::move(options));
  ASSERT_TRUE(scheduler.intake().Register(Worker(1)).ok());
  FakeMetaStore newer(contents_);
  ASSERT_TRUE(newer.AcquireTerm().ok());
  EXPECT_TRUE(absl::IsUnavailable(scheduler.Submit(SmallJob("a", 1)).status()));
  superseded.get_future().wait();
  EXPECT_TRUE(StoredIds().empty());
}

}  // namespace
}  // namespace sluice
