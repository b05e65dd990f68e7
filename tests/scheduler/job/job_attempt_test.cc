#include "scheduler/job/job_attempt.h"

#include <gmock/gmock.h>

#include <memory>
#include <utility>

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::unique_ptr<const ResumePoint> PointAtStep(uint64_t step) {
  auto point = std::make_unique<ResumePoint>();
  point->dir = "/c/step";
  point->manifest.mutable_checkpoint()->set_global_step(step);
  return point;
}

absl::Status PlaceAll(const std::vector<std::string>& pservers, JobSpec* spec) {
  spec->mutable_route()->mutable_pservers()->Assign(pservers.begin(), pservers.end());
  spec->mutable_route()->set_generation(1);
  return absl::OkStatus();
}

TEST(JobAttemptTest, MembersReadTheCheckpointOfThePoint) {
  JobSpec spec;
  spec.mutable_restore()->set_kind(Restore::INITIAL);
  spec.mutable_restore()->set_directory("/initial");
  JobAttempt attempt;
  attempt.SetInstance(5);
  attempt.Specify(spec, nullptr);
  EXPECT_EQ(attempt.spec().instance(), 5u);
  EXPECT_EQ(attempt.spec().restore().kind(), Restore::INITIAL);
  attempt.TellPoint();
  EXPECT_EQ(attempt.spec().restore().directory(), "/initial") << "there is no point";
  attempt.SetPoint(PointAtStep(12));
  attempt.TellPoint();
  EXPECT_EQ(attempt.spec().restore().kind(), Restore::RESUME);
  EXPECT_EQ(attempt.spec().restore().directory(), "/c/step");
  EXPECT_EQ(attempt.spec().restore().step(), 12u);
}

TEST(JobAttemptTest, EachPlacementRaisesTheGeneration) {
  JobAttempt attempt;
  ASSERT_TRUE(attempt.PlaceTables(PlaceAll, {}, {"a", "b"}, {0u, 1u}).ok());
  EXPECT_EQ(attempt.spec().route().generation(), 1u);
  attempt.RaiseGeneration({});
  std::vector<std::string> seen;
  const auto place = [&](const std::vector<std::string>& pservers, JobSpec* spec) {
    seen.assign(spec->route().pservers().begin(), spec->route().pservers().end());
    return PlaceAll(pservers, spec);
  };
  ASSERT_TRUE(attempt.PlaceTables(place, {"a2"}, {"a2"}, {0u}).ok());
  EXPECT_THAT(seen, ElementsAre("a2", "")) << "a has another address, and b is not used";
  EXPECT_THAT(attempt.spec().route().pservers(), ElementsAre("a2"));
  EXPECT_THAT(attempt.spec().route().pserver_ranks(), ElementsAre(0));
  EXPECT_EQ(attempt.spec().route().generation(), 3u);
}

TEST(JobAttemptTest, ARaisedGenerationNamesThePresentLives) {
  JobAttempt attempt;
  const std::vector<RankSlot> slots = {{1, 0, /*incarnation=*/10}, {2, 1, /*incarnation=*/12}};
  attempt.RaiseGeneration(slots);
  EXPECT_THAT(attempt.spec().incarnations(), ElementsAre(10, 12));
  attempt.Open(absl::UnixEpoch());
  EXPECT_THAT(attempt.spec().incarnations(), IsEmpty());
  EXPECT_TRUE(attempt.hosted());
}

TEST(JobAttemptTest, TheNextAttemptNeedsNoOtherFolder) {
  JobAttempt attempt;
  attempt.Open(absl::UnixEpoch());
  attempt.opening().OutputReady();
  attempt.SetVacant({1});
  Takeover takeover;
  takeover.set_checkpoint("/c/step");
  attempt.SetFollowers({1, 0});
  ASSERT_TRUE(attempt.PlaceTables(PlaceAll, {}, {"a", "b"}, {0u, 1u}).ok());
  attempt.TakeOver(1, "b2", std::move(takeover));
  EXPECT_EQ(attempt.spec().route().pservers(1), "b2");
  attempt.End();
  EXPECT_FALSE(attempt.hosted());
  EXPECT_FALSE(attempt.spec().has_takeover());
  EXPECT_THAT(attempt.spec().route().vacant(), IsEmpty());
  EXPECT_TRUE(attempt.opening().output_ready());
}

TEST(JobAttemptTest, TheFiguresOfALostAttemptStayUntilTheNextOneRuns) {
  JobConfig config;
  config.mutable_train()->set_epochs(1);
  config.set_evaluate_only(true);
  JobRun::Options options;
  options.config = &config;
  options.worker_num = 2;
  JobAttempt attempt;
  attempt.End();
  EXPECT_EQ(attempt.before(), nullptr) << "nothing has run";
  attempt.Run(options, absl::UnixEpoch());
  ASSERT_NE(attempt.run(), nullptr);
  StepReports* const steps = attempt.steps();
  ASSERT_NE(steps, nullptr);
  attempt.End();
  EXPECT_EQ(attempt.run(), nullptr);
  EXPECT_NE(attempt.before(), nullptr);
  attempt.Run(options, absl::UnixEpoch());
  EXPECT_EQ(attempt.before(), nullptr);
  EXPECT_EQ(attempt.steps(), steps) << "callers go on counting";
  attempt.Archive();
  EXPECT_EQ(attempt.run(), nullptr);
  EXPECT_NE(attempt.steps(), nullptr);
}

}  // namespace
}  // namespace sluice
