#include "scheduler/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

const absl::Time kStart = absl::UnixEpoch();

Membership::Options Options() {
  Membership::Options options;
  options.pserver_num = 2;
  options.worker_num = 2;
  options.first_id = 100;
  return options;
}

RegisterRequest Worker(uint32_t rank, uint32_t pid) {
  RegisterRequest request;
  request.set_protocol(1);
  request.set_role(ROLE_WORKER);
  request.set_rank(rank);
  request.set_host("h");
  request.set_pid(pid);
  return request;
}

uint64_t Join(Membership* members, const RegisterRequest& request, Member* fenced) {
  const auto member = members->Register(request, kStart, fenced);
  EXPECT_TRUE(member.ok()) << member.status();
  return (*member)->id;
}

TEST(MembershipTest, SecondLifeFencesTheFirst) {
  Membership members(Options());
  Member fenced;
  const uint64_t old_id = Join(&members, Worker(0, 1), &fenced);
  EXPECT_EQ(fenced.id, 0u);
  const uint64_t new_id = Join(&members, Worker(0, 2), &fenced);
  EXPECT_EQ(fenced.id, old_id);
  EXPECT_THAT(fenced.why_gone, testing::HasSubstr("pid 2"));
  EXPECT_TRUE(absl::IsAborted(members.Find(old_id).status()));
  EXPECT_TRUE(members.Find(new_id).ok());
}

TEST(MembershipTest, RepeatedRegistrationOfTheSameProcessIsTheSameMember) {
  Membership members(Options());
  Member fenced;
  const uint64_t id = Join(&members, Worker(0, 1), &fenced);
  EXPECT_EQ(Join(&members, Worker(0, 1), &fenced), id);
  EXPECT_EQ(fenced.id, 0u);
  members.Report(PollRequest(), kStart, *members.Find(id));
  EXPECT_NE(Join(&members, Worker(0, 1), &fenced), id);  // it has begun a life of its own since
  EXPECT_EQ(fenced.id, id);
}

TEST(MembershipTest, LeaseRunsOutWithoutReports) {
  Membership members(Options());
  Member fenced;
  const uint64_t id = Join(&members, Worker(1, 1), &fenced);
  EXPECT_TRUE(members.Expire(kStart + absl::Milliseconds(9999)).empty());
  members.Report(PollRequest(), kStart + absl::Seconds(5), *members.Find(id));
  EXPECT_TRUE(members.Expire(kStart + absl::Seconds(14)).empty());
  const auto expired = members.Expire(kStart + absl::Seconds(15));
  ASSERT_EQ(expired.size(), 1u);
  EXPECT_EQ(expired[0]->why_gone, "no heartbeat for 10 s");
  EXPECT_TRUE(absl::IsNotFound(members.Find(id).status()));
  EXPECT_TRUE(members.Expire(kStart + absl::Seconds(99)).empty());
}

TEST(MembershipTest, IdsOfAnotherSchedulerAreUnknown) {
  Membership members(Options());
  EXPECT_TRUE(absl::IsNotFound(members.Find(7).status()));
  EXPECT_TRUE(absl::IsNotFound(members.Find(100).status()));
}

TEST(MembershipTest, RefusesWhatCannotBe) {
  Membership members(Options());
  Member fenced;
  EXPECT_TRUE(absl::IsInvalidArgument(members.Register(Worker(2, 1), kStart, &fenced).status()));
  RegisterRequest pserver = Worker(0, 1);
  pserver.set_role(ROLE_PSERVER);
  EXPECT_TRUE(absl::IsInvalidArgument(members.Register(pserver, kStart, &fenced).status()));
  RegisterRequest other = Worker(0, 1);
  other.set_protocol(2);
  EXPECT_TRUE(absl::IsFailedPrecondition(members.Register(other, kStart, &fenced).status()));
  RegisterRequest scheduler = Worker(0, 1);
  scheduler.set_role(ROLE_SCHEDULER);
  EXPECT_TRUE(absl::IsInvalidArgument(members.Register(scheduler, kStart, &fenced).status()));
}

}  // namespace
}  // namespace sluice
