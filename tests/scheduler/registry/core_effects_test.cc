#include "scheduler/registry/core_effects.h"

#include <gmock/gmock.h>

#include "tests/scheduler/job_parts.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(CoreEffectsTest, EachChangeOfADesiredStateRaisesItsVersion) {
  CoreEffects effects;
  Member member;
  member.id = 7;
  const uint64_t before = member.version;
  effects.DesiredChanged(&member);
  EXPECT_EQ(member.version, before + 1);
  effects.MemberGone(8);
  EXPECT_THAT(effects.TakeChanged(), ElementsAre(WaitKey::Desired(7), WaitKey::Desired(8)));
  EXPECT_THAT(effects.TakeChanged(), IsEmpty());
}

TEST(CoreEffectsTest, EachChangeOfAStatusRaisesItsVersionAndPassesOnProgress) {
  CoreEffects effects;
  const std::unique_ptr<Job> job = QueuedFor("a");
  job->NoteProgress();
  const uint64_t before = job->status_version();
  effects.StatusChanged(job.get());
  EXPECT_EQ(job->status_version(), before + 1);
  EXPECT_FALSE(job->progress_untold());
  effects.PhaseChanged(*job);
  effects.JobForgotten("b");
  EXPECT_THAT(effects.TakeChanged(), ElementsAre(WaitKey::Status("a"), WaitKey::Phase("a"),
                                                 WaitKey::Status("b"), WaitKey::Phase("b")));
}

TEST(CoreEffectsTest, ActionsAreTakenOnceAndInOrder) {
  CoreEffects effects;
  for (const char* job_id : {"a", "b"}) {
    OutputAction action;
    action.job_id = job_id;
    effects.Write(action);
  }
  const std::vector<OutputAction> actions = effects.TakeActions();
  ASSERT_EQ(actions.size(), 2u);
  EXPECT_EQ(actions[0].job_id, "a");
  EXPECT_EQ(actions[1].job_id, "b");
  EXPECT_THAT(effects.TakeActions(), IsEmpty());
}

}  // namespace
}  // namespace sluice
