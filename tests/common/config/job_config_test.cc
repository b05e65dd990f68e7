#include "common/config/job_config.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "common/config/config_problem.h"
#include "common/config/textproto_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/config/good_job.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

absl::StatusOr<JobConfig> Load(const std::string& file,
                               const std::vector<ConfigOverride>& overrides = {},
                               const std::function<absl::Status(const JobConfig&)>& check = nullptr,
                               const FindColumns& columns = nullptr) {
  return LoadJobConfig(file, overrides, FakeRules(), check, columns);
}

class TempFile {
 public:
  explicit TempFile(const std::string& text) {
    path_ = ::testing::TempDir() + "/job_config_test_" + std::to_string(getpid()) + ".textproto";
    std::ofstream(path_) << text;
  }
  ~TempFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(JobConfigTest, UnknownFieldNamesPlaceSuggestionAndExistingFields) {
  const TempFile file("name: 'x'\ntrain {\n  batchsize: 12\n}\n");
  const absl::Status status = ReadJobConfig(file.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(file.path() + ":3:"), HasSubstr("unknown field 'batchsize'"),
                    HasSubstr("did you mean 'batch_size'?"), HasSubstr("epochs, seed")));
}

TEST(JobConfigTest, UnknownEnumValueListsTheValues) {
  const TempFile file("data { format: CVS }");
  EXPECT_THAT(std::string(ReadJobConfig(file.path()).status().message()),
              AllOf(HasSubstr(":1:"), HasSubstr("'CVS'"), HasSubstr("CSV, TSV, LIBSVM, CRITEO_TSV"),
                    Not(HasSubstr("UNSPECIFIED"))));
}

TEST(JobConfigTest, SyntaxErrorsAndDuplicatesNameTheirPosition) {
  EXPECT_THAT(
      std::string(ReadJobConfig(TempFile("name: 'x'\nname: 'y'").path()).status().message()),
      HasSubstr(":2:"));
  EXPECT_THAT(std::string(ReadJobConfig(TempFile("data {").path()).status().message()),
              HasSubstr(".textproto:1:"));
  JobConfig job;
  std::string bytes;
  for (int i = 0; i < 3000; ++i) bytes += static_cast<char>(i * 7919 >> 3);
  EXPECT_FALSE(ParseTextproto(bytes, "noise", &job, nullptr).ok());
  EXPECT_FALSE(ParseTextproto(std::string(100000, '{'), "deep", &job, nullptr).ok());
}

TEST(JobConfigTest, AWrongValueIsNamedWithItsFieldAndTheChoices) {
  const auto said = [](const std::string& text) {
    JobConfig job;
    const absl::Status status = ParseTextproto(text, "job", &job, nullptr);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    return std::string(status.message());
  };
  const auto no_value = [](const std::string& value, const std::string& field) {
    return HasSubstr("'" + value + "' is not a value of '" + field + "'; give ");
  };
  EXPECT_THAT(said("train {\n\tepochs: many\n}"),
              AllOf(HasSubstr("job:2:"), no_value("many", "epochs"), HasSubstr("whole number")));
  EXPECT_THAT(said("train { epochs: \"3\" }"), no_value("\"3\"", "epochs"));
  EXPECT_THAT(said("train { epochs: -3 }"),
              AllOf(no_value("-3", "epochs"), HasSubstr("not negative")));
  EXPECT_THAT(said("train { epochs: 5000000000 }"),
              AllOf(no_value("5000000000", "epochs"), HasSubstr("smaller")));
  EXPECT_THAT(said("model { wide_deep { hidden_units: [8, x] } }"), no_value("x", "hidden_units"));
  EXPECT_THAT(said("optimizers { all { learning_rate: high } }"),
              AllOf(no_value("high", "learning_rate"), HasSubstr("a number")));
  EXPECT_THAT(said("name: 5"), AllOf(no_value("5", "name"), HasSubstr("in quotes")));
  EXPECT_THAT(said("strategy { a_sync: no }"), no_value("no", "a_sync"));
  EXPECT_THAT(said("strategy { a_sync: 7 }"), no_value("7", "a_sync"));
  EXPECT_THAT(said("strategy { a_sync: \"yes\" }"), no_value("\"yes\"", "a_sync"));
  EXPECT_THAT(said("train { 5 }"), HasSubstr("'5' is not the name of a field"));
  EXPECT_THAT(said("strategy { a_sync true }"), HasSubstr("a ':' is missing after 'a_sync'"));
  EXPECT_THAT(said("data { format: \"CSV\" }"),
              AllOf(no_value("\"CSV\"", "format"), HasSubstr("CSV, TSV")));
  EXPECT_THAT(said("train: 5"), AllOf(no_value("5", "train"), HasSubstr("batch_size")));
  EXPECT_THAT(said("name: 'a' name: 'b'"), HasSubstr("'name' is given a second time"));
  EXPECT_THAT(said("train { epochs: 3"), HasSubstr("'}' is missing"));
  EXPECT_THAT(said("train { epochs: 3 } }"), HasSubstr("closes nothing"));
  EXPECT_THAT(said("data { format: CSV\nfeatures { name: \"a\" }"),
              AllOf(HasSubstr("'features'"), HasSubstr("is a '}' missing above?")));
  EXPECT_THAT(said("features { name: \"a\" numeric { boundaries: [1, 2] } }\n"
                   "model { wide_deep { hidden_units: 100, 50 } }"),
              AllOf(HasSubstr("'50' is not the name of a field"), HasSubstr("in brackets")));
}

