#include "scheduler/job/epoch_judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace sluice {
namespace {

JobConfig JudgedConfig(uint32_t epochs, uint32_t patience, double min_delta = 0) {
  JobConfig config;
  config.mutable_train()->set_epochs(epochs);
  config.mutable_train()->mutable_early_stop()->set_patience(patience);
  config.mutable_train()->mutable_early_stop()->set_min_delta(min_delta);
  return config;
}

EvalMetrics OfLogLoss(double log_loss) {
  EvalMetrics eval;
  eval.set_examples(1);
  eval.set_log_loss(log_loss);
  return eval;
}

EvalMetrics OfAuc(double auc) {
  EvalMetrics eval = OfLogLoss(0.5);
  eval.set_auc(auc);
  return eval;
}

// Judges evaluations with these log losses until training stops. Returns the epoch after which it
// does, from 1; 0: it does not.
uint32_t StopsAfter(const JobConfig& config, const std::vector<double>& losses, JobResult* result) {
  for (uint32_t epoch = 0; epoch < losses.size(); ++epoch) {
    JudgeEpoch(config, OfLogLoss(losses[epoch]), epoch, 10 * (epoch + 1), result);
    if (result->stopped_early()) return epoch + 1;
  }
  return 0;
}

TEST(EpochJudgeTest, TheBestEpochIsTheFirstWithTheLeastLogLoss) {
  JobResult result;
  EXPECT_EQ(StopsAfter(JudgedConfig(9, 9), {0.5, 0.3, 0.4, 0.3}, &result), 0u);
  EXPECT_EQ(result.best().epoch(), 2u);
  EXPECT_EQ(result.best().step(), 20u);
  EXPECT_EQ(result.best().eval().log_loss(), 0.3);
}

TEST(EpochJudgeTest, StopsAfterPatienceEvaluationsInARowWithoutImprovement) {
  JobResult result;
  EXPECT_EQ(StopsAfter(JudgedConfig(9, 2), {0.5, 0.6, 0.4, 0.4, 0.5, 0.1}, &result), 5u);
  EXPECT_EQ(result.best().epoch(), 3u);
}

TEST(EpochJudgeTest, TheLastEpochIsNoEarlyStop) {
  JobResult result;
  EXPECT_EQ(StopsAfter(JudgedConfig(3, 2), {0.5, 0.6, 0.6}, &result), 0u);
}

TEST(EpochJudgeTest, SmallGainsAddUpToAnImprovement) {
  JobResult result;
  // 0.48 is better than 0.5, but by less than 0.05; 0.45 is better by exactly so much.
  EXPECT_EQ(StopsAfter(JudgedConfig(9, 2, 0.0625), {0.5, 0.46875, 0.4375, 0.40625, 0.5}, &result),
            5u);
  EXPECT_EQ(result.early_stop().reference(), 0.4375);
  EXPECT_EQ(result.best().epoch(), 4u);
}

// Neither better nor worse than others: it is no best epoch, and does not count for early_stop.
TEST(EpochJudgeTest, AnUndefinedMetricIsNotJudged) {
  JobConfig config = JudgedConfig(9, 2);
  config.mutable_train()->mutable_early_stop()->set_metric(EarlyStop::AUC);
  JobResult result;
  const EvalMetrics undefined = OfLogLoss(0.1);
  for (uint32_t epoch = 0; epoch < 4; ++epoch)
    EXPECT_FALSE(JudgeEpoch(config, undefined, epoch, 10, &result));
  EXPECT_FALSE(result.has_best());
  EXPECT_FALSE(result.stopped_early());
  EXPECT_TRUE(JudgeEpoch(config, OfAuc(0.6), 4, 50, &result));
  EXPECT_FALSE(JudgeEpoch(config, OfAuc(0.55), 5, 60, &result));
  EXPECT_FALSE(JudgeEpoch(config, undefined, 6, 70, &result));
  EXPECT_FALSE(result.stopped_early());
  EXPECT_FALSE(JudgeEpoch(config, OfAuc(0.55), 7, 80, &result));
  EXPECT_TRUE(result.stopped_early());
  EXPECT_EQ(result.best().epoch(), 5u);
  EXPECT_EQ(result.best().step(), 50u);
}

TEST(EpochJudgeTest, WithoutTheRuleNothingStops) {
  JobConfig config;
  config.mutable_train()->set_epochs(9);
  JobResult result;
  EXPECT_EQ(StopsAfter(config, {0.1, 0.2, 0.3, 0.4, 0.5}, &result), 0u);
  EXPECT_FALSE(MayStopNext(config, result));
  EXPECT_FALSE(result.has_early_stop());
  EXPECT_EQ(result.best().epoch(), 1u);
}

// The result in a checkpoint is all that a judgement knows of earlier ones.
TEST(EpochJudgeTest, AJobThatGoesBackJudgesAsOneThatNeverStopped) {
  const JobConfig config = JudgedConfig(9, 3);
  JobResult result, kept;
  const std::vector<double> losses = {0.5, 0.4, 0.45, 0.46, 0.3, 0.31, 0.32, 0.33};
  for (uint32_t epoch = 0; epoch < 3; ++epoch)
    JudgeEpoch(config, OfLogLoss(losses[epoch]), epoch, 10, &result);
  kept = result;
  // Epoch 4 of a run that was lost was better than any.
  JudgeEpoch(config, OfLogLoss(0.1), 3, 10, &result);
  result = kept;
  AdaptJudgements(config, &result);
  for (uint32_t epoch = 3; epoch < losses.size(); ++epoch) {
    JudgeEpoch(config, OfLogLoss(losses[epoch]), epoch, 10, &result);
    EXPECT_EQ(result.stopped_early(), epoch == 7) << epoch;
  }
  EXPECT_EQ(result.best().epoch(), 5u);
}

TEST(EpochJudgeTest, AResumedJobForgetsWhatItCannotUse) {
  JobConfig config = JudgedConfig(9, 3);
  JobResult result;
  JudgeEpoch(config, OfLogLoss(0.5), 0, 10, &result);
  JobResult same = result;
  AdaptJudgements(config, &same);
  EXPECT_EQ(same.SerializeAsString(), result.SerializeAsString());
  // It saves the best model from now on, and that of epoch 1 was not saved.
  config.mutable_checkpoint()->set_save(CheckpointConfig::BEST);
  config.mutable_train()->mutable_early_stop()->set_metric(EarlyStop::AUC);
  AdaptJudgements(config, &result);
  EXPECT_FALSE(result.has_best());
  EXPECT_FALSE(result.has_early_stop());
}

}  // namespace
}  // namespace sluice
