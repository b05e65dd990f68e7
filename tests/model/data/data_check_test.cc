#include "model/data/data_check.h"

#include <gmock/gmock.h>

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/base/hooked_env.h"
#include "tests/model/data/files_for_test.h"
#include "tests/model/features/schema_for_test.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

class DataCheckTest : public ::testing::Test {
 protected:
  DataCheckTest() {
    job_ = JobForTest(
        "data { format: CSV csv { header: true } label { column: 'y' } } "
        "features { name: 'x' numeric {} } features { name: 'c' categorical {} } "
        "features { name: 'n' numeric {} }");
  }
  // `n` good lines, numbered.
  static std::string Lines(int n) {
    std::string text;
    for (int i = 0; i < n; ++i) absl::StrAppend(&text, i % 2, ",", i, ",a,", i, "\n");
    return text;
  }
  void Train(const std::string& name, const std::string& text) {
    job_.mutable_data()->add_train_files(folder_.Write(name, text));
  }
  DataCheckReport Check(const DataCheckOptions& options = DataCheckOptions()) {
    return CheckData(job_, SchemaForTest(job_), Env::Real(), &clock_, options);
  }

  const TempFolder folder_;
  FakeClock clock_;
  JobConfig job_;
};

constexpr char kHead[] = "y,x,c,n\n";

TEST_F(DataCheckTest, GoodDataHasNoProblems) {
  Train("a", kHead + Lines(20));
  Train("b.gz", Gzip(kHead + Lines(10)));
  const DataCheckReport report = Check();
  EXPECT_THAT(report.errors, IsEmpty());
  EXPECT_THAT(report.warnings, IsEmpty());
  EXPECT_THAT(report.coverage, ElementsAre("data.train_files: 30 lines of 2 of 2 files checked"));
}

TEST_F(DataCheckTest, EachProblemIsToldOnceTheMostFrequentFirst) {
  // A line may have several problems. Training would stop at the first of them.
  std::string text = kHead + Lines(3);
  for (int i = 0; i < 40; ++i) absl::StrAppend(&text, "1,2026-11-0", i % 9 + 1, ",a,1\n");
  Train("a", text + "no,2026-11-01,a,1\n1,1,a,much\n1,1\n");
  job_.mutable_data()->add_eval_files(
      folder_.Write("e", absl::StrCat(kHead, "0,2026-11-02,a,1\n")));
  EXPECT_THAT(Check().errors, ElementsAre(AllOf(HasSubstr("a:5: "), HasSubstr("\"2026-11-01\""),
                                                HasSubstr("(41 of 46 lines)")),
                                          AllOf(HasSubstr("a:45: "), HasSubstr("\"no\"")),
                                          AllOf(HasSubstr("a:46: "), HasSubstr("\"much\"")),
                                          AllOf(HasSubstr("a:47: "), HasSubstr("2 values"))));
}

TEST_F(DataCheckTest, WhatMaxBadLinesAllowsIsAWarning) {
  Train("a", kHead + Lines(10) + "1,x,a,y\n");
  job_.mutable_data()->set_max_bad_lines(1);
  // Two problems in one line.
  EXPECT_THAT(Check().errors, IsEmpty());
  EXPECT_THAT(Check().warnings, SizeIs(2));
  // The limit is for training and evaluation apart.
  job_.mutable_data()->add_eval_files(
      folder_.Write("e", absl::StrCat(kHead, "1,x,a,1\n1,z,a,1\n")));
  EXPECT_THAT(Check().errors,
              ElementsAre(AllOf(StartsWith("data.eval_files: "), HasSubstr("e:2: "))));
}

TEST_F(DataCheckTest, AFileThatLacksAColumnComesFirst) {
  Train("a", kHead + Lines(5) + "2,1,a,1\n");
  for (const char* name : {"b", "c"}) Train(name, "y,c,n\n1,a,1\n");
  EXPECT_THAT(Check().errors,
              ElementsAre(AllOf(HasSubstr("b has no column \"x\""), HasSubstr("(2 of 3 files)")),
                          HasSubstr("a:7: ")));
}

TEST_F(DataCheckTest, FilesThatCannotBeReadAreNamed) {
  Train("a", kHead + Lines(5));
  Train("z.gz", Gzip(kHead + Lines(5)).substr(0, 30));
  EXPECT_THAT(Check().errors, ElementsAre(HasSubstr("z.gz")));
  job_.mutable_data()->add_train_files(folder_.Path("gone"));
  EXPECT_THAT(Check().errors,
              ElementsAre(AllOf(StartsWith("data.train_files: "), HasSubstr("gone"))));
}

