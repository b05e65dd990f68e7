#include "scheduler/scheduler_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/printable.h"
#include "model/data/expand_files.h"
#include "scheduler/request_text.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/meta_store/fake_meta_store.h"

namespace sluice {
namespace {

SchedulerLoop::Options Options() {
  SchedulerLoop::Options options;
  options.core.pserver_num = 1;
  options.core.pass_key = std::string(32, 'k');
  options.core.worker_num = 1;
  options.core.place = [](const std::vector<std::string>&, JobSpec* spec) {
    spec->mutable_route()->add_tables()->add_owner(0);
    return absl::OkStatus();
  };
  options.clock = Clock::Real();
  options.env = Env::Real();
  options.host = "h";
  options.default_output = testing::TempDir() + "scheduler_loop_test";
  std::filesystem::remove_all(options.default_output);
  options.log = [](const std::string&) {};
  options.job_log = [](const std::string&, const std::string&) {};
  return options;
}

RegisterRequest Worker(uint32_t pid) {
  RegisterRequest request;
  request.set_protocol(1);
  request.set_role(ROLE_WORKER);
  request.set_pid(pid);
  request.set_life(1000 + pid);
  request.set_process_space("space");
  return request;
}

// Registers, and returns a report of the new member.
PollRequest Joined(SchedulerLoop* loop, const RegisterRequest& self) {
  const absl::StatusOr<RegisterReply> reply = loop->Register(self);
  EXPECT_TRUE(reply.ok()) << reply.status();
  PollRequest request;
  request.set_member_id(reply->member_id());
  request.set_secret(reply->secret());
  return request;
}

using PollAnswer = absl::StatusOr<PollReply>;

template <class Reply>
Done<Reply> Into(std::promise<absl::StatusOr<Reply>>* promise) {
  return [promise](absl::StatusOr<Reply> answer) { promise->set_value(std::move(answer)); };
}

SubmitJobRequest SmallJob(const std::string& name, uint32_t workers) {
  SubmitJobRequest request;
  JobConfig* job = request.mutable_config();
  job->set_name(name);
  job->set_worker_num(workers);
  job->mutable_data()->set_format(DataConfig::LIBSVM);
  job->mutable_data()->add_train_files("t");
  Feature* feature = job->add_features();
  feature->set_name("f");
  feature->mutable_numeric();
  job->mutable_model()->mutable_wide_deep();
  return request;
}

PollReply Report(SchedulerLoop* loop, const PollRequest& request) {
  std::promise<PollAnswer> answer;
  loop->Poll(&request, Into(&answer));
  return *answer.get_future().get();
}

// A pserver and a worker, which have registered with `loop`, and their reports.
struct TwoMembers {
  explicit TwoMembers(SchedulerLoop* loop_) : loop(loop_) {
    RegisterRequest pserver = Worker(2);
    pserver.set_role(ROLE_PSERVER);
    pserver.set_address("ps");
    of_pserver = Joined(loop, pserver);
    of_worker = Joined(loop, Worker(1));
    Report(loop, of_worker);
  }
  // The pserver reports the tables of its only job as open.
  void OpenTables(const std::string& job_id) {
    const PollReply told = Report(loop, of_pserver);
    ASSERT_EQ(told.host_size(), 1);
    HostedJob* hosted = of_pserver.add_hosted();
    hosted->set_job_id(job_id);
    hosted->set_instance(told.host(0).instance());
    hosted->set_generation(told.host(0).route().generation());
    Report(loop, of_pserver);
  }