TEST(JobConfigTest, MissingFileAndFolderAreNamed) {
  EXPECT_EQ(ReadJobConfig("/no/such/file").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ReadJobConfig("/no/such/file").status().message()),
              HasSubstr("/no/such/file"));
  EXPECT_THAT(std::string(ReadJobConfig(::testing::TempDir()).status().message()),
              HasSubstr("not a folder"));
  EXPECT_TRUE(ReadJobConfig(TempFile("").path()).ok());
}

TEST(JobConfigTest, EveryDefaultIsFilledIn) {
  const auto job = Effective(GoodJob(), "/base");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->version(), 1);
  EXPECT_EQ(job->worker_num(), 1);
  EXPECT_EQ(job->train().batch_size(), 512);
  EXPECT_EQ(job->train().epochs(), 1);
  EXPECT_EQ(job->train().log_every(), 30);
  EXPECT_EQ(job->train().prefetch_batches(), 4);
  EXPECT_EQ(job->train().reader_threads(), 1);
  EXPECT_EQ(job->train().pipeline_depth(), 1);
  EXPECT_EQ(job->train().step_timeout_s(), 60);
  EXPECT_EQ(job->eval().every_epochs(), 1);
  EXPECT_EQ(job->eval().batch_size(), 2048);
  EXPECT_TRUE(job->checkpoint().save_final_model());
  EXPECT_TRUE(job->strategy().a_sync());
  EXPECT_EQ(job->strategy().a_sync_configs().gradients_to_wait(), 1);
  EXPECT_FALSE(job->strategy().a_sync_configs().has_max_staleness());
  EXPECT_FALSE(job->strategy().a_sync_configs().has_geo_cache_rows());
  EXPECT_FALSE(job->strategy().a_sync_configs().has_hot_row_cache());
  EXPECT_TRUE(job->data().shuffle());
  EXPECT_EQ(job->data().csv().delimiter(), ",");
  EXPECT_TRUE(job->data().csv().trim());
  EXPECT_EQ(job->features(0).numeric().column(), "age");
  EXPECT_TRUE(job->features(1).in_deep());
  EXPECT_EQ(job->model().custom().options(), "filled in");
  EXPECT_EQ(job->optimizers().wide().learning_rate(), 0.001f);
  EXPECT_EQ(job->optimizers().wide().adam().beta1(), 0.9f);
}

