#include "scheduler/members/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

const absl::Time kMembershipStart = absl::UnixEpoch();

Membership::Options Options() {
  Membership::Options options;
  options.pserver_num = 2;
  options.worker_num = 2;
  options.first_id = 100;
  return options;
}

RegisterRequest WorkerRequest(uint32_t rank, uint32_t pid) {
  RegisterRequest request;
  request.set_protocol(1);
  request.set_role(ROLE_WORKER);
  request.set_rank(rank);
  request.set_host("h");
  request.set_pid(pid);
  request.set_life(1000 + pid);
  request.set_process_space("space");
  return request;
}

uint64_t Join(Membership* members, const RegisterRequest& request, Member* fenced) {
  const auto member = members->Register(request, /*believed=*/true, kMembershipStart, fenced);
  EXPECT_TRUE(member.ok()) << member.status();
  return (*member)->id;
}

PollRequest ReportOf(uint64_t id) {
  PollRequest request;
  request.set_member_id(id);
  return request;
}

TEST(MembershipTest, AMemberWhoseConnectionBreaksIsLostUnlessItComesBack) {
  Membership::Options options = Options();
  options.reconnect = absl::Seconds(2);
  Membership members(options);
  Member fenced;
  const uint64_t gone = Join(&members, WorkerRequest(0, 1), &fenced);
  const uint64_t back = Join(&members, WorkerRequest(1, 2), &fenced);
  members.NoteCutOff(gone, kMembershipStart + absl::Seconds(1));
  members.NoteCutOff(back, kMembershipStart + absl::Seconds(1));
  members.NoteCutOff(gone,
                     kMembershipStart + absl::Milliseconds(2500));  // counts from the first break
  members.NoteCutOff(99, kMembershipStart + absl::Seconds(1));      // unknown
  members.Report(ReportOf(back), kMembershipStart + absl::Seconds(2), members.ById(back));
  EXPECT_TRUE(members.Expire(kMembershipStart + absl::Milliseconds(2999)).empty());
  const auto expired = members.Expire(kMembershipStart + absl::Seconds(3));
  ASSERT_EQ(expired.size(), 1u);
  EXPECT_EQ(expired[0]->id, gone);
  EXPECT_THAT(expired[0]->why_gone, testing::HasSubstr("connection"));
  EXPECT_TRUE(members.Find(back).ok());
  // It has only its lease again.
  EXPECT_TRUE(members.Expire(kMembershipStart + absl::Milliseconds(11999)).empty());
  EXPECT_EQ(members.Expire(kMembershipStart + absl::Seconds(12)).size(), 1u);
}

TEST(MembershipTest, APauseOfTheSchedulerGivesTimeToConnectAgain) {
  Membership::Options options = Options();
  options.reconnect = absl::Seconds(2);
  Membership members(options);
  Member fenced;
  const uint64_t id = Join(&members, WorkerRequest(0, 1), &fenced);
  members.NoteCutOff(id, kMembershipStart + absl::Seconds(1));
  members.ForgiveSilence(kMembershipStart + absl::Seconds(5));
  EXPECT_TRUE(members.Expire(kMembershipStart + absl::Milliseconds(6999)).empty());
  EXPECT_EQ(members.Expire(kMembershipStart + absl::Seconds(7)).size(), 1u);
}

TEST(MembershipTest, ALivingMemberKeepsItsRank) {
  Membership members(Options());
  Member fenced;
  const uint64_t id = Join(&members, WorkerRequest(0, 1), &fenced);
  RegisterRequest newcomer = WorkerRequest(0, 2);
  for (const uint32_t ended : {0, 3}) {
    newcomer.set_ended_pid(ended);
    const auto refused = members.Register(newcomer, /*believed=*/true, kMembershipStart, &fenced);
    ASSERT_TRUE(refused.ok()) << refused.status();
    EXPECT_EQ(*refused, nullptr);
  }
  RegisterRequest elsewhere = WorkerRequest(0, 1);  // the same pid on another host
  elsewhere.set_life(7);
  elsewhere.set_process_space("another");
  EXPECT_EQ(*members.Register(elsewhere, /*believed=*/true, kMembershipStart, &fenced), nullptr);
  EXPECT_EQ(fenced.id, 0u);
  EXPECT_TRUE(members.Find(id).ok());
  // The incumbent is gone when its lease ends, however often the newcomer asks.
  EXPECT_EQ(members.Expire(kMembershipStart + absl::Seconds(10)).size(), 1u);
  const uint64_t next = Join(&members, WorkerRequest(0, 2), &fenced);
  EXPECT_EQ(fenced.id, 0u) << "it was lost when its lease ran out";
  EXPECT_TRUE(absl::IsAborted(members.Find(id).status()));
  EXPECT_TRUE(members.Find(next).ok());
}

