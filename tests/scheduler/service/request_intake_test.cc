#include "scheduler/service/request_intake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/printable.h"
#include "scheduler/core/request_text.h"
#include "tests/scheduler/logged_lines.h"
#include "tests/scheduler/loop_fixture.h"

namespace sluice {
namespace {

class KeptIntakeTest : public KeptState {};

TEST(RequestIntakeTest, ARefusedNewcomerIsLoggedOnce) {
  LoggedLines log;
  LocalScheduler::Options options = LocalScheduler::Small();
  options.log = [&log](const std::string& line) { log.Add(line); };
  LocalScheduler scheduler(std::move(options));
  ASSERT_TRUE(scheduler.intake().Register(Worker(1)).ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(scheduler.intake().Register(Worker(2))->member_id(), 0u);
  const std::vector<std::string> lines = log.Get();
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const auto& line) { return line.find("pid 2") != line.npos; }),
            1);
}

TEST(RequestIntakeTest, ALongNameOfAJobIsRefusedAndNotRepeated) {
  LocalScheduler scheduler;
  GetRouteRequest request;
  request.set_job_id(std::string(1 << 20, 'j'));
  const absl::Status refused = scheduler.intake().GetRoute(request).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_LT(refused.message().size(), 1000u);
  request.set_job_id("none");
  EXPECT_TRUE(absl::IsNotFound(scheduler.intake().GetRoute(request).status()));
}

TEST(RequestIntakeTest, TextOfMembersIsMadePrintableInLogAndStatus) {
  LoggedLines log;
  LocalScheduler::Options options = LocalScheduler::Small();
  options.log = [&log](const std::string& line) { log.Add(line); };
  LocalScheduler scheduler(std::move(options));
  const std::string evil = "\x1B[31mh\nI1125 forged\xC2\x9B\xE2\x80\xAE";
  RegisterRequest self = Worker(1);
  self.set_host(evil);
  self.set_device(evil);
  PollRequest report = scheduler.Join(self);
  report.mutable_progress()->set_doing(evil);
  scheduler.Report(report);
  FailJobRequest fail;
  fail.set_member_id(report.member_id());
  fail.set_secret(report.secret());
  fail.set_job_id(evil);
  fail.set_message(evil);
  EXPECT_TRUE(absl::IsNotFound(scheduler.FailJob(fail)));
  const MemberStatus member = scheduler.loop().GetStatus().members(0);
  for (const std::string& shown : {member.host(), member.device(), member.doing()})
    EXPECT_EQ(shown, PrintableLine(evil));
  LeaveRequest leave;
  leave.set_member_id(report.member_id());
  leave.set_secret(report.secret());
  leave.set_reason(evil);
  EXPECT_TRUE(scheduler.intake().Leave(leave).ok());
  EXPECT_GE(log.Get().size(), 2u);
  for (const std::string& line : log.Get()) EXPECT_TRUE(IsPrintableLine(line)) << line;
}

TEST(RequestIntakeTest, AJobThatAReportOfAPhaseEndsHasAPrintableBoundedMessage) {
  LoggedLines log;
  LocalScheduler::Options options = LocalScheduler::Small();
  options.core.worker_num = 2;
  options.job_log = [&log](const std::string&, const std::string& line) { log.Add(line); };
  {
    LocalScheduler scheduler(std::move(options));
    TwoMembers members(&scheduler);
    RegisterRequest second = Worker(3);
    second.set_rank(1);
    const PollRequest of_second = scheduler.Join(second);
    scheduler.Report(of_second);
    const auto job = scheduler.Submit(SmallJob("evil", 2));
    ASSERT_TRUE(job.ok()) << job.status();
    ASSERT_NO_FATAL_FAILURE(members.OpenTables(job->job_id()));
    ASSERT_TRUE(scheduler.AwaitState(JOB_RUNNING));
    const auto answer_of = [&](const PollRequest& member, size_t path_bytes) {
      const WorkerAssignment assignment = scheduler.Report(member).assignment();
      NextPhaseRequest next;
      next.set_job_id(job->job_id());
      next.set_rank(assignment.rank());
      next.set_incarnation(assignment.incarnation());
      next.set_pass(assignment.pass());
      next.mutable_report()->set_number(1);
      IndexReport* const index = next.mutable_report()->mutable_index();
      index->set_host("h\nI1125 forged");
      index->add_train_seen()->set_path(
          absl::StrCat("/f\nI1125 forged", assignment.rank(), std::string(path_bytes, 'x')));
      std::promise<absl::StatusOr<NextPhaseReply>> answer;
      scheduler.intake().NextPhase(&next, Into(&answer));
      return answer.get_future().get();
    };
    EXPECT_TRUE(absl::IsInvalidArgument(answer_of(of_second, kMaxSentenceBytes).status()));
    answer_of(members.of_worker, 0).IgnoreError();
    answer_of(of_second, 0).IgnoreError();
    ASSERT_TRUE(scheduler.AwaitState(JOB_FAILED));
    const std::string message = scheduler.loop().GetStatus().jobs(0).message();
    EXPECT_NE(message.find("forged"), std::string::npos) << message;
    EXPECT_TRUE(IsPrintableLine(message)) << message;
  }
  EXPECT_FALSE(log.Get().empty());
  for (const std::string& line : log.Get()) EXPECT_TRUE(IsPrintableLine(line)) << line;
}