TEST(JobConfigTest, ARequestedHotRowCacheGetsDefaults) {
  JobConfig asked = GoodJob();
  asked.mutable_strategy()->mutable_a_sync_configs()->mutable_hot_row_cache();
  const auto job = Effective(asked, "/base");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->strategy().a_sync_configs().hot_row_cache().rows(), 1'000'000u);
  EXPECT_EQ(job->strategy().a_sync_configs().hot_row_cache().max_staleness_steps(), 8u);
}

TEST(JobConfigTest, EffectiveIsIdempotentAndReadsBackFromItsText) {
  const auto once = Effective(GoodJob(), "/base");
  ASSERT_TRUE(once.ok());
  const auto twice = Effective(*once, "/elsewhere");
  ASSERT_TRUE(twice.ok());
  EXPECT_EQ(ToTextproto(*once), ToTextproto(*twice));
  JobConfig parsed;
  ASSERT_TRUE(ParseTextproto(ToTextproto(*once), "text", &parsed, nullptr).ok());
  EXPECT_EQ(parsed.SerializeAsString(), once->SerializeAsString());
}

TEST(JobConfigTest, DataPathsAreRelativeToTheJobFileAndOutputToTheCurrentFolder) {
  JobConfig job = GoodJob();
  job.set_output_dir("out/x");
  job.set_trace_file("trace.json");
  job.set_initial_model("/abs/model");
  const auto effective = Effective(job, "/base/configs");
  ASSERT_TRUE(effective.ok());
  EXPECT_THAT(effective->data().train_files(), ElementsAre("/base/configs/train.csv"));
  EXPECT_THAT(effective->data().eval_files(), ElementsAre("/base/configs/eval-*.csv"));
  EXPECT_EQ(effective->initial_model(), "/abs/model");
  EXPECT_EQ(effective->initial_checkpoint(), "");
  EXPECT_EQ(effective->output_dir(), (std::filesystem::current_path() / "out/x").string());
  EXPECT_EQ(effective->trace_file(), (std::filesystem::current_path() / "trace.json").string());
  EXPECT_EQ(Effective(GoodJob(), "/base")->output_dir(), "");
  job.clear_initial_model();
  job.set_initial_checkpoint("out/checkpoints");
  EXPECT_EQ(Effective(job, "/base/configs")->initial_checkpoint(), "/base/configs/out/checkpoints");
}

TEST(JobConfigTest, AFolderOfAStoreHasOneSpelling) {
  JobConfig job = GoodJob();
  for (const char* given : {"s3://b/out", "s3://b/out/", "s3://b/out//"}) {
    job.set_output_dir(given);
    const auto effective = Effective(job, "/base");
    ASSERT_TRUE(effective.ok()) << effective.status();
    EXPECT_EQ(effective->output_dir(), "s3://b/out");
  }
  job.set_output_dir("s3://");  // and not a folder of this host
  EXPECT_THAT(std::string(Effective(job, "/base").status().message()), HasSubstr("s3://BUCKET"));
}

TEST(JobConfigTest, WildcardsInTheFolderOfTheJobFileArePlainCharacters) {
  const auto job = Effective(GoodJob(), "/a[1]/b*");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->data().train_files(0), "/a\\[1\\]/b\\*/train.csv");
  EXPECT_EQ(job->data().eval_files(0), "/a\\[1\\]/b\\*/eval-*.csv");
}

TEST(JobConfigTest, AByteOrderMarkIsSkippedAndTypographicQuotesAreNamed) {
  const auto job = ReadJobConfig(TempFile("\xEF\xBB\xBFname: 'x'").path());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name(), "x");
  const auto error = [](const std::string& text) {
    return std::string(ReadJobConfig(TempFile(text).path()).status().message());
  };
  EXPECT_THAT(error("version: 1\nname: \u201cx\u201d"),
              AllOf(HasSubstr(":2:7: \u201c"), HasSubstr("typographic quote")));
  EXPECT_THAT(error(std::string("\xFF\xFEn\0", 4)), HasSubstr("UTF-16"));
  // In strings and comments they are text.
  EXPECT_TRUE(
      ReadJobConfig(TempFile("data { train_files: \"\u2018a\u2019\" } # \u201c").path()).ok());
}