TEST(MembershipTest, ANewcomerReplacesAnEndedProcessAtOnce) {
  Membership members(Options());
  Member fenced;
  const uint64_t old_id = Join(&members, WorkerRequest(0, 1), &fenced);
  RegisterRequest newcomer = WorkerRequest(0, 2);
  newcomer.set_ended_pid(1);
  const uint64_t new_id = Join(&members, newcomer, &fenced);
  EXPECT_EQ(fenced.id, old_id);
  EXPECT_THAT(fenced.why_gone, testing::HasSubstr("pid 2"));
  EXPECT_TRUE(absl::IsAborted(members.Find(old_id).status()));
  EXPECT_TRUE(members.Find(new_id).ok());
  RegisterRequest reused = WorkerRequest(0, 2);  // another life with the incumbent's pid
  reused.set_life(7);
  EXPECT_NE(Join(&members, reused, &fenced), new_id);
  EXPECT_EQ(fenced.id, new_id);
}

TEST(MembershipTest, ANewcomerThatIsNotBelievedWaits) {
  Membership members(Options());
  Member fenced;
  const uint64_t id = Join(&members, WorkerRequest(0, 1), &fenced);
  RegisterRequest newcomer = WorkerRequest(0, 2);
  newcomer.set_ended_pid(1);
  RegisterRequest same_pid = WorkerRequest(0, 1);
  same_pid.set_life(7);
  for (const RegisterRequest& request : {newcomer, same_pid}) {
    EXPECT_TRUE(members.SaysEnded(request));
    EXPECT_EQ(*members.Register(request, /*believed=*/false, kMembershipStart, &fenced), nullptr);
  }
  EXPECT_FALSE(members.SaysEnded(WorkerRequest(0, 2)));
  EXPECT_FALSE(members.SaysEnded(WorkerRequest(0, 1))) << "the member itself";
  EXPECT_EQ(fenced.id, 0u);
  EXPECT_TRUE(members.Find(id).ok());
}

TEST(MembershipTest, RanksAreBoundedWhereTheirNumberIsNotStated) {
  Membership::Options options = Options();
  options.worker_num = 0;
  Membership members(options);
  Member fenced;
  Join(&members, WorkerRequest(Membership::kMaxRanks - 1, 1), &fenced);
  EXPECT_TRUE(absl::IsInvalidArgument(
      members.Register(WorkerRequest(Membership::kMaxRanks, 1), true, kMembershipStart, &fenced)
          .status()));
}

TEST(MembershipTest, MembersThatAreNotConfiguredAreForgottenAnHourAfterTheirEnd) {
  Membership::Options options = Options();
  options.worker_num = 0;
  Membership members(options);
  Member fenced;
  RegisterRequest pserver = WorkerRequest(0, 1);
  pserver.set_role(ROLE_PSERVER);
  pserver.set_address("ps0");
  Join(&members, pserver, &fenced);
  const uint64_t id = Join(&members, WorkerRequest(7, 2), &fenced);
  const uint64_t living = Join(&members, WorkerRequest(8, 3), &fenced);
  members.Expire(kMembershipStart + absl::Seconds(10));
  const absl::Time later = kMembershipStart + Membership::kRemembered;
  Join(&members, WorkerRequest(8, 3), &fenced);
  members.Forget(later - absl::Seconds(1));
  EXPECT_EQ(members.All().size(), 3u);
  members.Forget(later);
  EXPECT_EQ(members.All().size(), 2u);
  EXPECT_EQ(members.At(ROLE_WORKER, 7), nullptr);
  EXPECT_EQ(members.ById(id), nullptr);
  EXPECT_NE(members.At(ROLE_WORKER, 8)->id, living);
  EXPECT_NE(members.At(ROLE_PSERVER, 0), nullptr) << "it is missed until it comes back";
}