  SchedulerLoop* const loop;
  PollRequest of_pserver, of_worker;
};

TEST(SchedulerLoopTest, PollWaitsUntilTheDesiredStateChanges) {
  SchedulerLoop loop(Options());
  PollRequest request = Joined(&loop, Worker(1));
  std::promise<PollAnswer> first;
  loop.Poll(&request, Into(&first));
  request.set_seen_version(first.get_future().get()->version());
  request.set_wait_ms(30000);
  std::promise<PollAnswer> second;
  loop.Poll(&request, Into(&second));
  std::future<PollAnswer> answer = second.get_future();
  EXPECT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_TRUE(loop.Shutdown().ok());
  EXPECT_TRUE(answer.get()->stop());
}

using CheckpointAnswer = absl::StatusOr<CheckpointJobReply>;

CheckpointAnswer AskForCheckpoint(SchedulerLoop* loop, const CheckpointJobRequest& request) {
  std::promise<CheckpointAnswer> answer;
  loop->CheckpointJob(&request, Into(&answer));
  return answer.get_future().get();
}

TEST(SchedulerLoopTest, ACallForACheckpointWaitsForItsEnd) {
  SchedulerLoop loop(Options());
  TwoMembers members(&loop);
  SubmitJobRequest submit = SmallJob("sync", 1);
  submit.mutable_config()->mutable_strategy()->set_a_sync(false);
  const auto job = loop.SubmitJob(submit);
  ASSERT_TRUE(job.ok()) << job.status();
  CheckpointJobRequest request;
  request.set_job_id("no-job");
  EXPECT_TRUE(absl::IsNotFound(AskForCheckpoint(&loop, request).status()));
  request.set_job_id(job->job_id());
  EXPECT_TRUE(absl::IsFailedPrecondition(AskForCheckpoint(&loop, request).status()));

  ASSERT_NO_FATAL_FAILURE(members.OpenTables(job->job_id()));
  // The output folder is made ready on another thread.
  while (!Report(&loop, members.of_worker).has_assignment()) std::this_thread::yield();
  const auto asked = AskForCheckpoint(&loop, request);  // does not wait
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_FALSE(asked->done());
  EXPECT_EQ(Report(&loop, members.of_worker).assignment().checkpoint().number(), asked->number());

  request.set_number(asked->number());
  request.set_wait_ms(30000);
  std::promise<CheckpointAnswer> waiting;
  loop.CheckpointJob(&request, Into(&waiting));
  std::future<CheckpointAnswer> end = waiting.get_future();
  EXPECT_EQ(end.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  HostedCut* const cut = members.of_pserver.mutable_hosted(0)->mutable_cut();
  cut->set_checkpoint(asked->number());
  cut->set_state(HostedCut::FAILED);
  cut->set_error("disk full");
  Report(&loop, members.of_pserver);
  const CheckpointAnswer failed = end.get();
  ASSERT_TRUE(failed.ok()) << failed.status();
  EXPECT_TRUE(failed->done());
  EXPECT_NE(failed->error().find("disk full"), std::string::npos) << failed->error();
}

TEST(SchedulerLoopTest, ResumingWithoutACheckpointStartsFromTheBeginningAndWarns) {
  SchedulerLoop loop(Options());
  ASSERT_TRUE(loop.Register(Worker(1)).ok());
  SubmitJobRequest submit = SmallJob("sync", 1);
  submit.set_resume(true);
  submit.mutable_config()->mutable_strategy()->set_a_sync(false);
  EXPECT_TRUE(absl::IsInvalidArgument(loop.SubmitJob(submit).status()));  // no output_dir
  submit.mutable_config()->set_output_dir(testing::TempDir() + "scheduler_loop_test_resume");
  const auto job = loop.SubmitJob(submit);
  ASSERT_TRUE(job.ok()) << job.status();
  const ClusterStatus status = loop.GetStatus();
  ASSERT_EQ(status.jobs_size(), 1);
  ASSERT_EQ(status.jobs(0).warnings_size(), 1);
  EXPECT_NE(status.jobs(0).warnings(0).find("there is no checkpoint"), std::string::npos);
}

TEST(SchedulerLoopTest, FencedPollIsAnsweredAtOnce) {
  SchedulerLoop loop(Options());
  PollRequest request = Joined(&loop, Worker(1));
  std::promise<PollAnswer> first;
  loop.Poll(&request, Into(&first));
  request.set_seen_version(first.get_future().get()->version());
  request.set_wait_ms(30000);
  std::promise<PollAnswer> second;
  loop.Poll(&request, Into(&second));
  RegisterRequest newcomer = Worker(2);
  newcomer.set_ended_pid(1);
  ASSERT_TRUE(loop.Register(newcomer).ok());
  EXPECT_TRUE(absl::IsAborted(second.get_future().get().status()));
}

TEST(SchedulerLoopTest, ARefusedNewcomerIsLoggedOnce) {
  std::vector<std::string> log;
  SchedulerLoop::Options options = Options();
  options.log = [&log](const std::string& line) { log.push_back(line); };
  SchedulerLoop loop(std::move(options));
  ASSERT_TRUE(loop.Register(Worker(1)).ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(loop.Register(Worker(2))->member_id(), 0u);
  EXPECT_EQ(std::count_if(log.begin(), log.end(),
                          [](const auto& line) { return line.find("pid 2") != line.npos; }),
            1);
}

TEST(SchedulerLoopTest, TextOfMembersIsMadePrintableInLogAndStatus) {
  std::vector<std::string> log;
  SchedulerLoop::Options options = Options();
  options.log = [&log](const std::string& line) { log.push_back(line); };
  SchedulerLoop loop(std::move(options));
  const std::string evil = "\x1B[31mh\nI1125 forged\xC2\x9B\xE2\x80\xAE";
  RegisterRequest self = Worker(1);
  self.set_host(evil);
  self.set_device(evil);
  PollRequest report = Joined(&loop, self);
  report.mutable_progress()->set_doing(evil);
  Report(&loop, report);
  FailJobRequest fail;
  fail.set_member_id(report.member_id());
  fail.set_secret(report.secret());
  fail.set_job_id(evil);
  fail.set_message(evil);
  EXPECT_TRUE(absl::IsNotFound(loop.FailJob(fail)));
  const MemberStatus member = loop.GetStatus().members(0);
  for (const std::string& shown : {member.host(), member.device(), member.doing()})
    EXPECT_EQ(shown, PrintableLine(evil));
  LeaveRequest leave;
  leave.set_member_id(report.member_id());
  leave.set_secret(report.secret());
  leave.set_reason(evil);
  EXPECT_TRUE(loop.Leave(leave).ok());
  EXPECT_GE(log.size(), 2u);
  for (const std::string& line : log) EXPECT_TRUE(IsPrintableLine(line)) << line;
}

bool AwaitState(SchedulerLoop* loop, JobState state) {
  for (int i = 0; i < 1000; ++i) {
    const ClusterStatus status = loop->GetStatus();
    if (status.jobs_size() > 0 && status.jobs(0).state() == state) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// Whatever ends a job, its message is what all members' reports led to.
TEST(SchedulerLoopTest, AJobThatAReportOfAPhaseEndsHasAPrintableBoundedMessage) {
  std::vector<std::string> log;
  SchedulerLoop::Options options = Options();
  options.core.worker_num = 2;
  options.job_log = [&log](const std::string&, const std::string& line) { log.push_back(line); };
  {
    SchedulerLoop loop(std::move(options));
    TwoMembers members(&loop);
    RegisterRequest second = Worker(3);
    second.set_rank(1);
    const PollRequest of_second = Joined(&loop, second);
    Report(&loop, of_second);
    const auto job = loop.SubmitJob(SmallJob("evil", 2));
    ASSERT_TRUE(job.ok()) << job.status();
    ASSERT_NO_FATAL_FAILURE(members.OpenTables(job->job_id()));
    ASSERT_TRUE(AwaitState(&loop, JOB_RUNNING));
    const auto answer_of = [&](const PollRequest& member, size_t path_bytes) {
      const WorkerAssignment assignment = Report(&loop, member).assignment();
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
      loop.NextPhase(&next, Into(&answer));
      return answer.get_future().get();
    };
    EXPECT_TRUE(absl::IsInvalidArgument(answer_of(of_second, kMaxSentenceBytes).status()));
    answer_of(members.of_worker, 0).IgnoreError();
    answer_of(of_second, 0).IgnoreError();
    ASSERT_TRUE(AwaitState(&loop, JOB_FAILED));
    const std::string message = loop.GetStatus().jobs(0).message();
    EXPECT_NE(message.find("forged"), std::string::npos) << message;
    EXPECT_TRUE(IsPrintableLine(message)) << message;
  }
  EXPECT_FALSE(log.empty());
  for (const std::string& line : log) EXPECT_TRUE(IsPrintableLine(line)) << line;
}

TEST(SchedulerLoopTest, CallersThatAreRefusedWriteFewAndShortLines) {
  std::vector<std::string> log;
  SchedulerLoop::Options options = Options();
  options.log = [&log](const std::string& line) { log.push_back(line); };
  SchedulerLoop loop(std::move(options));
  const size_t before = log.size();
  for (uint32_t i = 0; i < CallerLog::kBurst; ++i) {
    FailJobRequest fail;
    fail.set_job_id(absl::StrCat("job-", i));
    fail.set_message(std::string(100000, 'M'));
    EXPECT_FALSE(loop.FailJob(fail).ok());
    RegisterRequest impossible = Worker(1 + i);
    impossible.set_role(ROLE_PSERVER);
    impossible.set_rank(10 + i);
    EXPECT_FALSE(loop.Register(impossible).ok());
    MemberEndedRequest ended;
    ended.set_role(ROLE_WORKER);
    ended.set_rank(7 + i);
    ended.set_reason(std::string(100000, 'R'));
    EXPECT_FALSE(loop.MemberEnded(ended).ok());
  }
  size_t bytes = 0;
  for (size_t i = before; i < log.size(); ++i) bytes += log[i].size();
  EXPECT_LT(log.size() - before, 1.1 * CallerLog::kBurst);
  EXPECT_LT(bytes, 1.1 * CallerLog::kBurst * (CallerLog::kMaxLineBytes + 3));
}

TEST(SchedulerLoopTest, ANewcomerGetsThePlaceOfAProcessThatTheSchedulerSeesEnded) {
  SchedulerLoop::Options options = Options();
  options.core.lease = options.core.heartbeat = absl::Hours(1);
  options.process_space = "space";
  bool ended = false;
  options.process_has_ended = [&ended](uint32_t) { return ended; };
  SchedulerLoop loop(std::move(options));
  ASSERT_TRUE(loop.Register(Worker(1)).ok());
  EXPECT_EQ(loop.Register(Worker(2), /*believed=*/false)->member_id(), 0u);
  ended = true;
  EXPECT_NE(loop.Register(Worker(2), /*believed=*/false)->member_id(), 0u);
}

TEST(SchedulerLoopTest, AMemberWhoseProcessHasEndedIsLostBeforeItsLease) {
  SchedulerLoop::Options options = Options();
  options.core.heartbeat = absl::Milliseconds(10);
  options.core.lease = absl::Hours(1);
  options.process_space = "space";
  options.process_has_ended = [](uint32_t pid) { return pid == 1; };
  SchedulerLoop loop(std::move(options));
  PollRequest request = Joined(&loop, Worker(1));
  request.set_seen_version(1);
  request.set_wait_ms(30000);
  std::promise<PollAnswer> answer;
  loop.Poll(&request, Into(&answer));
  EXPECT_TRUE(absl::IsNotFound(answer.get_future().get().status()));
}

TEST(SchedulerLoopTest, SettingTheTimeOfDayLosesNobody) {
  FakeClock clock;
  SchedulerLoop::Options options = Options();
  options.clock = &clock;
  SchedulerLoop loop(std::move(options));
  PollRequest request = Joined(&loop, Worker(1));
  for (const absl::Duration step : {absl::Hours(1), -absl::Hours(2)}) {
    clock.StepWall(step);
    std::promise<PollAnswer> answer;
    loop.Poll(&request, Into(&answer));
    EXPECT_TRUE(answer.get_future().get().ok());
    ASSERT_EQ(loop.GetStatus().members_size(), 1);
    EXPECT_TRUE(loop.GetStatus().members(0).alive());
    EXPECT_EQ(loop.GetStatus().members(0).last_seen_s(), 0);
  }
}

TEST(SchedulerLoopTest, WatchersAndRanksAreAnsweredWhenTheirJobEnds) {
  SchedulerLoop::Options options = Options();
  options.core.worker_num = 2;
  SchedulerLoop loop(std::move(options));
  PollRequest pserver, workers[2];
  RegisterRequest self = Worker(1);
  for (const uint32_t rank : {0, 1}) {
    self.set_rank(rank);
    workers[rank] = Joined(&loop, self);
    Report(&loop, workers[rank]);
  }
  self.set_role(ROLE_PSERVER);
  self.set_rank(0);
  self.set_address("a:1");
  pserver = Joined(&loop, self);
  const std::string job = loop.SubmitJob(SmallJob("waits", 2))->job_id();
  const JobSpec spec = Report(&loop, pserver).host(0);
  HostedJob* hosted = pserver.add_hosted();
  hosted->set_job_id(spec.job_id());
  hosted->set_instance(spec.instance());
  hosted->set_generation(spec.route().generation());
  Report(&loop, pserver);

  // Rank 0 ends the first phase and waits for rank 1.
  PollReply told = Report(&loop, workers[0]);
  // The job runs once its output folder is ready.
  for (; !told.has_assignment(); told = Report(&loop, workers[0])) std::this_thread::yield();
  const WorkerAssignment assignment = told.assignment();
  NextPhaseRequest phase;
  phase.set_job_id(job);
  phase.set_rank(assignment.rank());
  phase.set_incarnation(assignment.incarnation());
  phase.set_pass(assignment.pass());
  phase.mutable_report()->set_number(1);
  phase.set_wait_ms(30000);
  std::promise<absl::StatusOr<NextPhaseReply>> next_phase;
  loop.NextPhase(&phase, Into(&next_phase));
  WatchJobRequest watch;
  watch.set_job_id(job);
  std::promise<absl::StatusOr<WatchJobReply>> looked, watched;
  loop.WatchJob(&watch, Into(&looked));
  watch.set_seen_version(looked.get_future().get()->status().version());
  watch.set_wait_ms(30000);
  loop.WatchJob(&watch, Into(&watched));

  auto next = next_phase.get_future();
  auto seen = watched.get_future();
  EXPECT_EQ(next.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_EQ(seen.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  CancelJobRequest cancel;
  cancel.set_job_id(job);
  ASSERT_TRUE(loop.CancelJob(cancel).ok());
  ASSERT_EQ(next.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_EQ(next.get()->phase().kind(), Phase::FINISH);
  ASSERT_EQ(seen.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_GT(seen.get()->status().version(), watch.seen_version());
}

TEST(SchedulerLoopTest, WaitEndsAtItsDeadline) {
  SchedulerLoop loop(Options());
  PollRequest request = Joined(&loop, Worker(1));
  request.set_seen_version(1);
  request.set_wait_ms(1);
  std::promise<PollAnswer> answer;
  loop.Poll(&request, Into(&answer));
  EXPECT_EQ(answer.get_future().get()->version(), 1u);
}

TEST(SchedulerLoopTest, StopWaitingAnswersEverybody) {
  SchedulerLoop loop(Options());
  PollRequest request = Joined(&loop, Worker(1));
  request.set_seen_version(1);
  request.set_wait_ms(30000);
  std::promise<PollAnswer> waiting, later;
  loop.Poll(&request, Into(&waiting));
  loop.StopWaiting();
  EXPECT_TRUE(waiting.get_future().get().ok());
  loop.Poll(&request, Into(&later));
  EXPECT_TRUE(later.get_future().get().ok());
}

TEST(SchedulerLoopTest, EmptyClusterEndsAfterShutdown) {
  std::promise<void> ended;
  SchedulerLoop::Options options = Options();
  options.on_end = [&ended] { ended.set_value(); };
  SchedulerLoop loop(std::move(options));
  EXPECT_TRUE(loop.Shutdown().ok());
  loop.WaitEnd();
  ended.get_future().get();
}

TEST(SchedulerLoopTest, SubmissionLogsThePathOfTheEffectiveConfiguration) {
  std::string log;
  SchedulerLoop::Options options = Options();
  options.log = [&log](const std::string& line) { log += line + "\n"; };
  SchedulerLoop loop(std::move(options));
  SubmitJobRequest request = SmallJob("logged", 1);
  ASSERT_TRUE(loop.SubmitJob(request).ok());
  request.mutable_config()->set_output_dir("/out");
  ASSERT_TRUE(loop.SubmitJob(request).ok());
  EXPECT_NE(log.find("/logged-1/job.textproto\n"), std::string::npos) << log;
  EXPECT_NE(log.find("job logged-2: effective configuration: /out/job.textproto\n"),
            std::string::npos)
      << log;
}

SubmitJobRequest Job(const std::string& name) {
  SubmitJobRequest request;
  JobConfig* job = request.mutable_config();
  job->set_name(name);
  job->mutable_data()->set_format(DataConfig::LIBSVM);
  job->mutable_data()->add_train_files("t");
  Feature* feature = job->add_features();
  feature->set_name("f");
  feature->mutable_numeric();
  job->mutable_model()->mutable_wide_deep();
  return request;
}

TEST(SchedulerLoopTest, AJobWithTooManyShardsIsRefused) {
  SchedulerLoop loop(Options());
  SubmitJobRequest request = Job("huge");
  // 65536 x 65536 weights in blocks of 1 MiB: 16384 shards for each layer but the first.
  const auto submit = [&](int layers) {
    auto* const units = request.mutable_config()->mutable_model()->mutable_wide_deep();
    units->clear_hidden_units();
    for (int i = 0; i < layers; ++i) units->add_hidden_units(65536);
    return loop.SubmitJob(request).status();
  };
  EXPECT_TRUE(submit(63).ok());
  const absl::Status refused = submit(66);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(testing::HasSubstr("1048576"), testing::HasSubstr("shards")));
  EXPECT_EQ(loop.GetStatus().jobs_size(), 1);
}

TEST(SchedulerLoopTest, AJobWhosePatternsMatchTooMuchIsRefused) {
  SchedulerLoop loop(Options());
  SubmitJobRequest request = Job("many");
  DataConfig* const data = request.mutable_config()->mutable_data();
  data->clear_train_files();
  for (size_t i = 0; i <= ExpandLimits().files; ++i) data->add_train_files("/dev/null");
  const absl::Status refused = loop.SubmitJob(request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(testing::HasSubstr("data.train_files"),
                             testing::HasSubstr("/dev/null"), testing::HasSubstr("100000")));
  EXPECT_EQ(loop.GetStatus().jobs_size(), 0);
}

TEST(SchedulerLoopTest, JobsOfConcurrentSchedulersGetDifferentFolders) {
  const SchedulerLoop::Options options = Options();
  SchedulerLoop one(options), other(options);
  const SubmitJobRequest request = Job("same");
  constexpr int kEach = 8;
  std::vector<std::string> ids(4 * kEach);
  std::vector<std::thread> users;
  for (int user = 0; user < 4; ++user) {
    users.emplace_back([&, user] {
      for (int i = 0; i < kEach; ++i) {
        const auto reply = (user % 2 == 0 ? one : other).SubmitJob(request);
        EXPECT_TRUE(reply.ok()) << reply.status();
        if (reply.ok()) ids[user * kEach + i] = reply->job_id();
      }
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), ids.size());
  for (const std::string& id : ids)
    EXPECT_TRUE(std::filesystem::is_directory(options.default_output + "/" + id)) << id;
}

TEST(SchedulerLoopTest, ARefusedJobLeavesNoFolder) {
  SchedulerLoop::Options options = Options();
  SchedulerLoop loop(options);
  SubmitJobRequest request = Job("wide");
  request.mutable_config()->set_worker_num(2);  // the cluster has one
  EXPECT_FALSE(loop.SubmitJob(request).ok());
  EXPECT_TRUE(std::filesystem::is_empty(options.default_output));
}

TEST(SchedulerLoopTest, BadConfigurationIsRefusedAtSubmission) {
  SchedulerLoop loop(Options());
  SubmitJobRequest request;
  request.mutable_config()->set_name("no/slashes");
  EXPECT_TRUE(absl::IsInvalidArgument(loop.SubmitJob(request).status()));
}

// ---------------------------------------------------------------------------------- state store

// Schedulers that live one after another on one store.
class KeptStateTest : public testing::Test {
 protected:
  SchedulerLoop::Options NextLife() {
    SchedulerLoop::Options options = Options();
    store_ = std::make_unique<FakeMetaStore>(contents_);
    options.store = store_.get();
    options.term = *store_->AcquireTerm();
    options.core.first_id = options.core.first_version = options.term << 40;
    options.stored = *ParseStoredJobs(*store_->Scan(""));
    options.core.next = options.stored.next;
    return options;
  }
  std::vector<std::string> StoredIds() {
    const auto stored = ParseStoredJobs(*FakeMetaStore(contents_).Scan(""));
    std::vector<std::string> ids;
    for (const JobRecord& job : stored->jobs) ids.push_back(job.job_id());
    return ids;
  }

  const std::shared_ptr<FakeMetaStore::Contents> contents_ =
      std::make_shared<FakeMetaStore::Contents>();
  std::unique_ptr<FakeMetaStore> store_;
};

TEST_F(KeptStateTest, AnAnsweredSubmissionIsKeptAndAnEndRemovesIt) {
  std::string job_id;
  {
    SchedulerLoop loop(NextLife());
    ASSERT_TRUE(loop.Register(Worker(1)).ok());
    const auto reply = loop.SubmitJob(SmallJob("a", 1));
    ASSERT_TRUE(reply.ok()) << reply.status();
    job_id = reply->job_id();
    EXPECT_EQ(StoredIds(), std::vector<std::string>{job_id});
  }
  {
    SchedulerLoop loop(NextLife());
    const ClusterStatus status = loop.GetStatus();
    ASSERT_EQ(status.jobs_size(), 1);
    EXPECT_EQ(status.jobs(0).job_id(), job_id);
    EXPECT_EQ(status.jobs(0).state(), JOB_QUEUED);
    CancelJobRequest cancel;
    cancel.set_job_id(job_id);
    ASSERT_TRUE(loop.CancelJob(cancel).ok());
    ASSERT_TRUE(AwaitState(&loop, JOB_CANCELLED));
  }
  EXPECT_TRUE(StoredIds().empty());
}

TEST_F(KeptStateTest, ARepeatedSubmissionReturnsTheSameJobAlsoAfterARestart) {
  std::string job_id;
  {
    SchedulerLoop loop(NextLife());
    ASSERT_TRUE(loop.Register(Worker(1)).ok());
    job_id = loop.SubmitJob(SmallJob("a", 1), "r1")->job_id();
    EXPECT_EQ(loop.SubmitJob(SmallJob("a", 1), "r1")->job_id(), job_id);
  }
  SchedulerLoop loop(NextLife());
  EXPECT_EQ(loop.SubmitJob(SmallJob("a", 1), "r1")->job_id(), job_id);
  EXPECT_NE(loop.SubmitJob(SmallJob("a", 1), "r2")->job_id(), job_id);
  EXPECT_EQ(loop.GetStatus().jobs_size(), 2);
}

TEST_F(KeptStateTest, AStoreThatCannotBeWrittenRefusesSubmissionsAndHeals) {
  SchedulerLoop loop(NextLife());
  ASSERT_TRUE(loop.Register(Worker(1)).ok());
  store_->SetErrorForTest(absl::ResourceExhaustedError("disk full"));
  // It is not known whether the store will still take it.
  const absl::Status refused = loop.SubmitJob(SmallJob("a", 1)).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_NE(refused.message().find("disk full"), absl::string_view::npos);
  ClusterStatus status = loop.GetStatus();
  EXPECT_EQ(status.jobs_size(), 0);
  const auto& self = status.members(status.members_size() - 1);
  EXPECT_EQ(self.role(), ROLE_SCHEDULER);
  EXPECT_NE(self.doing().find("disk full"), std::string::npos);

  store_->SetErrorForTest(absl::OkStatus());
  ASSERT_TRUE(loop.SubmitJob(SmallJob("a", 1)).ok());
  EXPECT_EQ(StoredIds().size(), 1u);
  EXPECT_EQ(loop.GetStatus().members_size(), 1);
}

TEST_F(KeptStateTest, ASubmissionThatIsRefusedLeavesNoRecord) {
  SchedulerLoop loop(NextLife());
  ASSERT_TRUE(loop.Register(Worker(1)).ok());
  store_->LoseNextAnswerForTest();
  // The check of the term may have lost the answer instead.
  const absl::Status refused = loop.SubmitJob(SmallJob("a", 1)).status();
  EXPECT_TRUE(refused.ok() || absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_EQ(StoredIds().size(), refused.ok() ? 1u : 0u);
}

TEST_F(KeptStateTest, ASubmissionWhoseOutcomeIsOpenCanBeRepeated) {
  SchedulerLoop loop(NextLife());
  ASSERT_TRUE(loop.Register(Worker(1)).ok());
  store_->SetErrorForTest(absl::UnavailableError("etcd did not answer"));
  EXPECT_TRUE(absl::IsUnavailable(loop.SubmitJob(SmallJob("a", 1), "r1").status()));
  store_->SetErrorForTest(absl::OkStatus());
  const auto reply = loop.SubmitJob(SmallJob("a", 1), "r1");
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(StoredIds(), std::vector<std::string>{reply->job_id()});
}

TEST_F(KeptStateTest, ASubmissionThatIsTooLargeIsRefused) {
  SchedulerLoop loop(NextLife());
  ASSERT_TRUE(loop.Register(Worker(1)).ok());
  SubmitJobRequest large = SmallJob("a", 1);
  large.mutable_config()->mutable_data()->set_train_files(
      0, std::string(MetaStore::kMaxCommitBytes, 'x'));
  EXPECT_TRUE(absl::IsFailedPrecondition(loop.SubmitJob(large).status()));
  EXPECT_TRUE(loop.SubmitJob(SmallJob("b", 1)).ok());
  EXPECT_EQ(StoredIds().size(), 1u);
}

TEST_F(KeptStateTest, TheStoreSaysWhoseItIs) {
  SchedulerLoop::Options options = NextLife();
  options.core.cluster = "mine";
  { SchedulerLoop loop(std::move(options)); }
  EXPECT_EQ(ParseStoredJobs(*FakeMetaStore(contents_).Scan(""))->next.cluster(), "mine");
}

// An answer to a worker leaves when its changes are kept.
TEST_F(KeptStateTest, ADrainIsKeptWhenItIsAnswered) {
  SchedulerLoop::Options options = NextLife();
  options.core.pserver_num = 2;
  SchedulerLoop loop(std::move(options));
  for (const uint32_t rank : {0, 1}) {
    RegisterRequest pserver = Worker(2 + rank);
    pserver.set_role(ROLE_PSERVER);
    pserver.set_rank(rank);
    pserver.set_address(absl::StrCat("ps", rank));
    ASSERT_TRUE(loop.Register(pserver).ok());
  }
  ScaleJobRequest scale;
  scale.set_job_id("no-job");
  EXPECT_TRUE(absl::IsNotFound(loop.ScaleJob(scale)));
  const auto kept = [this] {
    return ParseStoredJobs(*FakeMetaStore(contents_).Scan(""))->draining.pservers_size();
  };
  DrainPserverRequest drain;
  drain.set_rank(1);
  ASSERT_TRUE(loop.DrainPserver(drain).ok());
  EXPECT_EQ(kept(), 1);
  drain.set_rank(0);
  EXPECT_TRUE(absl::IsFailedPrecondition(loop.DrainPserver(drain).status()));
  drain.set_rank(1);
  drain.set_cancel(true);
  ASSERT_TRUE(loop.DrainPserver(drain).ok());
  EXPECT_EQ(kept(), 0);
}

// A job of an earlier scheduler, whose attempt has begun at a checkpoint that is there no more.
class ResumedRunTest : public KeptStateTest {
 protected:
  ResumedRunTest() {
    JobRecord job;
    job.set_job_id("a-1");
    *job.mutable_config() = SmallJob("a", 1).config();
    job.mutable_config()->set_output_dir(Options().default_output + "/a-1");
    job.mutable_config()->mutable_strategy()->set_a_sync(false);
    job.set_order(1);
    job.set_begun(true);
    job.add_pservers(0);
    RunRecord run;
    run.set_job_id("a-1");
    run.set_phase(1);
    JobSpec* const spec = run.mutable_spec();
    spec->set_job_id("a-1");
    spec->set_instance(7);
    spec->set_worker_num(1);
    spec->mutable_route()->add_pservers("ps");
    spec->mutable_restore()->set_directory("/gone/step-9");
    run.add_ranks()->set_incarnation(3);
    began_.set_job_id("a-1");
    began_.set_instance(7);
    began_.set_directory("/gone/step-9");
    began_.mutable_state()->set_worker_num(1);
    began_.mutable_state()->add_workers();
    Keep("job/a-1", job.SerializeAsString());
    Keep("run/a-1", run.SerializeAsString());
  }
  void Keep(const std::string& key, const std::string& value) {
    FakeMetaStore store(contents_);
    ASSERT_TRUE(store.Commit(*store.AcquireTerm(), {{key, value}}).ok());
  }
  // The state of the job under the next scheduler, which logs to *log.
  JobState NextState(std::string* log) {
    SchedulerLoop::Options options = NextLife();
    options.job_log = [log](const std::string&, const std::string& line) {
      absl::StrAppend(log, line, "\n");
    };
    SchedulerLoop loop(std::move(options));
    return loop.GetStatus().jobs(0).state();
  }

  BeginningRecord began_;
};

TEST_F(ResumedRunTest, ItIsAdoptedWithTheRecordOfItsBeginning) {
  Keep("began/a-1", began_.SerializeAsString());
  std::string log;
  EXPECT_EQ(NextState(&log), JOB_RUNNING) << log;
}

TEST_F(ResumedRunTest, WithoutTheRecordOrTheFolderItGoesBackAndTheLogSaysWhy) {
  std::string log;
  EXPECT_EQ(NextState(&log), JOB_RECOVERING);
  EXPECT_NE(log.find("/gone/step-9"), std::string::npos) << log;
}

TEST_F(KeptStateTest, AnAnswerToAWorkerWaitsForItsRecord) {
  SchedulerLoop loop(NextLife());
  TwoMembers members(&loop);
  SubmitJobRequest submit = SmallJob("async", 1);
  submit.mutable_config()->mutable_strategy()->set_a_sync(true);
  const auto job = loop.SubmitJob(submit);
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_NO_FATAL_FAILURE(members.OpenTables(job->job_id()));
  ASSERT_TRUE(AwaitState(&loop, JOB_RUNNING));
  NextPhaseRequest next;
  next.set_job_id(job->job_id());
  const WorkerAssignment assignment = Report(&loop, members.of_worker).assignment();
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
  waits(&phase, [&] { loop.NextPhase(&next, Into(&phase)); });
  std::promise<absl::StatusOr<NextTaskReply>> task;
  waits(&task, [&] { loop.NextTask(ask, Into(&task)); });
}

TEST_F(KeptStateTest, ASupersededSchedulerAcknowledgesNothing) {
  SchedulerLoop loop(NextLife());
  ASSERT_TRUE(loop.Register(Worker(1)).ok());
  const auto job = loop.SubmitJob(SmallJob("a", 1));
  ASSERT_TRUE(job.ok()) << job.status();
  FakeMetaStore newer(contents_);
  ASSERT_TRUE(newer.AcquireTerm().ok());
  CancelJobRequest cancel;
  cancel.set_job_id(job->job_id());
  EXPECT_TRUE(absl::IsUnavailable(loop.CancelJob(cancel)));
  FailJobRequest fail;
  fail.set_job_id(job->job_id());
  EXPECT_TRUE(absl::IsUnavailable(loop.FailJob(fail)));
  CheckpointJobRequest checkpoint;
  checkpoint.set_job_id(job->job_id());
  EXPECT_TRUE(absl::IsUnavailable(AskForCheckpoint(&loop, checkpoint).status()));
  EXPECT_TRUE(absl::IsUnavailable(loop.Shutdown()));
  EXPECT_FALSE(loop.ShuttingDown());
  EXPECT_EQ(StoredIds(), std::vector<std::string>{job->job_id()});
}

TEST_F(KeptStateTest, ANewerSchedulerEndsThisOne) {
  SchedulerLoop::Options options = NextLife();
  std::promise<void> superseded;
  options.on_superseded = [&](const absl::Status&) { superseded.set_value(); };
  SchedulerLoop loop(std::move(options));
  ASSERT_TRUE(loop.Register(Worker(1)).ok());
  FakeMetaStore newer(contents_);
  ASSERT_TRUE(newer.AcquireTerm().ok());
  EXPECT_TRUE(absl::IsUnavailable(loop.SubmitJob(SmallJob("a", 1)).status()));
  superseded.get_future().wait();
  EXPECT_TRUE(StoredIds().empty());
}

}  // namespace
}  // namespace sluice