TEST(JobConfigTest, SyncNeedsALaneForEachWorkerUnlessEachRankHasItsOwnFiles) {
  JobConfig job = GoodJob();
  EXPECT_FALSE(Effective(job, "/base")->data().has_shuffle_lanes());
  job.set_worker_num(65);
  EXPECT_TRUE(Effective(job, "/base").ok());
  job.mutable_strategy()->set_a_sync(false);
  EXPECT_FALSE(Effective(job, "/base").ok());
  job.mutable_data()->set_shuffle_lanes(65);
  EXPECT_EQ(Effective(job, "/base")->data().shuffle_lanes(), 65u);
  EXPECT_EQ(Effective(job, "/base")->data().shuffle_window(), 8192u);
  job.mutable_data()->clear_shuffle_lanes();
  job.mutable_data()->set_assignment(DataConfig::PER_RANK_FILES);
  EXPECT_EQ(Effective(job, "/base")->data().shuffle_lanes(), 64u);
}

TEST(JobConfigTest, TheCacheIsOnWhenThereAreSeveralEpochs) {
  JobConfig job = GoodJob();
  job.mutable_data()->set_cache_dir("cache");
  EXPECT_FALSE(Effective(job, "/base")->data().has_cache());
  EXPECT_EQ(Effective(job, "/base")->data().cache_dir(), "/base/cache");
  job.mutable_train()->set_epochs(2);
  EXPECT_TRUE(Effective(job, "/base")->data().cache());
}

TEST(JobConfigTest, CheckpointsHaveDefaultsWhereTheyAreMade) {
  JobConfig job = GoodJob();
  job.mutable_strategy()->set_a_sync(false);
  job.set_output_dir("/out");
  auto effective = Effective(job, "/base");
  ASSERT_TRUE(effective.ok()) << effective.status();
  EXPECT_EQ(effective->checkpoint().every_s(), 600);
  EXPECT_EQ(effective->checkpoint().keep(), 2);
  EXPECT_TRUE(effective->checkpoint().at_end());
  EXPECT_EQ(CheckpointRoot(*effective), "/out/checkpoints");
  // The same file with another output_dir has checkpoints of its own.
  effective->set_output_dir("/other");
  EXPECT_EQ(CheckpointRoot(*effective), "/other/checkpoints");
  effective->clear_output_dir();
  EXPECT_EQ(CheckpointRoot(*effective), "");
  job.mutable_checkpoint()->set_dir("relative");
  effective = Effective(job, "/base");
  ASSERT_TRUE(effective.ok()) << effective.status();
  EXPECT_EQ(CheckpointRoot(*effective), std::filesystem::current_path().string() + "/relative");

  // The defaults are those of every mode.
  job.mutable_checkpoint()->clear_dir();
  effective = Effective(job, "/base");
  ASSERT_TRUE(effective.ok()) << effective.status();
  effective->mutable_strategy()->set_a_sync(true);
  effective->mutable_strategy()->mutable_a_sync_configs()->set_k_steps(5);
  effective->mutable_data()->clear_shuffle_lanes();
  effective->mutable_data()->clear_shuffle_window();
  const auto geo = Effective(*effective, "/base");
  ASSERT_TRUE(geo.ok()) << geo.status();
  EXPECT_EQ(geo->checkpoint().every_s(), 600);
  EXPECT_EQ(geo->checkpoint().keep(), 2u);
  EXPECT_TRUE(CanCheckpoint(*geo));
}

TEST(JobConfigTest, AJobThatKeepsNoCheckpointMakesNone) {
  JobConfig job = GoodJob();
  job.mutable_checkpoint()->set_keep(0);
  const auto effective = Effective(job, "/base");
  ASSERT_TRUE(effective.ok()) << effective.status();
  EXPECT_FALSE(CanCheckpoint(*effective));
  EXPECT_EQ(effective->checkpoint().every_s(), 0);
  EXPECT_FALSE(effective->checkpoint().at_end());
  EXPECT_TRUE(Effective(*effective, "/base").ok()) << "the effective configuration is accepted";
}

