#include "scheduler/job/job_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace sluice {
namespace {

const absl::Time kJobResultsStart = absl::UnixEpoch();

JobConfig JobResultsConfig(bool a_sync) {
  JobConfig config;
  config.mutable_strategy()->set_a_sync(a_sync);
  return config;
}

TrainReport JobResultsReport(uint64_t examples, double loss_sum, uint64_t bad_lines) {
  TrainReport report;
  report.set_examples(examples);
  report.set_weight_sum(static_cast<double>(examples));
  report.set_loss_sum(loss_sum);
  report.set_steps(2);
  report.set_bad_lines(bad_lines);
  report.set_dropped(1);
  report.mutable_stages()->set_read(static_cast<double>(examples));
  return report;
}

TEST(JobResultsTest, SumsOverRanksAndEpochs) {
  const JobConfig config = JobResultsConfig(true);
  JobResults results(config, 2);
  for (const uint32_t epoch : {0, 1}) {
    results.BeginTrain(kJobResultsStart + absl::Seconds(10) * epoch);
    ASSERT_TRUE(results.AddTrain(0, JobResultsReport(30, 15, 1)).ok());
    ASSERT_TRUE(results.AddTrain(1, JobResultsReport(10, 25, 2)).ok());
    results.EndTrain(epoch, 0, kJobResultsStart + absl::Seconds(10) * epoch + absl::Seconds(2));
  }
  const JobResult& result = results.result();
  EXPECT_EQ(results.epochs()[0].epoch(), 1u);
  EXPECT_EQ(results.epochs()[1].epoch(), 2u);
  EXPECT_EQ(result.epochs(), 2u);
  EXPECT_EQ(results.epochs()[1].examples(), 40u);
  EXPECT_EQ(results.epochs()[1].loss(), 1.0);
  EXPECT_EQ(result.seconds(), 4.0);
  EXPECT_EQ(result.examples(), 80u);
  EXPECT_EQ(result.examples_per_second(), 20.0);
  EXPECT_EQ(result.global_step(), 8u);  // async: every worker's step counts
  EXPECT_EQ(result.bad_lines(), 3u);    // only one pass counts
  EXPECT_EQ(result.examples_dropped(), 4u);
  EXPECT_EQ(result.stages().read(), 20.0);  // mean over workers
}

TEST(JobResultsTest, TheLossHasTheSameBitsInWhateverOrderTheRanksReport) {
  const JobConfig config = JobResultsConfig(false);
  const double sums[] = {0.1, 0.2, 0.3};
  ASSERT_NE((sums[0] + sums[1]) + sums[2], (sums[2] + sums[1]) + sums[0]);
  for (const std::vector<uint32_t>& order :
       {std::vector<uint32_t>{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
    JobResults results(config, 3);
    for (const uint32_t epoch : {0, 1}) {
      results.BeginTrain(kJobResultsStart);
      for (const uint32_t rank : order)
        ASSERT_TRUE(results.AddTrain(rank, JobResultsReport(1, sums[rank], 0)).ok());
      EXPECT_EQ(results.EndTrain(epoch, 0, kJobResultsStart).loss(),
                ((sums[0] + sums[1]) + sums[2]) / 3.0);
    }
  }
}

TEST(JobResultsTest, HotRowsAreSummedWhenThereIsACache) {
  const JobConfig config = JobResultsConfig(true);
  JobResults results(config, 2);
  results.BeginTrain(kJobResultsStart);
  TrainReport report = JobResultsReport(30, 15, 0);
  ASSERT_TRUE(results.AddTrain(0, report).ok());
  EXPECT_FALSE(results.result().has_hot_rows());
  report.mutable_hot_rows()->set_hits(5);
  report.mutable_hot_rows()->set_staleness_max(3);
  ASSERT_TRUE(results.AddTrain(0, report).ok());
  report.mutable_hot_rows()->set_staleness_max(2);
  ASSERT_TRUE(results.AddTrain(1, report).ok());
  EXPECT_EQ(results.result().hot_rows().hits(), 10u);
  EXPECT_EQ(results.result().hot_rows().staleness_max(), 3u);
}

TEST(JobResultsTest, SyncCountsGlobalSteps) {
  const JobConfig config = JobResultsConfig(false);
  JobResults results(config, 2);
  results.BeginTrain(kJobResultsStart);
  ASSERT_TRUE(results.AddTrain(0, JobResultsReport(30, 15, 0)).ok());
  ASSERT_TRUE(results.AddTrain(1, JobResultsReport(10, 25, 0)).ok());
  results.EndTrain(0, 7, kJobResultsStart + absl::Seconds(1));
  EXPECT_EQ(results.result().global_step(), 7u);
}

TEST(JobResultsTest, TooManyBadLinesAreAnError) {
  JobConfig config = JobResultsConfig(false);
  config.mutable_data()->set_max_bad_lines(2);
  JobResults results(config, 1);
  IndexReport report;
  report.set_bad_lines(2);
  report.add_first_bad_lines("a.csv:3: no label");
  report.add_first_bad_lines("a.csv:4: no weight");
  results.AddBadLines(BadLinesOf(report));
  EXPECT_TRUE(results.CheckBadLines().ok());
  results.AddBadLines(BadLinesOf(report));
  EXPECT_TRUE(absl::IsFailedPrecondition(results.CheckBadLines()));
  EXPECT_THAT(std::string(results.CheckBadLines().message()),
              testing::HasSubstr("4 malformed lines, such as a.csv:3: no label; a.csv:4: "));
  EXPECT_EQ(results.result().bad_lines(), 4u);
}

TEST(JobResultsTest, EachEpochKeepsItsEvaluationAndTheResultHasTheLast) {
  const JobConfig config = JobResultsConfig(true);
  JobResults results(config, 1);
  EvalAccumulator sums;
  sums.Add(4.0f, 1.0f, 1.0f);
  sums.Add(-4.0f, 0.0f, 1.0f);
  results.BeginTrain(kJobResultsStart);
  ASSERT_TRUE(results.AddTrain(0, JobResultsReport(2, 1, 0)).ok());
  results.EndTrain(0, 0, kJobResultsStart + absl::Seconds(1));
  results.BeginEval();
  ASSERT_TRUE(results.AddEval(0, sums.ToProto(), DataSummary()).ok());
  EXPECT_EQ(results.EndEval(0).auc(), 1.0);
  EXPECT_EQ(results.epochs()[0].eval().examples(), 2u);
  EXPECT_EQ(results.result().eval().accuracy(), 1.0);
}

void AddUser(const std::string& name, double sum, double weight, EvalSums* sums) {
  NamedSum* const user = sums->add_user();
  user->set_name(name);
  user->set_sum(sum);
  user->set_weight(weight);
}

TEST(JobResultsTest, MetricsOfTheProgramAreSummedInTheOrderOfTheRanks) {
  const JobConfig config = JobResultsConfig(true);
  const double by_rank[] = {1e16, 1, -1e16, 2};
  for (const std::vector<uint32_t>& order :
       {std::vector<uint32_t>{0, 1, 2, 3}, std::vector<uint32_t>{3, 2, 0, 1}}) {
    JobResults results(config, 4);
    results.BeginEval();
    for (const uint32_t rank : order) {
      EvalSums sums;
      AddUser("ndcg", by_rank[rank], 1, &sums);
      if (rank > 0) AddUser("of_some", 3, rank, &sums);
      ASSERT_TRUE(results.AddEval(rank, sums, DataSummary()).ok());
    }
    const EvalMetrics& eval = results.EndEval(0);
    ASSERT_EQ(eval.user_size(), 2);
    EXPECT_EQ(eval.user(0).name(), "ndcg");
    EXPECT_EQ(eval.user(0).value(), 0.5);  // 1e16 + 1 is 1e16
    EXPECT_EQ(eval.user(1).value(), 1.5);
    // The next evaluation begins anew.
    results.BeginEval();
    EXPECT_EQ(results.EndEval(1).user_size(), 0);
  }
}

TEST(JobResultsTest, AMetricOfTheProgramThatIsUndefinedIsNaNAndNamedWhenItsSumIs) {
  const JobConfig config = JobResultsConfig(true);
  JobResults results(config, 1);
  results.BeginEval();
  EvalSums sums;
  AddUser("weightless", 3, 0, &sums);
  AddUser("diverged", std::nan(""), 1, &sums);
  ASSERT_TRUE(results.AddEval(0, sums, DataSummary()).ok());
  const EvalMetrics& eval = results.EndEval(0);
  EXPECT_TRUE(std::isnan(eval.user(0).value()));
  EXPECT_TRUE(std::isnan(eval.user(1).value()));
  std::vector<std::string> about;
  for (const std::string& warning : results.result().warnings()) {
    if (warning.find("of the program") != std::string::npos) about.push_back(warning);
  }
  EXPECT_THAT(about, testing::ElementsAre("evaluation: the metric 'diverged' of the program is NaN "
                                          "for some examples, so it is not defined"));
}

// A job with a vocabulary of two values, and label values.
JobConfig SummarizedConfig() {
  JobConfig config = JobResultsConfig(true);
  Feature* feature = config.add_features();
  feature->set_name("sex");
  feature->mutable_categorical()->add_vocabulary("f");
  feature->mutable_categorical()->add_vocabulary("m");
  config.mutable_data()->mutable_label()->add_positive("yes");
  config.mutable_data()->mutable_label()->add_negative("no");
  config.mutable_data()->add_eval_files("e");
  return config;
}

DataSummary SummaryHeld(uint64_t examples, const std::string& labels, const std::string& sex) {
  DataSummary summary;
  summary.set_examples(examples);
  summary.set_positive(1);
  summary.set_label_values_seen(labels);
  summary.add_features()->set_vocabulary_seen(sex);
  return summary;
}

TEST(JobResultsTest, TheRanksSummariesAddUpAndWarnOnce) {
  const JobConfig config = SummarizedConfig();
  JobResults results(config, 2);
  for (const uint32_t epoch : {0, 1}) {
    results.BeginTrain(kJobResultsStart);
    TrainReport left = JobResultsReport(30, 15, 0), right = JobResultsReport(10, 25, 0);
    if (epoch == 0) {
      *left.mutable_summary() = SummaryHeld(30, "\x01", "\x01");
      *right.mutable_summary() = SummaryHeld(10, "", "");
    }
    ASSERT_TRUE(results.AddTrain(0, left).ok());
    ASSERT_TRUE(results.AddTrain(1, right).ok());
    results.EndTrain(epoch, 0, kJobResultsStart + absl::Seconds(1));
    EXPECT_EQ(results.result().data().examples(), 40u);
    EXPECT_EQ(results.result().data().positive(), 2u);
    EvalAccumulator sums;
    sums.Add(4.0f, 1.0f, 1.0f);
    results.BeginEval();
    ASSERT_TRUE(results.AddEval(0, sums.ToProto(), SummaryHeld(1, "", "")).ok());
    EXPECT_FALSE(results.EndEval(epoch).has_auc());
    EXPECT_THAT(results.result().warnings(),
                testing::ElementsAre(
                    testing::HasSubstr("\"m\""),
                    testing::AllOf(testing::HasSubstr("evaluation"), testing::HasSubstr("label 0")),
                    testing::HasSubstr("data.label.negative: the value \"no\"")));
  }
}

TEST(JobResultsTest, ALabelValueFoundOnlyInTheEvaluationDataIsFine) {
  const JobConfig config = SummarizedConfig();
  JobResults results(config, 1);
  results.BeginTrain(kJobResultsStart);
  TrainReport report = JobResultsReport(30, 15, 0);
  *report.mutable_summary() = SummaryHeld(30, "\x01", "\x03");
  ASSERT_TRUE(results.AddTrain(0, report).ok());
  results.EndTrain(0, 0, kJobResultsStart + absl::Seconds(1));
  EvalAccumulator sums;
  sums.Add(4.0f, 1.0f, 1.0f);
  sums.Add(-4.0f, 0.0f, 1.0f);
  results.BeginEval();
  ASSERT_TRUE(results.AddEval(0, sums.ToProto(), SummaryHeld(2, "\x02", "")).ok());
  EXPECT_TRUE(results.EndEval(0).has_auc());
  EXPECT_TRUE(results.result().warnings().empty());
}

TEST(JobResultsTest, TheTrainingLossOfAProgramIsItsOwn) {
  JobConfig config;
  config.mutable_model()->mutable_program();
  JobResult result;
  result.add_epochs_log()->set_loss(837);  // a squared error
  EXPECT_TRUE(WarningsOfOutcome(config, result).empty());
  result.mutable_eval()->set_examples(10);
  result.mutable_eval()->set_log_loss(67.2);
  EXPECT_THAT(WarningsOfOutcome(config, result), testing::ElementsAre(testing::HasSubstr("67.2")));
}

TEST(JobResultsTest, AModelThatIsOfNoUseIsSaidAtTheEnd) {
  const JobConfig config;
  JobResult result;
  EXPECT_TRUE(WarningsOfOutcome(config, result).empty());
  EpochResult* const epoch = result.add_epochs_log();
  epoch->set_loss(0.69);
  result.mutable_data()->set_examples(10);
  result.mutable_data()->set_positive(3);
  EXPECT_TRUE(WarningsOfOutcome(config, result).empty());
  for (const double loss : {3.7e35, 67.2}) {
    epoch->set_loss(loss);
    EXPECT_THAT(WarningsOfOutcome(config, result),
                testing::ElementsAre(testing::HasSubstr(loss > 1000 ? "3.7e+35" : "67.2")));
  }
  // The evaluation says more than the training.
  result.mutable_eval()->set_examples(10);
  result.mutable_eval()->set_log_loss(0.5);
  EXPECT_TRUE(WarningsOfOutcome(config, result).empty());
  // An earlier epoch was good: then there are other ways out, or its model is the one that is kept.
  JobConfig keeps_best = config;
  keeps_best.mutable_checkpoint()->set_save(CheckpointConfig::BEST);
  result.mutable_eval()->set_log_loss(1.1);
  EXPECT_THAT(WarningsOfOutcome(config, result),
              testing::ElementsAre(testing::HasSubstr("no use")));
  result.mutable_best()->set_epoch(4);
  result.mutable_best()->mutable_eval()->set_examples(10);
  result.mutable_best()->mutable_eval()->set_log_loss(0.29);
  EXPECT_THAT(WarningsOfOutcome(config, result),
              testing::ElementsAre(testing::HasSubstr("0.29 after epoch 4")));
  EXPECT_TRUE(WarningsOfOutcome(keeps_best, result).empty());
  result.clear_best();
  result.mutable_eval()->set_log_loss(std::nan(""));
  result.mutable_eval()->set_auc_undefined("no example has a weight above 0");
  EXPECT_THAT(WarningsOfOutcome(config, result),
              testing::ElementsAre(testing::HasSubstr("no example has a weight above 0")));
  result.clear_eval();
  epoch->set_loss(1e-9);
  for (const uint64_t positive : {0, 10}) {
    result.mutable_data()->set_positive(positive);
    EXPECT_THAT(WarningsOfOutcome(config, result),
                testing::ElementsAre(testing::HasSubstr(positive == 0 ? "label 1" : "label 0")));
  }
}

TEST(JobResultsTest, AnImpossibleSummaryIsRefused) {
  const JobConfig config = SummarizedConfig();
  JobResults results(config, 1);
  results.BeginTrain(kJobResultsStart);
  TrainReport report = JobResultsReport(30, 15, 0);
  *report.mutable_summary() = SummaryHeld(30, "", "too long");
  EXPECT_TRUE(absl::IsInvalidArgument(results.AddTrain(0, report)));
  EXPECT_EQ(results.result().data().examples(), 0u);
  results.BeginEval();
  EXPECT_TRUE(absl::IsInvalidArgument(
      results.AddEval(0, EvalAccumulator().ToProto(), SummaryHeld(30, "too long", ""))));
}

TEST(JobResultsTest, ImpossibleSumsAreRefused) {
  const JobConfig config = JobResultsConfig(true);
  JobResults results(config, 1);
  results.BeginEval();
  EvalSums sums;
  sums.add_positive_bin_delta(1u << 30);
  sums.add_positive_weight(1);
  EXPECT_TRUE(absl::IsInvalidArgument(results.AddEval(0, sums, DataSummary())));
}

}  // namespace
}  // namespace sluice