TEST(RequestIntakeTest, CallersThatAreRefusedWriteFewAndShortLines) {
  LoggedLines log;
  LocalScheduler::Options options = LocalScheduler::Small();
  options.log = [&log](const std::string& line) { log.Add(line); };
  LocalScheduler scheduler(std::move(options));
  const size_t before = log.Get().size();
  for (uint32_t i = 0; i < LimitedLog::kBurstOfCallers; ++i) {
    FailJobRequest fail;
    fail.set_job_id(absl::StrCat("job-", i));
    fail.set_message(std::string(100000, 'M'));
    EXPECT_FALSE(scheduler.FailJob(fail).ok());
    RegisterRequest impossible = Worker(1 + i);
    impossible.set_role(ROLE_PSERVER);
    impossible.set_rank(10 + i);
    EXPECT_FALSE(scheduler.intake().Register(impossible).ok());
    MemberEndedRequest ended;
    ended.set_role(ROLE_WORKER);
    ended.set_rank(7 + i);
    ended.set_reason(std::string(100000, 'R'));
    EXPECT_FALSE(scheduler.intake().MemberEnded(ended).ok());
  }
  const std::vector<std::string> lines = log.Get();
  size_t bytes = 0;
  for (size_t i = before; i < lines.size(); ++i) bytes += lines[i].size();
  EXPECT_LT(lines.size() - before, 1.1 * LimitedLog::kBurstOfCallers);
  EXPECT_LT(bytes, 1.1 * LimitedLog::kBurstOfCallers * (LimitedLog::kMaxLineBytes + 3));
}

TEST(RequestIntakeTest, ANewcomerGetsThePlaceOfAProcessThatTheSchedulerSeesEnded) {
  LocalScheduler::Options options = LocalScheduler::Small();
  options.core.lease = options.core.heartbeat = absl::Hours(1);
  options.process_space = "space";
  bool ended = false;
  options.process_has_ended = [&ended](uint32_t) { return ended; };
  LocalScheduler scheduler(std::move(options));
  ASSERT_TRUE(scheduler.intake().Register(Worker(1)).ok());
  EXPECT_EQ(scheduler.intake().Register(Worker(2), /*believed=*/false)->member_id(), 0u);
  ended = true;
  EXPECT_NE(scheduler.intake().Register(Worker(2), /*believed=*/false)->member_id(), 0u);
}

TEST_F(KeptIntakeTest, ADrainIsKeptWhenItIsAnswered) {
  LocalScheduler::Options options = NextLife();
  options.core.pserver_num = 2;
  LocalScheduler scheduler(std::move(options));
  for (const uint32_t rank : {0, 1}) {
    RegisterRequest pserver = Worker(2 + rank);
    pserver.set_role(ROLE_PSERVER);
    pserver.set_rank(rank);
    pserver.set_address(absl::StrCat("ps", rank));
    ASSERT_TRUE(scheduler.intake().Register(pserver).ok());
  }
  ScaleJobRequest scale;
  scale.set_job_id("no-job");
  EXPECT_TRUE(absl::IsNotFound(scheduler.Scale(scale)));
  const auto kept = [this] { return Stored().draining.pservers_size(); };
  DrainPserverRequest drain;
  drain.set_rank(1);
  ASSERT_TRUE(scheduler.Drain(drain).ok());
  EXPECT_EQ(kept(), 1);
  drain.set_rank(0);
  EXPECT_TRUE(absl::IsFailedPrecondition(scheduler.Drain(drain).status()));
  drain.set_rank(1);
  drain.set_cancel(true);
  ASSERT_TRUE(scheduler.Drain(drain).ok());
  EXPECT_EQ(kept(), 0);
}