TEST(MembershipTest, RepeatedRegistrationOfOneLifeIsTheSameMember) {
  Membership members(Options());
  Member fenced;
  const uint64_t id = Join(&members, WorkerRequest(0, 1), &fenced);
  EXPECT_EQ(Join(&members, WorkerRequest(0, 1), &fenced), id);
  members.Report(PollRequest(), kMembershipStart, *members.Find(id));
  EXPECT_EQ(Join(&members, WorkerRequest(0, 1), &fenced), id);  // a late call
  EXPECT_EQ(fenced.id, 0u);
  members.Expire(kMembershipStart + absl::Seconds(10));
  EXPECT_NE(Join(&members, WorkerRequest(0, 1), &fenced), id);
}

TEST(MembershipTest, APauseOfTheSchedulerDoesNotCountAsSilence) {
  Membership members(Options());
  Member fenced;
  Join(&members, WorkerRequest(1, 1), &fenced);
  members.ForgiveSilence(kMembershipStart + absl::Seconds(99));
  EXPECT_TRUE(members.Expire(kMembershipStart + absl::Milliseconds(108999)).empty());
  EXPECT_EQ(members.Expire(kMembershipStart + absl::Seconds(109)).size(), 1u);
}

TEST(MembershipTest, LeaseRunsOutWithoutReports) {
  Membership members(Options());
  Member fenced;
  const uint64_t id = Join(&members, WorkerRequest(1, 1), &fenced);
  EXPECT_TRUE(members.Expire(kMembershipStart + absl::Milliseconds(9999)).empty());
  members.Report(PollRequest(), kMembershipStart + absl::Seconds(5), *members.Find(id));
  EXPECT_TRUE(members.Expire(kMembershipStart + absl::Seconds(14)).empty());
  const auto expired = members.Expire(kMembershipStart + absl::Seconds(15));
  ASSERT_EQ(expired.size(), 1u);
  EXPECT_THAT(expired[0]->why_gone, testing::HasSubstr("10 s"));
  EXPECT_TRUE(absl::IsNotFound(members.Find(id).status()));
  EXPECT_TRUE(members.Expire(kMembershipStart + absl::Seconds(99)).empty());
}

TEST(MembershipTest, IdsOfAnotherSchedulerAreUnknown) {
  Membership members(Options());
  EXPECT_TRUE(absl::IsNotFound(members.Find(7).status()));
  EXPECT_TRUE(absl::IsNotFound(members.Find(100).status()));
}

TEST(MembershipTest, RefusesImpossibleRegistrations) {
  Membership members(Options());
  Member fenced;
  EXPECT_TRUE(absl::IsInvalidArgument(
      members.Register(WorkerRequest(2, 1), /*believed=*/true, kMembershipStart, &fenced)
          .status()));
  RegisterRequest pserver = WorkerRequest(0, 1);
  pserver.set_role(ROLE_PSERVER);
  EXPECT_TRUE(absl::IsInvalidArgument(
      members.Register(pserver, /*believed=*/true, kMembershipStart, &fenced).status()));
  RegisterRequest other = WorkerRequest(0, 1);
  other.set_protocol(2);
  EXPECT_TRUE(absl::IsFailedPrecondition(
      members.Register(other, /*believed=*/true, kMembershipStart, &fenced).status()));
  RegisterRequest scheduler = WorkerRequest(0, 1);
  scheduler.set_role(ROLE_SCHEDULER);
  EXPECT_TRUE(absl::IsInvalidArgument(
      members.Register(scheduler, /*believed=*/true, kMembershipStart, &fenced).status()));
}

TEST(MembershipTest, AWorkerIsFreeWhenItHasReportedThatItRunsNothing) {
  Membership members(Options());
  Member fenced;
  Member* const worker =
      *members.Register(WorkerRequest(0, 1), /*believed=*/true, kMembershipStart, &fenced);
  EXPECT_FALSE(worker->free()) << "it may still run a job of an earlier scheduler";
  PollRequest report;
  report.mutable_progress()->set_job_id("a");
  members.Report(report, kMembershipStart, worker);
  EXPECT_FALSE(worker->free());
  members.Report(PollRequest(), kMembershipStart, worker);
  EXPECT_TRUE(worker->free());
  worker->job_id = "b";
  EXPECT_FALSE(worker->free());
  worker->job_id.clear();
  members.MarkGone(worker, "killed");
  EXPECT_FALSE(worker->free());
}

