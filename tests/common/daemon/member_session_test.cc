#include "common/daemon/member_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/daemon/control_plane.h"

namespace sluice {
namespace {

// A scheduler whose polls the test answers, one by one.
class FakeScheduler : public SchedulerClient {
 public:
  const std::string& address() const override { return address_; }
  absl::Status WaitReady(absl::Duration, const std::function<void(const std::string&)>&) override {
    return ready_;
  }
  absl::StatusOr<RegisterReply> Register(const RegisterRequest& request) override {
    MutexLock lock(&mutex_);
    if (full_ > 0) {
      --full_;
      return absl::ResourceExhaustedError("the server has its maximum of unary calls");
    }
    RegisterReply reply;
    if (incumbent_.has_value() && request.ended_pid() != incumbent_->pid()) {
      ++refused_;
      *reply.mutable_incumbent() = *incumbent_;
      changed_.NotifyAll();
      return reply;
    }
    reply.set_member_id(first_id_ + ++registered_);
    reply.set_secret(absl::StrCat("secret of ", reply.member_id()));
    reply.set_lease_ms(9000);
    reply.set_heartbeat_ms(1000);
    reply.set_adopted(adopts_);
    holds_.clear();
    for (const HeldJob& held : request.holds()) holds_.push_back(held.job_id());
    changed_.NotifyAll();
    return reply;
  }
  // Waits for the test's answer. A poll without a wait, from the session's helper, is only
  // recorded.
  absl::StatusOr<PollReply> Poll(const PollRequest& request) override {
    MutexLock lock(&mutex_);
    polls_.push_back(request);
    changed_.NotifyAll();
    if (request.wait_ms() == 0) return PollReply();
    while (answers_.empty() && !left_) changed_.Wait(&mutex_);
    if (answers_.empty()) return absl::CancelledError("has left");
    absl::StatusOr<PollReply> answer = answers_.front();
    if (!sticky_ || answers_.size() > 1) answers_.pop_front();
    return answer;
  }
  absl::Status Leave(const LeaveRequest& request) override {
    MutexLock lock(&mutex_);
    left_ = true;
    left_id_ = request.member_id();
    EXPECT_EQ(request.secret(), absl::StrCat("secret of ", request.member_id()));
    changed_.NotifyAll();
    return absl::OkStatus();
  }
  absl::Status MemberEnded(const MemberEndedRequest&) override { return Unused(); }
  absl::StatusOr<NextPhaseReply> NextPhase(const NextPhaseRequest&) override { return Unused(); }
  absl::StatusOr<NextTaskReply> NextTask(const NextTaskRequest&) override { return Unused(); }
  absl::StatusOr<GetRouteReply> GetRoute(const GetRouteRequest&) override { return Unused(); }
  absl::Status FailJob(const FailJobRequest&) override { return Unused(); }
  absl::StatusOr<SubmitJobReply> SubmitJob(const SubmitJobRequest&) override { return Unused(); }
  absl::StatusOr<WatchJobReply> WatchJob(const WatchJobRequest&) override { return Unused(); }
  absl::Status CancelJob(const CancelJobRequest&) override { return Unused(); }
  absl::StatusOr<ClusterStatus> GetStatus() override { return Unused(); }
  absl::Status Shutdown() override { return Unused(); }

