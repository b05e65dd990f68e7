#include "cli/screen/status_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(StatusTextTest, NamesFromPeersNeitherCommandTheTerminalNorForgeLines) {
  const std::string evil = "\x1B]0;t\x07\nFORGED\xC2\x9B\xE2\x80\xAE";
  ClusterStatus status;
  MemberStatus* const member = status.add_members();
  member->set_host(evil);
  member->set_device(evil);
  member->set_doing(evil);
  JobStatus* const job = status.add_jobs();
  job->set_job_id("job-1");
  job->set_message(evil);
  job->add_warnings(evil);
  const std::string text = StatusText(status);
  EXPECT_THAT(text, HasSubstr("FORGED"));
  EXPECT_THAT(text, Not(HasSubstr("\nFORGED")));
  for (const char* command : {"\x1B", "\x07", "\xC2\x9B", "\xE2\x80\xAE"})
    EXPECT_THAT(text, Not(HasSubstr(command)));
}

TEST(StatusTextTest, TablesSumUsedAndReservedMemoryOverAllPservers) {
  ClusterStatus status;
  JobStatus* job = status.add_jobs();
  job->set_job_id("job-1");
  job->set_state(JOB_RUNNING);
  for (int i = 0; i < 2; ++i) {
    MemberStatus* pserver = status.add_members();
    pserver->set_role(ROLE_PSERVER);
    HostedJob* hosted = pserver->add_hosted();
    hosted->set_job_id("job-1");
    TableStatus* table = hosted->add_tables();
    table->set_name("emb");
    table->set_kind(TableConfig::SPARSE);
    table->set_shards(4);
    table->set_rows(1000);
    table->set_bytes(512 << 10);
    table->set_reserved_bytes(2 << 20);
  }
  EXPECT_THAT(
      StatusText(status),
      ContainsRegex("table emb +sparse +8 shards +2,000 rows +1.0 MiB, 4.0 MiB reserved\n"));
  EXPECT_THAT(StatusText(status), Not(HasSubstr("evicted")));
  for (MemberStatus& pserver : *status.mutable_members()) {
    TableStatus* const table = pserver.mutable_hosted(0)->mutable_tables(0);
    table->set_row_limit(2500);
    table->mutable_turnover()->set_evicted(30);
  }
  EXPECT_THAT(StatusText(status), HasSubstr("emb: 2,000 of at most 5,000 rows, 60 evicted\n"));
}

ClusterStatus Stalled() {
  ClusterStatus status;
  status.mutable_scheduler()->set_role(ROLE_SCHEDULER);
  status.mutable_scheduler()->set_alive(true);
  status.mutable_scheduler()->set_address("127.0.0.1:35877");
  status.mutable_scheduler()->set_admin_address("127.0.0.1:40001");
  JobStatus* job = status.add_jobs();
  job->set_job_id("job-1");
  job->set_state(JOB_RUNNING);
  job->set_epochs(100000);
  job->set_epoch(7);
  job->set_phase("train");
  for (int rank = 0; rank < 4; ++rank) {
    MemberStatus* member = status.add_members();
    member->set_role(ROLE_WORKER);
    member->set_rank(rank);
    member->set_host("a-host-with-a-name");
    member->set_pid(4194304);
    member->set_memory_bytes(123456789);
    member->set_admin_address("127.0.0.1:42057");
    member->set_device("cpu");
    member->set_job_id("job-1");
    member->set_job_rank(rank);
    member->set_alive(true);
    WorkerProgress* worker = job->add_workers();
    worker->set_rank(rank);
    worker->set_step(800 + rank);
    worker->set_loss(0.3);
    worker->set_doing(absl::StrCat("waiting for pull for step ", 801 + rank,
                                   " from pserver 0 (not connected: UNAVAILABLE: no answer (it is "
                                   "lost)) for 38.3 s, gives up in 81 s"));
    member->set_doing(worker->doing());
    HostedJob* hosted = status.add_members()->add_hosted();
    hosted->set_job_id("job-1");
    for (const char* name : {"deep/0/bias", "deep/0/weight"}) {
      TableStatus* table = hosted->add_tables();
      table->set_name(name);
      table->set_kind(TableConfig::DENSE);
      table->set_rows(1000);
    }
  }
  return status;
}

size_t Count(const std::string& text, const std::string& part) {
  return absl::StrSplit(text, part).end() == absl::StrSplit(text, part).begin()
             ? 0
             : std::vector<std::string>(absl::StrSplit(text, part)).size() - 1;
}

TEST(StatusTextTest, AnErrorOfManyWorkersIsSaidOnceAndEachSaysWhenItGivesUp) {
  const std::string text = StatusText(Stalled());
  EXPECT_EQ(Count(text, "UNAVAILABLE"), 1u) << text;
  EXPECT_EQ(Count(text, "gives up in 81 s"), 4u) << text;
  EXPECT_THAT(text, AllOf(Not(HasSubstr("ETA")), Not(ContainsRegex("[0-9] examples/s"))));
}

TEST(StatusTextTest, MembersFitEightyColumnsAndTheSchedulerComesFirst) {
  const std::string text = StatusText(Stalled());
  const std::string members = text.substr(0, text.find("\njobs"));
  for (const absl::string_view line : absl::StrSplit(members, '\n')) {
    // What follows breaks between words.
    if (line.find("MiB") != absl::string_view::npos) {
      EXPECT_LE(line.find("MiB") + 3, 80u) << line;
    }
  }
  EXPECT_THAT(members, ContainsRegex("role .*\n  scheduler +0 +alive +127.0.0.1:35877 +:40001 "));
}