TEST(MembershipTest, AProcessIsFoundByRankPidAndProcessSpace) {
  Membership members(Options());
  Member fenced;
  Member* const worker =
      *members.Register(WorkerRequest(1, 5), /*believed=*/true, kMembershipStart, &fenced);
  MemberEndedRequest process;
  process.set_role(ROLE_WORKER);
  process.set_rank(1);
  process.set_pid(5);
  process.set_process_space("space");
  EXPECT_EQ(members.FindProcess(process), worker);
  MemberEndedRequest other = process;
  other.set_pid(6);
  EXPECT_EQ(members.FindProcess(other), nullptr);
  other = process;
  other.set_process_space("another");
  EXPECT_EQ(members.FindProcess(other), nullptr);
  other = process;
  other.set_rank(0);
  EXPECT_EQ(members.FindProcess(other), nullptr);
  members.MarkGone(worker, "killed");
  EXPECT_EQ(members.FindProcess(process), worker);
}

TEST(MembershipTest, SilentMembersOfAProcessSpaceAreListed) {
  Membership members(Options());
  Member fenced;
  Join(&members, WorkerRequest(0, 1), &fenced);
  const uint64_t second = Join(&members, WorkerRequest(1, 2), &fenced);
  members.Report(PollRequest(), kMembershipStart + absl::Seconds(2), *members.Find(second));
  const absl::Time now = kMembershipStart + absl::Seconds(3);
  const auto silent = members.Silent("space", absl::Seconds(2), now);
  ASSERT_EQ(silent.size(), 1u);
  EXPECT_EQ(silent[0].role(), ROLE_WORKER);
  EXPECT_EQ(silent[0].rank(), 0u);
  EXPECT_EQ(silent[0].pid(), 1u);
  EXPECT_EQ(silent[0].process_space(), "space");
  EXPECT_TRUE(members.Silent("another", absl::Seconds(2), now).empty());
  EXPECT_TRUE(members.Silent("", absl::Seconds(2), now).empty());
}

TEST(MembershipTest, MissingMembersAreNamedWithTheirKnownAddresses) {
  Membership::Options options = Options();
  options.pservers = {"10.0.0.1:5000", "10.0.0.2:0"};
  Membership members(options);
  Member fenced;
  const uint64_t worker = Join(&members, WorkerRequest(1, 1), &fenced);
  EXPECT_THAT(members.MissingPservers(),
              testing::ElementsAre(testing::HasSubstr("pserver 0 (10.0.0.1:5000)"),
                                   testing::AllOf(testing::HasSubstr("pserver 1"),
                                                  testing::Not(testing::HasSubstr("10.0.0.2")))));
  EXPECT_THAT(members.MissingWorkers(), testing::ElementsAre(testing::HasSubstr("worker 0")));
  members.MarkGone(*members.Find(worker), "killed");
  EXPECT_EQ(members.MissingWorkers().size(), 2u);
}

TEST(MembershipTest, ADrainingPserverIsNeitherUsedNorMissed) {
  Membership members(Options());
  Member fenced;
  RegisterRequest request = WorkerRequest(0, 1);
  request.set_role(ROLE_PSERVER);
  request.set_address("ps0");
  members.Drain(0);  // before it has registered
  EXPECT_EQ(members.MissingPservers().size(), 1u);
  uint64_t id = Join(&members, request, &fenced);
  EXPECT_TRUE((*members.Find(id))->draining);
  EXPECT_TRUE(members.UsablePservers().empty());
  // Its next process is draining, too, unless this one leaves.
  members.MarkGone(*members.Find(id), "killed");
  request.set_life(77);
  id = Join(&members, request, &fenced);
  EXPECT_TRUE((*members.Find(id))->draining);
  Member* const left = *members.Find(id);
  members.MarkLeft(left, "it was told to");
  EXPECT_EQ(members.MissingPservers().size(), 1u);
  request.set_life(78);
  id = Join(&members, request, &fenced);
  EXPECT_FALSE((*members.Find(id))->draining);
  EXPECT_TRUE(members.draining().empty());
  EXPECT_EQ(members.UsablePservers().size(), 1u);
}

}  // namespace
}  // namespace sluice