TEST_F(DataCheckTest, DataWithoutExamplesIsRefused) {
  Train("a", kHead);
  Train("b", "");
  EXPECT_THAT(Check().errors, ElementsAre(HasSubstr("no examples")));
}

TEST_F(DataCheckTest, OnlyTheBeginningsOfSomeFilesAreRead) {
  DataCheckOptions options;
  options.sampled_files = 3;
  options.opened_files = 5;
  options.lines = 10;
  for (int i = 10; i < 20; ++i) Train(absl::StrCat(i), kHead + Lines(10) + "bad\n");
  const DataCheckReport report = Check(options);
  EXPECT_THAT(report.errors, IsEmpty());
  EXPECT_THAT(report.coverage,
              ElementsAre(AllOf(HasSubstr("30 lines of 3 of 10 files"), HasSubstr("at most 10"),
                                HasSubstr("7 not looked at"), HasSubstr("columns of 2"))));
  // The first and the last are among them.
  for (const char* name : {"10", "19"}) {
    const std::string before = kHead + Lines(10) + "bad\n";
    folder_.Write(name, absl::StrCat(kHead, "bad\n"));
    EXPECT_THAT(Check(options).errors, SizeIs(1)) << name;
    folder_.Write(name, before);
  }
  options.lines = 1000;
  options.bytes = 20;  // of text: the header and a line or two
  EXPECT_THAT(Check(options).errors, IsEmpty());
}

TEST_F(DataCheckTest, AFileThatEndsAtTheBoundIsWhole) {
  DataCheckOptions options;
  options.lines = 10;
  const std::string text = kHead + Lines(10);
  for (const std::string rest : {"", "\n", "\n\n"}) {
    job_.mutable_data()->clear_train_files();
    Train("a", text + rest);
    EXPECT_THAT(Check(options).coverage,
                ElementsAre("data.train_files: 10 lines of 1 of 1 file checked"))
        << rest.size();
  }
  options.lines = 1000;
  folder_.Write("a", text);
  options.bytes = text.size();
  EXPECT_THAT(Check(options).coverage,
              ElementsAre("data.train_files: 10 lines of 1 of 1 file checked"));
  options.lines = 9;
  EXPECT_THAT(Check(options).coverage, ElementsAre(HasSubstr("at most 9")));
}

TEST_F(DataCheckTest, FilesWithoutHeaderAreOpenedToo) {
  job_ = JobForTest(
      "data { format: CSV csv { columns: ['y', 'x'] } label { column: 'y' } } "
      "features { name: 'x' numeric {} }");
  DataCheckOptions options;
  options.sampled_files = 2;
  for (const char* name : {"a", "b", "c"}) Train(name, "1,2\n");
  EXPECT_THAT(Check(options).coverage,
              ElementsAre(AllOf(HasSubstr("1 not looked at, but for the first bytes of 1"))));
  folder_.Write("b", "SQLite format 3" + std::string(1, '\0'));
  EXPECT_THAT(Check(options).errors, ElementsAre(HasSubstr("SQLite")));
}

// Opens nothing, as for a user who may not list a folder.
class ClosedEnv : public HookedEnv {
 public:
  absl::StatusOr<int> OpenFile(const std::string&, int, uint32_t) override {
    return absl::PermissionDeniedError("closed");
  }
};

TEST_F(DataCheckTest, AFolderThatOnlyTheReaderMayListIsLeftOut) {
  Train("a.csv", kHead + Lines(3));
  job_.mutable_data()->set_train_files(0, folder_.Path("*.csv"));
  ClosedEnv env;
  DataCheckOptions options;
  const auto check = [&] { return CheckData(job_, SchemaForTest(job_), &env, &clock_, options); };
  EXPECT_THAT(check().errors, ElementsAre(HasSubstr("closed")));
  options.other_reader = true;
  EXPECT_THAT(check().errors, IsEmpty());
  EXPECT_THAT(check().coverage,
              ElementsAre(AllOf(HasSubstr("not looked at"), HasSubstr("closed"))));
}