TEST(StatusTextTest, AJobAloneHasEachOfItsDenseTables) {
  EXPECT_THAT(StatusText(Stalled()), HasSubstr("2 tables"));
  const std::string job = StatusOfJob(Stalled(), "job-1");
  EXPECT_THAT(job, AllOf(HasSubstr("table deep/0/bias"), HasSubstr("table deep/0/weight"),
                         Not(HasSubstr("members"))));
  EXPECT_EQ(StatusOfJob(Stalled(), "job-2"), "");
}

TEST(StatusTextTest, OnlyATerminalGetsColours) {
  ClusterStatus status = Stalled();
  status.mutable_members(0)->set_alive(false);
  EXPECT_THAT(StatusText(status), Not(HasSubstr("\x1b")));
  EXPECT_THAT(StatusText(status, /*colours=*/true), ContainsRegex("\x1b.31m.*DEAD.*\x1b.0m\n"));
}

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
  EpochRows rows;
  std::string text;
  for (size_t i = 0; i < epochs.size(); ++i) {
    EpochResult epoch = epochs[i];
    epoch.set_epoch(i + 1);
    text += rows.Next(epoch);
  }
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
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
    ExpectAligned(LinesOf({slow, Epoch(examples), Epoch(1)}));
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

TEST(EvalTextTest, ShowsTheStandardErrorAndOnlyALargeBinningError) {
  EvalMetrics eval = Eval();
  EXPECT_THAT(EvalText(eval), AllOf(HasSubstr("AUC 0.91426 (standard error 0.00226)"),
                                    Not(HasSubstr("bins")), Not(HasSubstr("+-"))));
  eval.set_auc_error_bound(0.0003);
  EXPECT_THAT(EvalText(eval), AllOf(HasSubstr("bins"), HasSubstr("3.0e-04")));
  // Without a standard error, the binning error is compared with a fixed limit.
  eval.clear_auc_standard_error();
  EXPECT_THAT(EvalText(eval), AllOf(HasSubstr("bins"), Not(HasSubstr("standard error"))));
  eval.set_auc_error_bound(8.2e-07);
  EXPECT_THAT(EvalText(eval), Not(HasSubstr("bins")));
}

TEST(EpochTableTest, MetricsOfTheProgramFollowInLinesThatFit) {
  EpochResult epoch = Epoch(32561);
  for (int i = 0; i < 7; ++i) {
    NamedValue* const metric = epoch.mutable_eval()->add_user();
    metric->set_name(absl::StrCat("recall/at-", i));
    metric->set_value(i == 1 ? std::nan("") : 0.5 + i);
  }
  const auto lines = LinesOf({epoch, Epoch(32561)});
  ASSERT_EQ(lines.size(), 6u);  // head, row, three lines, row
  EXPECT_EQ(lines[2], "       recall/at-0 0.50000, recall/at-1 -, recall/at-2 2.50000,");
  for (const std::string& line : lines) EXPECT_LE(line.size(), kTableWidth) << line;
  EXPECT_THAT(EvalText(epoch.eval()), HasSubstr("\n  recall/at-0 0.50000, recall/at-1 -,"));
  // A name has at most 64 characters: it fits.
  epoch.mutable_eval()->mutable_user(0)->set_name(std::string(64, 'n'));
  for (const std::string& line : LinesOf({epoch})) EXPECT_LE(line.size(), kTableWidth) << line;
}

TEST(EvalTextTest, UndefinedAucIsADashWithTheReason) {
  EvalMetrics eval = Eval();
  eval.clear_auc();
  eval.clear_auc_standard_error();
  eval.set_auc_error_bound(1);
  eval.set_auc_undefined("no example has label 1");
  EXPECT_EQ(AucText(eval, 5), "-");
  EXPECT_THAT(EvalText(eval),
              AllOf(HasSubstr("final: AUC - on "), HasSubstr("log loss 0.30226"),
                    Not(HasSubstr("bins")), HasSubstr("undefined: no example has label 1\n")));
  eval.clear_auc_undefined();
  EXPECT_THAT(EvalText(eval), HasSubstr("undefined\n"));
}

class DataTextTest : public testing::Test {
 protected:
  DataTextTest() {
    data_.set_examples(1000);
    data_.set_positive(241);
    for (int i = 0; i < 5; ++i) {
      config_.add_features()->set_name(absl::StrCat("f", i));
      data_.add_features()->set_missing(10 * i);
    }
  }
  DataSummary data_;
  JobConfig config_;
};

TEST_F(DataTextTest, EmptySummaryGivesNoText) { EXPECT_EQ(DataText(DataSummary(), config_), ""); }

TEST_F(DataTextTest, NamesTheFeaturesWithTheMostMissingValues) {
  EXPECT_THAT(DataText(data_, config_),
              AllOf(HasSubstr("24.1%"), HasSubstr("f4 4.0%, f3 3.0%, f2 2.0%, and 1 more"),
                    Not(HasSubstr("f1")), Not(HasSubstr("vocabulary"))));
}

TEST_F(DataTextTest, NamesFeaturesWithUnknownValues) {
  data_.mutable_features(1)->set_out_of_vocabulary(500);
  EXPECT_THAT(DataText(data_, config_), HasSubstr("vocabulary: f1 50.0%\n"));
}

TEST_F(DataTextTest, FeaturesOfAnotherConfigurationAreNotNamed) {
  config_.add_features();
  EXPECT_THAT(DataText(data_, config_), AllOf(HasSubstr("24.1%"), Not(HasSubstr("f4"))));
}

}  // namespace
}  // namespace sluice::cli
