#include "cli/epoch_table.h"

#include <cmath>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

EvalMetrics Eval() {
  EvalMetrics eval;
  eval.set_auc(0.91426);
  eval.set_auc_error_bound(8.2e-07);
  eval.set_auc_standard_error(0.00226);
  eval.set_log_loss(0.30226);
  eval.set_accuracy(0.86064);
  eval.set_mae(0.18755);
  eval.set_rmse(0.31076);
  eval.set_examples(16281);
  return eval;
}

EpochResult Epoch(uint64_t examples) {
  EpochResult epoch;
  epoch.set_epoch(1);
  epoch.set_examples(examples);
  epoch.set_seconds(0.55);
  epoch.set_loss(0.35222);
  *epoch.mutable_eval() = Eval();
  return epoch;
}

std::vector<std::string> LinesOf(const std::vector<EpochResult>& epochs) {
  google::protobuf::RepeatedPtrField<EpochResult> all(epochs.begin(), epochs.end());
  std::vector<std::string> lines = absl::StrSplit(EpochTable(all), '\n');
  EXPECT_EQ(lines.back(), "");
  lines.pop_back();
  return lines;
}

// Returns where the words of a header, or the cells of a row, end.
std::vector<size_t> EndsOf(const std::string& line) {
  std::vector<size_t> ends;
  for (size_t i = 1; i <= line.size(); ++i) {
    // "log loss" is one column.
    if (line[i - 1] != ' ' && (i == line.size() || line[i] == ' ') && line.substr(i, 5) != " loss")
      ends.push_back(i);
  }
  return ends;
}

void ExpectAligned(const std::vector<std::string>& lines) {
  const std::vector<size_t> head = EndsOf(lines[0]);
  ASSERT_EQ(head.size(), 9u) << lines[0];
  for (const std::string& line : lines) {
    EXPECT_LE(line.size(), 80u) << line;
    const std::vector<size_t> ends = EndsOf(line);
    ASSERT_EQ(ends.size(), head.size()) << line;
    for (size_t c = 1; c < ends.size(); ++c) EXPECT_EQ(ends[c], head[c]) << line;
  }
}

TEST(EpochTableTest, FitsEightyColumnsWithAnyNumbers) {
  for (const uint64_t examples :
       {uint64_t{5}, uint64_t{32561}, uint64_t{45'840'617}, uint64_t{4'000'000'000},
        uint64_t{999'999'999'999}, uint64_t{1'000'000'000'000}, UINT64_MAX}) {
    EpochResult slow = Epoch(examples);
    slow.set_seconds(1234567.8);
    slow.set_loss(54321.123456);
    slow.mutable_eval()->set_rmse(1e9);
    ExpectAligned(LinesOf({Epoch(examples), slow, Epoch(1)}));
  }
  const auto many = LinesOf(std::vector<EpochResult>(12'345, Epoch(uint64_t{4'000'000'000})));
  ExpectAligned(many);
  EXPECT_EQ(many[1].substr(0, 6), "1     ");
  EXPECT_EQ(many.back().substr(0, 6), "12345 ");
  EXPECT_THAT(LinesOf({Epoch(4'000'000'000)})[1], HasSubstr(" 4,000,000,000 "));
}

TEST(EpochTableTest, MissingAndNanFiguresKeepTheirColumns) {
  EpochResult without = Epoch(100);
  without.clear_eval();
  EpochResult undefined = Epoch(100);
  undefined.mutable_eval()->clear_auc();
  EpochResult diverged = Epoch(100);
  diverged.set_loss(std::nan(""));
  const auto lines = LinesOf({Epoch(32561), without, undefined, diverged});
  ExpectAligned(lines);
  EXPECT_THAT(lines[1], HasSubstr(" 0.91426 "));
  EXPECT_THAT(lines[2], Not(HasSubstr("0.30226")));
  EXPECT_THAT(lines[3], AllOf(HasSubstr(" - "), HasSubstr("0.30226"), Not(HasSubstr("0.00000"))));
  EXPECT_THAT(lines[4], HasSubstr(" nan "));
}

TEST(EpochTableTest, NoEpochsGiveNoTable) { EXPECT_EQ(EpochTable({}), ""); }

TEST(EvalTextTest, ShowsTheStandardErrorAndOnlyALargeBinningError) {
  EvalMetrics eval = Eval();
  EXPECT_THAT(EvalText(eval), AllOf(HasSubstr("AUC 0.91426 (standard error 0.00226)"),
                                    Not(HasSubstr("bins")), Not(HasSubstr("+-"))));
  eval.set_auc_error_bound(0.0003);
  EXPECT_THAT(EvalText(eval), HasSubstr("bins, and may be off by 3.0e-04"));
  // Without a standard error, the binning error is compared with a fixed limit.
  eval.clear_auc_standard_error();
  EXPECT_THAT(EvalText(eval), AllOf(HasSubstr("bins"), Not(HasSubstr("standard error"))));
  eval.set_auc_error_bound(8.2e-07);
  EXPECT_THAT(EvalText(eval), Not(HasSubstr("bins")));
}

TEST(EvalTextTest, UndefinedAucIsADashWithTheReason) {
  EvalMetrics eval = Eval();
  eval.clear_auc();
  eval.clear_auc_standard_error();
  eval.set_auc_error_bound(1);
  eval.set_auc_undefined("no example has label 1");
  EXPECT_EQ(AucText(eval, 5), "-");
  EXPECT_THAT(
      EvalText(eval),
      AllOf(HasSubstr("final: AUC - on "), HasSubstr("log loss 0.30226"), Not(HasSubstr("bins")),
            HasSubstr("\nnote: the AUC is undefined: no example has label 1\n")));
  eval.clear_auc_undefined();
  EXPECT_THAT(EvalText(eval), HasSubstr("\nnote: the AUC is undefined\n"));
}

}  // namespace
}  // namespace sluice::cli