TEST_F(DataCheckTest, TheCheckEndsWhenItsTimeIsUp) {
  for (int i = 10; i < 20; ++i) Train(absl::StrCat(i), absl::StrCat(kHead, "bad\n"));
  DataCheckOptions options;
  options.time = absl::ZeroDuration();
  const DataCheckReport report = Check(options);
  EXPECT_THAT(report.errors, IsEmpty());
  EXPECT_THAT(report.coverage, ElementsAre(HasSubstr("10 not looked at")));
}

// Files that are far away: all but the first are opened when `together` of them were asked for.
class FarFilesEnv : public HookedEnv {
 public:
  FarFilesEnv(std::string first, size_t together) : first_(std::move(first)), together_(together) {}
  FilePlace PlaceOf(const std::string&) override { return {"far", false, false, false, false}; }
  absl::StatusOr<std::unique_ptr<FileReader>> NewReader(const std::string& path) override {
    if (path != first_) {
      MutexLock lock(&mutex_);
      asked_.insert(path);
      changed_.NotifyAll();
      while (asked_.size() < together_ && !late_)
        late_ = !changed_.WaitFor(&mutex_, std::chrono::minutes(1));
    }
    return Env::Real()->NewReader(path);
  }
  bool late() {
    MutexLock lock(&mutex_);
    return late_;
  }

 private:
  const std::string first_;
  const size_t together_;
  Mutex mutex_;
  CondVar changed_;
  std::set<std::string> asked_;
  bool late_ = false;
};

TEST_F(DataCheckTest, FilesThatAreFarAwayAreReadSideBySide) {
  Train("a", kHead + Lines(2));
  for (const char* name : {"b", "c", "d", "e"}) Train(name, kHead + Lines(2) + "no,1,a,1\n");
  for (const bool lines : {false, true}) {
    FarFilesEnv env(job_.data().train_files(0), 4);
    DataCheckOptions options;
    (lines ? options.opened_files : options.sampled_files) = 1;
    const DataCheckReport report = CheckData(job_, SchemaForTest(job_), &env, &clock_, options);
    EXPECT_FALSE(env.late());
    if (!lines) continue;
    EXPECT_THAT(report.errors,
                ElementsAre(AllOf(HasSubstr("b:4: "), HasSubstr("(4 of 14 lines)"))));
    EXPECT_THAT(report.coverage, ElementsAre(HasSubstr("14 lines of 5 of 5 files")));
  }
}

TEST_F(DataCheckTest, WeightsThatAreAllZeroAreAnErrorOfDataSeenWhole) {
  job_.mutable_data()->set_weight_column("n");
  job_.mutable_features()->RemoveLast();
  Train("a", absl::StrCat(kHead, "1,2,a,0\n0,3,b,0\n"));
  EXPECT_THAT(Check().errors,
              ElementsAre(AllOf(HasSubstr("2 examples has weight 0"), HasSubstr("\"n\""))));
  DataCheckOptions options;
  options.lines = 1;
  EXPECT_THAT(Check(options).errors, IsEmpty());
  Train("b", absl::StrCat(kHead, "1,2,a,0.5\n"));
  EXPECT_THAT(Check().errors, IsEmpty());
}

TEST_F(DataCheckTest, WeightsBehindLibsvmLabelsHaveNoColumn) {
  job_ = JobForTest("data { format: LIBSVM } features { name: 'x' numeric { column: '1' } }");
  Train("a", "1:0 1:2\n0:0 1:3\n");
  EXPECT_THAT(Check().errors,
              ElementsAre(AllOf(HasSubstr("label:weight"), Not(HasSubstr("weight_column")))));
}

TEST_F(DataCheckTest, EvaluationDataWithoutExamplesIsRefused) {
  Train("a", kHead + Lines(4));
  job_.mutable_data()->add_eval_files(folder_.Write("e", kHead));
  EXPECT_THAT(Check().errors, ElementsAre(AllOf(HasSubstr("data.eval_files"),
                                                HasSubstr("evaluation data has no examples"))));
}

TEST_F(DataCheckTest, OneLabelInDataSeenWholeIsAWarning) {
  Train("a", absl::StrCat(kHead, "0,1,a,1\n0,2,a,1\n"));
  job_.mutable_data()->add_eval_files(folder_.Write("e", absl::StrCat(kHead, "1,1,a,1\n")));
  EXPECT_THAT(Check().errors, IsEmpty());
  EXPECT_THAT(
      Check().warnings,
      ElementsAre(HasSubstr("data.train_files: no example has label 1"),
                  AllOf(HasSubstr("data.eval_files: no example has label 0"), HasSubstr("AUC"))));
  DataCheckOptions options;
  options.lines = 1;
  EXPECT_THAT(Check(options).warnings, ElementsAre(HasSubstr("data.eval_files")));
}