TEST_F(KeptIntakeTest, AnAnswerToAWorkerWaitsForItsRecord) {
  LocalScheduler scheduler(NextLife());
  TwoMembers members(&scheduler);
  SubmitJobRequest submit = SmallJob("async", 1);
  submit.mutable_config()->mutable_strategy()->set_a_sync(true);
  const auto job = scheduler.Submit(submit);
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_NO_FATAL_FAILURE(members.OpenTables(job->job_id()));
  ASSERT_TRUE(scheduler.AwaitState(JOB_RUNNING));
  NextPhaseRequest next;
  next.set_job_id(job->job_id());
  const WorkerAssignment assignment = scheduler.Report(members.of_worker).assignment();
  next.set_incarnation(assignment.incarnation());
  next.set_pass(assignment.pass());
  next.mutable_report()->set_number(1);
  DataFile* const file = next.mutable_report()->mutable_index()->add_files();
  file->set_path("t");
  file->set_bytes(1000);
  NextTaskRequest ask;
  ask.set_job_id(job->job_id());
  ask.set_incarnation(next.incarnation());
  ask.set_pass(next.pass());
  ask.set_number(1);

  const auto waits = [&](auto* promise, const auto& call) {
    store_->HoldCommitsForTest(true);
    call();
    auto answer = promise->get_future();
    EXPECT_EQ(answer.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
    store_->HoldCommitsForTest(false);
    const auto reply = answer.get();
    EXPECT_TRUE(reply.ok()) << reply.status();
  };
  std::promise<absl::StatusOr<NextPhaseReply>> phase;
  waits(&phase, [&] { scheduler.intake().NextPhase(&next, Into(&phase)); });
  std::promise<absl::StatusOr<NextTaskReply>> task;
  waits(&task, [&] { scheduler.intake().NextTask(ask, Into(&task)); });
}

TEST_F(KeptIntakeTest, CallsThatWaitForTheStoreReturnAtOnce) {
  LocalScheduler::Options options = NextLife();
  options.core.lease = absl::Hours(1);  // also when calls do wait
  LocalScheduler scheduler(options);
  RequestIntake& intake = scheduler.intake();
  const PollRequest report = scheduler.Join(Worker(1));
  const auto job = scheduler.Submit(SmallJob("a"));
  ASSERT_TRUE(job.ok()) << job.status();
  CancelJobRequest cancel;
  cancel.set_job_id(job->job_id());
  ScaleJobRequest scale;
  scale.set_job_id("no-job");
  FailJobRequest fail;
  fail.set_job_id("no-job");
  DrainPserverRequest drain;
  drain.set_rank(9);
  Mutex mutex;
  std::vector<absl::StatusCode> answers;
  const auto answered = [&](const absl::Status& status) {
    MutexLock lock(&mutex);
    answers.push_back(status.code());
  };
  const auto count = [&] {
    MutexLock lock(&mutex);
    return answers.size();
  };

  store_->HoldCommitsForTest(true);
  std::future<void> calls = std::async(std::launch::async, [&] {
    intake.ScaleJob(scale, answered);
    intake.FailJob(fail, answered);
    intake.CancelJob(cancel, answered);
    intake.DrainPserver(drain, [&](const auto& reply) { answered(reply.status()); });
    intake.Shutdown(answered);
  });
  EXPECT_EQ(calls.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  scheduler.Report(report);
  EXPECT_EQ(scheduler.loop().GetStatus().members_size(), 1);
  EXPECT_EQ(count(), 0u);
  EXPECT_FALSE(scheduler.loop().ShuttingDown()) << "its term must be confirmed first";
  store_->HoldCommitsForTest(false);
  calls.get();
  while (count() < 5) std::this_thread::yield();
  EXPECT_EQ(answers,
            (std::vector<absl::StatusCode>{absl::StatusCode::kNotFound, absl::StatusCode::kNotFound,
                                           absl::StatusCode::kOk, absl::StatusCode::kNotFound,
                                           absl::StatusCode::kOk}));
  EXPECT_TRUE(scheduler.loop().ShuttingDown());
}

TEST_F(KeptIntakeTest, AnOrderTriesAStoreThatWasOutOfReachBeforeItIsAnswered) {
  LocalScheduler scheduler(NextLife());
  const auto job = scheduler.Submit(SmallJob("a"));
  ASSERT_TRUE(job.ok()) << job.status();
  store_->SetErrorForTest(absl::UnavailableError("etcd did not answer"));
  EXPECT_TRUE(scheduler.Cancel(job->job_id()).ok()) << "the store does not undo a decision";
  FakeMetaStore newer(contents_);
  ASSERT_TRUE(newer.AcquireTerm().ok());
  store_->SetErrorForTest(absl::OkStatus());
  EXPECT_TRUE(absl::IsUnavailable(scheduler.Cancel(job->job_id())));
}

TEST_F(KeptIntakeTest, ASupersededSchedulerAcknowledgesNothing) {
  LocalScheduler scheduler(NextLife());
  ASSERT_TRUE(scheduler.intake().Register(Worker(1)).ok());
  const auto job = scheduler.Submit(SmallJob("a", 1));
  ASSERT_TRUE(job.ok()) << job.status();
  FakeMetaStore newer(contents_);
  ASSERT_TRUE(newer.AcquireTerm().ok());
  EXPECT_TRUE(absl::IsUnavailable(scheduler.Cancel(job->job_id())));
  FailJobRequest fail;
  fail.set_job_id(job->job_id());
  EXPECT_TRUE(absl::IsUnavailable(scheduler.FailJob(fail)));
  EndJobRequest end;
  end.set_job_id(job->job_id());
  EXPECT_TRUE(absl::IsUnavailable(scheduler.EndJob(end)));
  CheckpointJobRequest checkpoint;
  checkpoint.set_job_id(job->job_id());
  EXPECT_TRUE(absl::IsUnavailable(scheduler.Checkpoint(checkpoint).status()));
  EXPECT_TRUE(absl::IsUnavailable(scheduler.Shutdown()));
  EXPECT_FALSE(scheduler.loop().ShuttingDown());
  EXPECT_EQ(StoredIds(), std::vector<std::string>{job->job_id()});
}

}  // namespace
}  // namespace sluice