  void Answer(absl::StatusOr<PollReply> answer) {
    MutexLock lock(&mutex_);
    answers_.push_back(std::move(answer));
    changed_.NotifyAll();
  }
  void AnswerVersion(uint64_t version, bool stop = false) {
    PollReply reply;
    reply.set_version(version);
    reply.set_stop(stop);
    Answer(reply);
  }
  // Gives this answer to all further polls.
  void AnswerForEver(absl::StatusOr<PollReply> answer) {
    {
      MutexLock lock(&mutex_);
      sticky_ = true;
    }
    Answer(std::move(answer));
  }
  // Waits for the n-th poll (from 0) and returns it.
  PollRequest WaitPoll(size_t n) {
    MutexLock lock(&mutex_);
    while (polls_.size() <= n) changed_.Wait(&mutex_);
    return polls_[n];
  }
  // From now on this member holds the place; nullopt means that nobody holds it.
  void SetIncumbent(std::optional<Incumbent> incumbent) {
    MutexLock lock(&mutex_);
    incumbent_ = std::move(incumbent);
  }
  // The scheduler has no room for so many registrations.
  void SetFull(int registrations) {
    MutexLock lock(&mutex_);
    full_ = registrations;
  }
  int full() {
    MutexLock lock(&mutex_);
    return full_;
  }
  void WaitRefused(int times) {
    MutexLock lock(&mutex_);
    while (refused_ < times) changed_.Wait(&mutex_);
  }
  uint64_t registered() {
    MutexLock lock(&mutex_);
    return registered_;
  }
  uint64_t left_id() {
    MutexLock lock(&mutex_);
    return left_id_;
  }
  // From now on another scheduler answers, whose members' ids come after `first_id`.
  void Replace(uint64_t first_id) {
    MutexLock lock(&mutex_);
    first_id_ = first_id;
  }
  // Waits for the n-th registration (from 1).
  void WaitRegistered(uint64_t n) {
    MutexLock lock(&mutex_);
    while (registered_ < n) changed_.Wait(&mutex_);
  }
  // From now on members may keep what they hold when they register.
  void AdoptNext() {
    MutexLock lock(&mutex_);
    adopts_ = true;
  }
  // The jobs that the last registration named.
  std::vector<std::string> holds() {
    MutexLock lock(&mutex_);
    return holds_;
  }

  absl::Status ready_;

 private:
  static absl::Status Unused() { return absl::UnimplementedError("a member does not call this"); }
  const std::string address_ = "127.0.0.1:7000";
  Mutex mutex_;
  CondVar changed_;
  uint64_t first_id_ = 0, registered_ = 0, left_id_ = 0;
  int refused_ = 0, full_ = 0;
  std::optional<Incumbent> incumbent_;
  bool left_ = false, sticky_ = false, adopts_ = false;
  std::vector<std::string> holds_;
  std::vector<PollRequest> polls_;
  std::deque<absl::StatusOr<PollReply>> answers_;
};

class MemberSessionTest : public testing::Test {
 protected:
  MemberSession::Options Options() {
    MemberSession::Options options;
    options.scheduler = &scheduler_;
    options.clock = Clock::Real();
    options.self.set_role(ROLE_WORKER);
    options.retry_pause = options.place_pause = absl::Milliseconds(1);
    options.fill_report = [](PollRequest* request) { request->set_memory_bytes(77); };
    options.on_desired = [this](const PollReply& reply) {
      MutexLock lock(&mutex_);
      desired_.push_back(reply.version());
    };
    options.on_end = [this](absl::Status status) {
      MutexLock lock(&mutex_);
      ended_ = true;
      end_ = std::move(status);
      changed_.NotifyAll();
    };
    options.log = [](const std::string&) {};
    return options;
  }
  std::unique_ptr<MemberSession> Start(MemberSession::Options options) {
    auto session = MemberSession::Start(std::move(options));
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }
  absl::Status WaitEnd() {
    MutexLock lock(&mutex_);
    while (!ended_) changed_.Wait(&mutex_);
    return end_;
  }
  std::vector<uint64_t> desired() {
    MutexLock lock(&mutex_);
    return desired_;
  }