TEST(JobConfigTest, MissingPartsGetNoDefaultsSoThatAnEffectiveJobIsAccepted) {
  JobConfig job = GoodJob();
  job.mutable_data()->clear_eval_files();
  FakeRules rules;
  rules.parts.no_embedding = rules.parts.no_wide = "has no effect";
  const auto once = EffectiveJobConfig(job, "/base", rules);
  ASSERT_TRUE(once.ok()) << once.status();
  EXPECT_TRUE(once->optimizers().has_dense());
  EXPECT_FALSE(once->optimizers().has_wide() || once->optimizers().has_embedding());
  EXPECT_FALSE(once->eval().has_every_epochs() || once->eval().has_batch_size());
  const auto twice = EffectiveJobConfig(*once, "/base", rules);
  ASSERT_TRUE(twice.ok()) << twice.status();
  EXPECT_EQ(ToTextproto(*once), ToTextproto(*twice));
}

TEST(LoadJobConfigTest, ProblemsNameTheLineOfTheFileOrTheFlag) {
  const TempFile file(std::string(kGoodJob) + "train {\n  epochs: 3\n  batch_size: 0\n}\n");
  const std::string message = std::string(Load(file.path()).status().message());
  EXPECT_THAT(message, HasSubstr(file.path() + ":15: train.batch_size: 0"));
  const ConfigOverride flag{"train.batch_size", "0", "--batch_size"};
  EXPECT_THAT(std::string(Load(file.path(), {flag}).status().message()),
              HasSubstr("--batch_size: train.batch_size: 0"));
}

TEST(LoadJobConfigTest, AProblemOfAllOptimizersIsReportedOnce) {
  const TempFile file(std::string(kGoodJob) + "optimizers {\n  all {\n    sgd {}\n  }\n}\n");
  const auto message = [&file](std::vector<ConfigOverride> overrides) {
    return std::string(Load(file.path(), overrides).status().message());
  };
  const ConfigOverride rate{"optimizers.all.learning_rate", "-1", "--set"};
  EXPECT_THAT(message({rate}), AllOf(StartsWith("--set: optimizers.all.learning_rate: "),
                                     HasSubstr("-1"), Not(HasSubstr("\n"))));
  const ConfigOverride whole{"optimizers", "{ all { sgd {} clip_value: -2 } }", "--set"};
  EXPECT_THAT(message({whole}), StartsWith("--set: optimizers.all.clip_value: "));
  // The file's line, and who has set a part of it.
  const ConfigOverride kind{"features[0].numeric.column", "age", "--set"};
  const ConfigOverride empty{"features[0].name", "", "--set"};
  EXPECT_THAT(message({kind, empty}),
              ContainsRegex(":[0-9]+ with --set features.0..name: features.0.: "));
}

TEST(LoadJobConfigTest, ErrorsOfTheCallersCheckNameTheirPlace) {
  const TempFile file(std::string(kGoodJob) + "train {\n  epochs: 3\n}\n");
  const auto message = [&file](absl::Status status, std::vector<ConfigOverride> overrides) {
    const auto job = Load(file.path(), overrides, [&status](const JobConfig&) { return status; });
    EXPECT_EQ(job.status().code(), status.code());
    return std::string(job.status().message());
  };
  const absl::Status bare = absl::InvalidArgumentError("no");
  EXPECT_EQ(message(bare, {}), file.path() + ": no");
  EXPECT_EQ(message(AtField("train.epochs", bare), {}), file.path() + ":14: no");
  EXPECT_EQ(message(AtField("train.epochs", AtField("train", bare)), {}), file.path() + ":13: no");
  EXPECT_EQ(message(AtField("train.epochs", bare), {{"train.epochs", "4", "--epochs"}}),
            "--epochs: no");
}

constexpr char kTwoRanges[] = R"(
data { format: LIBSVM train_files: "t" }
features { name: "{1..3}" numeric {} }
features {
  name: "C{07..12}"
  embedding_dim: 3
  categorical { column: "{7..12}" }
}
model { custom { name: "fake" } }
)";

