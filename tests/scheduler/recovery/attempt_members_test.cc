#include "scheduler/recovery/attempt_members.h"

#include <gmock/gmock.h>

#include "tests/scheduler/job_parts.h"

namespace sluice {
namespace {

using testing::ElementsAre;

class AttemptMembersTest : public testing::Test {
 protected:
  AttemptMembersTest() {
    for (const uint32_t rank : {0, 1}) pservers_.push_back(Join(&members_, ROLE_PSERVER, rank));
    for (const uint32_t rank : {0, 1, 2}) {
      workers_.push_back(Join(&members_, ROLE_WORKER, rank));
      workers_.back()->polled = true;
    }
    job_->pservers.Choose({0, 1});
    job_->course.Recover();
  }
  static absl::Status Place(const std::vector<std::string>& pservers, JobSpec* spec) {
    spec->mutable_route()->set_generation(1);
    spec->mutable_route()->mutable_pservers()->Assign(pservers.begin(), pservers.end());
    return absl::OkStatus();
  }
  std::vector<uint32_t> Workers() const {
    std::vector<uint32_t> ranks;
    for (const RankSlot& slot : job_->ranks.slots()) ranks.push_back(slot.worker());
    return ranks;
  }

  Membership members_{Membership::Options()};
  JobQueue queue_;
  CoreEffects effects_;
  AttemptMembers attempts_{{/*first_id=*/100, Place}, {&members_, &queue_, &effects_}};
  std::unique_ptr<Job> job_ = QueuedFor("job", /*workers=*/2);
  std::vector<Member*> pservers_, workers_;
  const absl::Time now_ = absl::UnixEpoch();
};

TEST_F(AttemptMembersTest, AnAttemptTakesTheFirstFreeWorkersAndAllItsPservers) {
  workers_[0]->job_id = "another";
  ASSERT_TRUE(attempts_.Begin(job_.get(), now_).ok());
  EXPECT_THAT(Workers(), ElementsAre(1, 2));
  EXPECT_THAT(job_->pservers.members(), ElementsAre(pservers_[0]->id, pservers_[1]->id));
  EXPECT_THAT(job_->spec().route().pservers(), ElementsAre("ps0", "ps1"));
  EXPECT_TRUE(job_->attempt.hosted());
  EXPECT_EQ(workers_[1]->job_id, "job");
  EXPECT_EQ(pservers_[0]->version, 2);
}

TEST_F(AttemptMembersTest, TheRouteNamesTheRanksOfThePserversOfEachAttempt) {
  ASSERT_TRUE(attempts_.Begin(job_.get(), now_).ok());
  EXPECT_THAT(job_->spec().route().pserver_ranks(), ElementsAre(0, 1));
  job_->pservers.Choose({1});
  ASSERT_TRUE(attempts_.Begin(job_.get(), now_).ok());
  EXPECT_THAT(job_->spec().route().pservers(), ElementsAre("ps1"));
  EXPECT_THAT(job_->spec().route().pserver_ranks(), ElementsAre(1));
}

TEST_F(AttemptMembersTest, EachAttemptHasNewNumbers) {
  attempts_.SetNewInstance(job_.get());
  ASSERT_TRUE(attempts_.Begin(job_.get(), now_).ok());
  const uint64_t instance = job_->spec().instance(),
                 incarnation = job_->ranks.slots()[1].incarnation();
  const uint64_t generation = job_->spec().route().generation();
  attempts_.SetNewInstance(job_.get());
  ASSERT_TRUE(attempts_.Begin(job_.get(), now_).ok());
  EXPECT_GT(job_->spec().instance(), instance);
  EXPECT_GT(job_->ranks.slots()[0].incarnation(), incarnation);
  EXPECT_GT(job_->spec().route().generation(), generation);
  EXPECT_THAT(job_->attempt.instances(), ElementsAre(instance, job_->spec().instance()));
}

TEST_F(AttemptMembersTest, AReservedWorkerServesOrIsGivenBack) {
  EXPECT_EQ(attempts_.Reserve(job_.get(), 2), 2);
  EXPECT_TRUE(workers_[2]->free());
  job_->attempt.MutableSpecForTest()->set_worker_num(1);
  ASSERT_TRUE(attempts_.Begin(job_.get(), now_).ok());
  EXPECT_THAT(Workers(), ElementsAre(0));
  EXPECT_TRUE(workers_[1]->free());
}

TEST_F(AttemptMembersTest, AWorkerThatStopsStaysReservedWhileTheJobAwaitsItsNextAttempt) {
  ASSERT_TRUE(attempts_.Begin(job_.get(), now_).ok());
  job_->course.Run();
  const uint64_t version = workers_[0]->version;
  attempts_.Withdraw(&job_->ranks.slots()[0]);
  EXPECT_GT(workers_[0]->version, version);
  EXPECT_FALSE(job_->ranks.slots()[0].serving());
  attempts_.Release(job_.get(), &job_->ranks.slots()[0]);
  EXPECT_TRUE(workers_[0]->free());
  job_->course.Recover();
  job_->attempt.DropTables();
  attempts_.Release(job_.get(), &job_->ranks.slots()[1]);
  EXPECT_TRUE(job_->ranks.slots()[1].released());
  EXPECT_EQ(workers_[1]->job_id, "job");
  attempts_.GiveBack(job_.get());
  EXPECT_TRUE(workers_[1]->free());
}

}  // namespace
}  // namespace sluice