  FakeScheduler scheduler_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<uint64_t> desired_;
  bool ended_ = false;
  absl::Status end_;
};

TEST_F(MemberSessionTest, HandsOverEachVersionOnceAndAcknowledgesIt) {
  auto session = Start(Options());
  EXPECT_EQ(scheduler_.WaitPoll(0).seen_version(), 0u);
  EXPECT_EQ(scheduler_.WaitPoll(0).memory_bytes(), 77u);
  scheduler_.AnswerVersion(4);
  EXPECT_EQ(scheduler_.WaitPoll(1).seen_version(), 4u);
  scheduler_.AnswerVersion(4);  // the poll's wait ended without a new version
  EXPECT_EQ(scheduler_.WaitPoll(2).seen_version(), 4u);
  scheduler_.AnswerVersion(6);
  EXPECT_EQ(scheduler_.WaitPoll(3).seen_version(), 6u);
  EXPECT_THAT(desired(), testing::ElementsAre(4, 6));
}

// As those of a scheduler that has no room for all calls that wait.
TEST_F(MemberSessionTest, PausesAfterAnEarlyAnswerWithoutNews) {
  MemberSession::Options options = Options();
  options.retry_pause = absl::Milliseconds(50);
  auto session = Start(options);
  scheduler_.AnswerVersion(4);
  scheduler_.WaitPoll(1);
  const absl::Time begin = Clock::Real()->Now();
  for (int i = 0; i < 3; ++i) scheduler_.AnswerVersion(4);
  scheduler_.WaitPoll(4);
  EXPECT_GE(Clock::Real()->Now() - begin, absl::Milliseconds(150));
}

TEST_F(MemberSessionTest, LeavesWhenDestroyed) {
  auto session = Start(Options());
  scheduler_.WaitPoll(0);
  session.reset();
  EXPECT_EQ(scheduler_.left_id(), 1u);
}

TEST_F(MemberSessionTest, StopFromTheSchedulerEndsWithOkAndStillLeaves) {
  auto session = Start(Options());
  scheduler_.AnswerVersion(2, /*stop=*/true);
  EXPECT_TRUE(WaitEnd().ok());
  session.reset();
  EXPECT_EQ(scheduler_.left_id(), 1u);
}

TEST_F(MemberSessionTest, FencedMemberEndsWithoutLeaving) {
  auto session = Start(Options());
  scheduler_.Answer(absl::AbortedError("another process"));
  EXPECT_TRUE(absl::IsAborted(WaitEnd()));
  session.reset();
  EXPECT_EQ(scheduler_.left_id(), 0u);
}

TEST_F(MemberSessionTest, SurvivesAnUnansweredCall) {
  auto session = Start(Options());
  scheduler_.Answer(absl::UnavailableError("broken"));
  scheduler_.AnswerVersion(3);
  EXPECT_EQ(scheduler_.WaitPoll(2).seen_version(), 3u);
  EXPECT_EQ(scheduler_.registered(), 1u);
}

TEST_F(MemberSessionTest, SurvivesCallsForWhichTheSchedulerHasNoMemory) {
  auto session = Start(Options());
  for (int i = 0; i < 3; ++i) scheduler_.Answer(absl::ResourceExhaustedError("memory limit"));
  scheduler_.AnswerVersion(3);
  EXPECT_EQ(scheduler_.WaitPoll(4).seen_version(), 3u);
  EXPECT_EQ(scheduler_.registered(), 1u);
}

// This process may have been stopped during the call, so the session asks the scheduler once more,
// however long the call took.
TEST_F(MemberSessionTest, OneUnansweredCallDoesNotCountAsSilence) {
  MemberSession::Options options = Options();
  options.lost_after = absl::Nanoseconds(1);
  auto session = Start(std::move(options));
  scheduler_.WaitPoll(0);
  scheduler_.Answer(absl::UnavailableError("deadline"));
  scheduler_.AnswerVersion(3);
  EXPECT_EQ(scheduler_.WaitPoll(2).seen_version(), 3u);
}

TEST_F(MemberSessionTest, SilenceLastsFromTheFirstUnansweredCallToTheNextAnswer) {
  auto session = Start(Options());
  scheduler_.AnswerVersion(2);
  scheduler_.WaitPoll(1);
  EXPECT_EQ(session->silent(), absl::ZeroDuration());
  for (size_t call = 2; call < 4; ++call) {
    scheduler_.Answer(absl::UnavailableError("broken"));
    scheduler_.WaitPoll(call);
  }
  EXPECT_GT(session->silent(), absl::ZeroDuration());
  scheduler_.AnswerVersion(3);
  scheduler_.WaitPoll(4);
  EXPECT_EQ(session->silent(), absl::ZeroDuration());
}

TEST_F(MemberSessionTest, UnansweredReportIsGivenBack) {
  MemberSession::Options options = Options();
  std::vector<uint64_t> lost;
  options.report_lost = [&](const PollRequest& request) { lost.push_back(request.memory_bytes()); };
  auto session = Start(std::move(options));
  scheduler_.AnswerVersion(2);
  scheduler_.Answer(absl::UnavailableError("broken"));
  scheduler_.AnswerVersion(3);
  scheduler_.WaitPoll(3);
  EXPECT_THAT(lost, testing::ElementsAre(77));
}

TEST_F(MemberSessionTest, EndsWhenTheSchedulerIsSilentTooLong) {
  MemberSession::Options options = Options();
  options.lost_after = absl::Milliseconds(20);
  auto session = Start(std::move(options));
  scheduler_.AnswerForEver(absl::UnavailableError("broken"));
  const absl::Status end = WaitEnd();
  EXPECT_TRUE(absl::IsUnavailable(end));
  EXPECT_THAT(std::string(end.message()), testing::HasSubstr("127.0.0.1:7000"));
}

TEST_F(MemberSessionTest, RegistersAgainAfterItsLeaseRanOut) {
  auto session = Start(Options());
  scheduler_.AnswerVersion(9);
  scheduler_.WaitPoll(1);
  scheduler_.Answer(absl::NotFoundError("lease ran out"));
  const PollRequest again = scheduler_.WaitPoll(2);
  EXPECT_EQ(again.member_id(), 2u);
  EXPECT_EQ(again.secret(), "secret of 2") << "that of the new life";
  EXPECT_EQ(session->key().secret, "secret of 2");
  EXPECT_EQ(scheduler_.WaitPoll(0).secret(), "secret of 1");
  EXPECT_EQ(again.seen_version(), 0u);
  EXPECT_EQ(session->key().id, 2u);
  EXPECT_THAT(desired(), testing::ElementsAre(9, 0)) << "the new life begins without orders";
}

TEST_F(MemberSessionTest, AnOlderSchedulerCountsAsSilent) {
  constexpr uint64_t kTerm = uint64_t{1} << 40;
  scheduler_.Replace(2 * kTerm);
  auto session = Start(Options());
  scheduler_.AnswerVersion(9);
  scheduler_.WaitPoll(1);
  scheduler_.Replace(kTerm);
  scheduler_.Answer(absl::NotFoundError("unknown here"));
  scheduler_.WaitRegistered(3);  // it asks again and again
  EXPECT_EQ(session->key().id, 2 * kTerm + 1);
  EXPECT_THAT(desired(), testing::ElementsAre(9)) << "it continues with what it has";
  scheduler_.Replace(3 * kTerm);
  EXPECT_GT(scheduler_.WaitPoll(2).member_id(), 3 * kTerm);
}

TEST_F(MemberSessionTest, ASchedulerWithoutAStoreIsNeverTakenForAnOlderOne) {
  scheduler_.Replace(kUnorderedMemberId + 1000);
  auto session = Start(Options());
  scheduler_.WaitPoll(0);
  for (const uint64_t first_id : {kUnorderedMemberId, uint64_t{1} << 40, kUnorderedMemberId}) {
    scheduler_.Replace(first_id);
    const uint64_t before = scheduler_.registered();
    scheduler_.Answer(absl::NotFoundError("unknown here"));
    scheduler_.WaitPoll(before);
    EXPECT_EQ(session->key().id, first_id + before + 1);
  }
}

TEST_F(MemberSessionTest, KeepsWhatANewSchedulerAdopts) {
  MemberSession::Options options = Options();
  options.fill_holds = [](auto* holds) { holds->Add()->set_job_id("a-1"); };
  auto session = Start(std::move(options));
  EXPECT_TRUE(scheduler_.holds().empty()) << "a new process holds nothing";
  scheduler_.AnswerVersion(9);
  scheduler_.WaitPoll(1);
  scheduler_.AdoptNext();
  scheduler_.Answer(absl::NotFoundError("a new scheduler"));
  scheduler_.WaitPoll(2);
  EXPECT_THAT(scheduler_.holds(), testing::ElementsAre("a-1"));
  EXPECT_THAT(desired(), testing::ElementsAre(9));
}

Incumbent SilentFor(double seconds) {
  Incumbent incumbent;
  incumbent.set_pid(7);
  incumbent.set_host("h");
  incumbent.set_last_seen_s(seconds);
  return incumbent;
}

TEST_F(MemberSessionTest, WaitsForThePlaceOfASilentMember) {
  scheduler_.SetIncumbent(SilentFor(1e6));
  std::thread lease([this] {
    scheduler_.WaitRefused(3);
    scheduler_.SetIncumbent(std::nullopt);
  });
  auto session = Start(Options());
  lease.join();
  EXPECT_EQ(session->key().id, 1u);
}

TEST_F(MemberSessionTest, WaitingForAPlaceEndsWhenStopping) {
  scheduler_.SetIncumbent(SilentFor(1e6));
  std::atomic<bool> stop{false};
  MemberSession::Options options = Options();
  options.stopping = [&stop] { return stop.load(); };
  std::thread stopper([&] {
    scheduler_.WaitRefused(2);
    stop = true;
  });
  EXPECT_TRUE(absl::IsCancelled(MemberSession::Start(std::move(options)).status()));
  stopper.join();
}

TEST_F(MemberSessionTest, TakesThePlaceOfAnEndedProcessAtOnce) {
  Incumbent incumbent = SilentFor(0);
  incumbent.set_process_space("space");
  scheduler_.SetIncumbent(incumbent);
  MemberSession::Options options = Options();
  options.self.set_process_space("space");
  options.process_has_ended = [](uint32_t pid) { return pid == 7; };
  EXPECT_EQ(Start(std::move(options))->key().id, 1u);
}

TEST_F(MemberSessionTest, MemberWhosePlaceWasTakenEnds) {
  auto session = Start(Options());
  scheduler_.SetIncumbent(SilentFor(0));  // another member has the place and keeps reporting
  scheduler_.Answer(absl::NotFoundError("lease ran out"));
  EXPECT_TRUE(absl::IsAlreadyExists(WaitEnd()));
}

TEST_F(MemberSessionTest, LostAfterFollowsFromTheLease) {
  EXPECT_EQ(Start(Options())->lost_after(), absl::Seconds(36));
}

TEST_F(MemberSessionTest, ReportSoonDoesNotWaitForTheHeartbeat) {
  auto session = Start(Options());
  scheduler_.WaitPoll(0);  // this poll waits at the scheduler and is not answered
  session->ReportSoon();
  EXPECT_EQ(scheduler_.WaitPoll(1).wait_ms(), 0u);
}

TEST_F(MemberSessionTest, StartWaitsForRoomAtTheScheduler) {
  MemberSession::Options options = Options();
  options.wait = absl::ZeroDuration();
  options.room_wait = absl::Seconds(60);
  int lines = 0;
  options.log = [&lines](const std::string&) { ++lines; };
  scheduler_.SetFull(30);
  auto session = Start(std::move(options));
  EXPECT_EQ(scheduler_.full(), 0);
  EXPECT_GE(lines, 1);
  EXPECT_LT(lines, 30);
}

TEST_F(MemberSessionTest, StartWaitsForRoomOnlySoLong) {
  MemberSession::Options options = Options();
  options.wait = absl::ZeroDuration();
  options.room_wait = absl::Milliseconds(20);
  scheduler_.SetFull(1 << 20);
  const auto session = MemberSession::Start(std::move(options));
  EXPECT_TRUE(absl::IsResourceExhausted(session.status())) << session.status();
  EXPECT_LT(scheduler_.full(), 1 << 20);
}

TEST_F(MemberSessionTest, StartFailsWhenTheSchedulerCannotBeReached) {
  scheduler_.ready_ = absl::UnavailableError("nobody at 127.0.0.1:7000");
  const auto session = MemberSession::Start(Options());
  EXPECT_TRUE(absl::IsUnavailable(session.status()));
}

}  // namespace
}  // namespace sluice