TEST(LoadJobConfigTest, ProblemsOfAnExpandedFeatureAreReportedOnceWithTheLineInTheFile) {
  const TempFile file(kTwoRanges);
  const std::string message = std::string(Load(file.path()).status().message());
  EXPECT_THAT(message, StartsWith(file.path() + ":6: features[1].embedding_dim: 3"));
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(JobConfigTest, JobsThatAreNotReadFromAFileAlsoHaveTheirRangesExpanded) {
  JobConfig job = GoodJob();
  job.mutable_features(0)->set_name("n{1..3}");
  const auto effective = Effective(job, "/base");
  ASSERT_TRUE(effective.ok()) << effective.status();
  EXPECT_EQ(effective->features_size(), 4);
  EXPECT_EQ(effective->features(2).numeric().column(), "n3");
  job.mutable_features(0)->set_name("n{3..1}");
  EXPECT_THAT(std::string(Effective(job, "/base").status().message()),
              StartsWith("features[0].name: 'n{3..1}'"));
}

TEST(LoadJobConfigTest, ExpandedFeaturesGetTheirDefaults) {
  const TempFile file(kTwoRanges);
  const auto job = Load(file.path(), {{"features[1].embedding_dim", "4", "--set"}}, nullptr);
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_EQ(job->features_size(), 9);
  EXPECT_EQ(job->features(2).numeric().column(), "3");
  EXPECT_EQ(job->features(3).name(), "C07");
  EXPECT_EQ(job->features(8).categorical().column(), "12");
  EXPECT_TRUE(job->features(8).in_wide());
  // A problem of the further checks names the line, too.
  const auto third = [](const JobConfig&) {
    return AtField("features[8].name", absl::InvalidArgumentError("no"));
  };
  EXPECT_EQ(std::string(Load(file.path(), {{"features[1].embedding_dim", "4", "--set"}}, third)
                            .status()
                            .message()),
            file.path() + ":5: no");
}

TEST(LoadJobConfigTest, AWildcardAsksForTheColumnsOfTheResolvedData) {
  std::string text(kGoodJob);
  text += "features { name: 'n_*' numeric {} }";
  const TempFile file(text);
  DataConfig asked;
  const auto columns = [&asked](const DataConfig& data) {
    asked = data;
    return std::vector<std::string>{"y", "n_1", "age", "n_2"};
  };
  const auto job = Load(file.path(), {}, nullptr, columns);
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_EQ(job->features_size(), 4);
  EXPECT_EQ(job->features(3).numeric().column(), "n_2");
  EXPECT_EQ(asked.train_files(0)[0], '/');
  EXPECT_EQ(asked.csv().delimiter(), ",");
  const auto none = [](const DataConfig&) { return std::vector<std::string>{"y", "age", "job"}; };
  EXPECT_THAT(std::string(Load(file.path(), {}, nullptr, none).status().message()),
              StartsWith(file.path() + ":13: features[2].name: 'n_*'"));
  EXPECT_THAT(std::string(Load(file.path()).status().message()), HasSubstr("{1..59}"));
  // The error is about the data, which does not name its columns, and not about the wildcard.
  const auto unknown = [](const DataConfig&) { return std::vector<std::string>(); };
  EXPECT_THAT(
      std::string(Load(file.path(), {{"data.csv.header", "false", "--set"}}, nullptr, unknown)
                      .status()
                      .message()),
      AllOf(HasSubstr("data.csv: "), Not(HasSubstr("n_*"))));
}

TEST(LoadJobConfigTest, NamelessJobIsNamedAfterItsFile) {
  std::string text(kGoodJob);
  text.erase(text.find("name: \"good\""), 12);
  const TempFile file(text);
  const auto job = Load(file.path());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name(), std::filesystem::path(file.path()).stem().string());
  EXPECT_THAT(job->data().train_files(0),
              HasSubstr(std::filesystem::path(file.path()).parent_path().string()));
}

}  // namespace
}  // namespace sluice