TEST_F(DataCheckTest, OneLabelInManyOfTheLinesIsAWarning) {
  job_.mutable_data()->clear_eval_files();
  const auto lines = [](int n, const char* label) {
    std::string text;
    for (int i = 0; i < n; ++i) absl::StrAppend(&text, label, ",1,a,1\n");
    return text;
  };
  DataCheckOptions options;
  options.lines = 1000;
  Train("a", kHead + lines(1500, "0"));
  EXPECT_THAT(Check(options).warnings,
              ElementsAre(AllOf(HasSubstr("none of the 1000 examples"), HasSubstr("label 1"))));
  job_.mutable_data()->clear_train_files();
  Train("b", kHead + lines(500, "0") + lines(1000, "1"));
  EXPECT_THAT(Check(options).warnings, IsEmpty());
}

TEST_F(DataCheckTest, AHeaderWhereNoneBelongsIsOneProblem) {
  job_ = JobForTest(
      "data { format: CSV csv { columns: ['y', 'x', 'n'] } label { column: 'y' } } "
      "features { name: 'x' numeric {} } features { name: 'n' numeric {} }");
  Train("a", "y,x,n\n1,2,3\n0,2,3\n");
  EXPECT_THAT(Check().errors,
              ElementsAre(AllOf(HasSubstr("a:1: "), HasSubstr("looks like a header"),
                                HasSubstr("csv.header"))));
  // The second line is wrong as well, so the first one is no header.
  folder_.Write("a", "y,x,n\ny,x,n\n0,2,3\n1,2,3\n");
  EXPECT_THAT(Check().errors, SizeIs(3));
  // One wrong number is no header.
  folder_.Write("a", "1,x,3\n1,2,3\n0,2,3\n");
  EXPECT_THAT(Check().errors, ElementsAre(HasSubstr("\"x\"")));
  // Nothing follows.
  folder_.Write("a", "y,x,n\n");
  EXPECT_THAT(Check().errors, SizeIs(3));
}

TEST_F(DataCheckTest, AHeaderIsOneProblemWithVectorsToo) {
  job_ = JobForTest(
      "data { format: CSV csv { columns: ['y', 'x', 'v'] } label { column: 'y' } } "
      "features { name: 'x' numeric {} } "
      "features { name: 'v' numeric { dim: 9 multi_value_delimiter: '|' } }");
  Train("a", "y,x,v\n1,2,1|2|3|4|5|6|7|8|9\n0,2,1|2|3|4|5|6|7|8|9\n");
  EXPECT_THAT(Check().errors, ElementsAre(AllOf(HasSubstr("a:1: "), HasSubstr("header"))));
}

TEST_F(DataCheckTest, AHeaderInCriteoDataNamesTheFormatThatHasOne) {
  job_ = JobForTest(
      "data { format: CRITEO_TSV } features { name: 'I1' numeric {} } "
      "features { name: 'I2' numeric {} }");
  std::string head = "label", line = "1";
  for (int i = 1; i < 40; ++i) {
    absl::StrAppend(&head, "\tc", i);
    absl::StrAppend(&line, "\t", i);
  }
  Train("a", absl::StrCat(head, "\n", line, "\n0", line.substr(1), "\n"));
  EXPECT_THAT(Check().errors, ElementsAre(AllOf(HasSubstr("header"), HasSubstr("TSV"))));
}

TEST_F(DataCheckTest, LibsvmLabelsZeroAndMinusOneDoNotMix) {
  job_ = JobForTest("data { format: LIBSVM } features { name: 'x' numeric { column: '1' } }");
  Train("a", "1 1:2\n-1 1:3\n0 1:3\n");
  EXPECT_THAT(Check().errors, ElementsAre(AllOf(HasSubstr("a:3: "), HasSubstr("line 2"),
                                                HasSubstr("data.label.positive"))));
  job_.mutable_data()->mutable_label()->add_positive("1");
  EXPECT_THAT(Check().errors, IsEmpty());
}

}  // namespace
}  // namespace sluice
