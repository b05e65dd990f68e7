#include "scheduler/job/job_phases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice {
namespace {

std::string Listed(const JobConfig& config) {
  std::vector<std::string> names;
  for (const Phase& phase : ListPhases(config)) {
    names.push_back(absl::StrCat(PhaseName(phase.kind()), phase.epoch()));
    EXPECT_EQ(phase.number(), names.size());
  }
  return absl::StrJoin(names, " ");
}

JobConfig PhasesConfig(uint32_t epochs) {
  JobConfig config;
  config.mutable_train()->set_epochs(epochs);
  config.mutable_data()->add_eval_files("e");
  return config;
}

TEST(JobPhasesTest, EvaluatesAfterEachEpoch) {
  EXPECT_EQ(Listed(PhasesConfig(2)), "index0 train0 eval0 train1 eval1 save1 finish1");
}

TEST(JobPhasesTest, EvaluatesEveryNthEpochAndTheLast) {
  JobConfig config = PhasesConfig(5);
  config.mutable_eval()->set_every_epochs(2);
  EXPECT_EQ(Listed(config),
            "index0 train0 train1 eval1 train2 train3 eval3 train4 eval4 save4 finish4");
  config.mutable_eval()->set_every_epochs(0);
  EXPECT_EQ(Listed(config), "index0 train0 train1 train2 train3 train4 eval4 save4 finish4");
}

TEST(JobPhasesTest, WithoutEvalFilesOrModelTheirPhasesAreOmitted) {
  JobConfig config = PhasesConfig(1);
  config.mutable_data()->clear_eval_files();
  config.mutable_checkpoint()->set_save_final_model(false);
  EXPECT_EQ(Listed(config), "index0 train0 finish0");
}

TEST(JobPhasesTest, EachEvaluationMayBeFollowedByTheSaveOfTheBestModel) {
  JobConfig config = PhasesConfig(3);
  config.mutable_eval()->set_every_epochs(2);
  config.mutable_checkpoint()->set_save(CheckpointConfig::BEST);
  EXPECT_EQ(Listed(config), "index0 train0 train1 eval1 save1 train2 eval2 save2 finish2");
}

TEST(JobPhasesTest, TrainingThatIsSkippedIsFollowedByTheFinalSave) {
  JobConfig config = PhasesConfig(3);
  JobPhases phases(ListPhases(config), 1);
  phases.SkipTraining(/*save=*/true);
  EXPECT_EQ(phases.current().kind(), Phase::SAVE);
  EXPECT_FALSE(phases.TrainsMore());
  config.mutable_checkpoint()->set_save_final_model(false);
  JobPhases without(ListPhases(config), 1);
  without.SkipTraining(/*save=*/true);
  EXPECT_TRUE(without.over());
}

TEST(JobPhasesTest, EvaluateOnlyHasNoOtherPhases) {
  JobConfig config = PhasesConfig(3);
  config.set_evaluate_only(true);
  EXPECT_EQ(Listed(config), "index0 eval0 finish0");
}

TEST(JobPhasesTest, AdvancesWhenAllRanksHaveEnded) {
  JobPhases phases(ListPhases(PhasesConfig(1)), 2);
  EXPECT_TRUE(*phases.IsNews(1, 1));
  phases.MarkEnded(1);
  EXPECT_FALSE(*phases.IsNews(1, 1));
  EXPECT_FALSE(phases.AllEnded());
  EXPECT_THAT(phases.Missing(), testing::ElementsAre(0));
  phases.MarkEnded(0);
  ASSERT_TRUE(phases.AllEnded());
  phases.Advance();
  EXPECT_FALSE(*phases.IsNews(0, 1));
  EXPECT_EQ(phases.current().kind(), Phase::TRAIN);
  EXPECT_TRUE(absl::IsInvalidArgument(phases.IsNews(0, 3).status()));
}

}  // namespace
}  // namespace sluice
