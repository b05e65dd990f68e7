#include "model/predictor.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/output_target.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/saved_model.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "model/built_in_models.h"
#include "model/net/log_loss.h"
#include "model/predict_file.h"
#include "tests/common/base/planted.h"
#include "tests/model/data/files_for_test.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

constexpr char kPredictorJob[] = R"(
  name: "job"
  data { format: CSV csv { header: true } label { column: "label" } }
  features { name: "age" numeric { z_score { mean: 40 stddev: 10 } } }
  features { name: "job" categorical {} }
  features { name: "tags" categorical { multi_value_delimiter: "|" pooling: MEAN } }
  model { wide_deep { hidden_units: [16, 4] embedding_dim: 8 } }
  train { seed: 3 }
)";

// A folder with a saved model of random values, which lacks only the row of "unseen".
class PredictorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "predictor_test_" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(JobText(), &job_));
    auto model = Model::Create(job_, BuiltInModels());
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    Manifest manifest;
    manifest.set_version(kModelVersion);
    manifest.set_job_id("job-1");
    for (const TableConfig& table : model_->tables()) *manifest.add_tables() = table;
    ResolveShards(2, manifest.mutable_tables());
    auto layouts = CreateTableLayouts(manifest.tables(), job_.train().seed());
    ASSERT_TRUE(layouts.ok()) << layouts.status();
    layouts_ = *layouts;
    for (const auto& table : layouts_) SaveTable(*table, &manifest);
    const auto finished = FinishModel(ModelDir(), job_, manifest, Env::Real());
    ASSERT_TRUE(finished.ok()) << finished.status();
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  virtual std::string JobText() const { return kPredictorJob; }
  std::string ModelDir() const { return dir_ + "/model"; }

  // Keys of the words of Line().
  std::vector<uint64_t> Keys() const {
    Batch batch;
    batch.Reset(1, 2);
    for (int i = 0; i < 5; ++i) {
      const std::string word = std::string("w") + std::to_string(i);
      std::vector<std::string_view> values;
      for (const std::string& column : model_->schema()->columns()) {
        values.push_back(column == "age" ? "1" : column == "label" ? "0" : std::string_view(word));
      }
      const bool missing[8] = {};
      EXPECT_TRUE(model_->schema()->AppendExample(values.data(), missing, false, &batch).ok());
    }
    return batch.keys;
  }

  void SaveTable(const TableLayout& table, Manifest* manifest) {
    std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
    const std::vector<uint64_t> keys = Keys();
    for (uint32_t shard = 0; shard < table.num_shards(); ++shard) {
      ShardValues values;
      if (table.sparse()) {
        for (uint64_t key : keys) {
          if (table.ShardOf(key) == shard) values.keys.push_back(key);
        }
        std::sort(values.keys.begin(), values.keys.end());
        values.weights.resize(values.keys.size() * table.dim());
      } else {
        values.first_element = shard * table.block_elements();
        values.weights.resize(table.ShardElements(shard));
      }
      for (float& w : values.weights) w = uniform(random_);
      const auto file = WriteShardFile(ModelDir(), table, shard, values, Env::Real());
      ASSERT_TRUE(file.ok()) << file.status();
      *manifest->add_files() = *file;
    }
  }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << text;
    return dir_ + "/" + name;
  }
  static std::string Read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }

  // Data lines; one in ten is malformed.
  std::string Lines(int n) {
    std::string text;
    for (int i = 0; i < n; ++i) {
      const auto word = [this] { return "w" + std::to_string(random_() % 7); };
      const std::string age = random_() % 10 == 0 ? "old" : std::to_string(random_() % 90);
      text += "0," + age + "," + word() + "," + word() + "|" + word() + "\n";
    }
    return text;
  }

  PredictOptions Options(std::vector<std::string> data_files) const {
    PredictOptions options;
    options.env = Env::Real();
    options.model_dir = ModelDir();
    options.data_files = std::move(data_files);
    options.output_file = dir_ + "/scores";
    options.max_bad_lines = 1000;
    return options;
  }

  // The score that a predictor gives the only example of the batch.
  float Score(const Batch& batch) const {
    auto predictor = Predictor::Load(ModelDir(), BuiltInModels(), Env::Real());
    EXPECT_TRUE(predictor.ok()) << predictor.status();
    auto scorer = (*predictor)->NewScorer(1);
    EXPECT_TRUE(scorer.ok()) << scorer.status();
    float score = 0;
    const absl::Status scored = (*scorer)->Score(batch, &score);
    EXPECT_TRUE(scored.ok()) << scored;
    return score;
  }

  // The same from rows and tensors of the files. Each slot has one key.
  float ScoreByHand(const Batch& batch) const {
    const auto manifest = ReadManifest(ModelDir(), Env::Real());
    EXPECT_TRUE(manifest.ok());
    const auto visit = [&](const std::string& table, const auto& use_shard) {
      const absl::Status visited =
          VisitShards(ModelDir(), *manifest, table, Env::Real(), [&](uint32_t, ShardValues shard) {
            use_shard(shard);
            return absl::OkStatus();
          });
      EXPECT_TRUE(visited.ok()) << visited;
    };
    NetInput input;
    input.batch = &batch;
    std::vector<std::vector<float>> rows(model_->sparse_tables().size()), dense;
    std::vector<uint32_t> row_index;
    input.rows.resize(rows.size());
    for (size_t s = 0; s < batch.num_slots; ++s) {
      const uint32_t t = model_->schema()->slots()[s].table;
      const TableLayout& table = *layouts_[model_->sparse_tables()[t]];
      row_index.push_back(static_cast<uint32_t>(input.rows[t].n++));
      std::vector<float> row(table.dim());
      table.InitialRow(batch.keys[s], row.data());
      visit(table.name(), [&](const ShardValues& shard) {
        for (size_t i = 0; i < shard.keys.size(); ++i) {
          if (shard.keys[i] != batch.keys[s]) continue;
          std::copy_n(shard.weights.begin() + i * table.dim(), table.dim(), row.begin());
        }
      });
      rows[t].insert(rows[t].end(), row.begin(), row.end());
    }
    for (size_t t = 0; t < rows.size(); ++t) input.rows[t].values = rows[t].data();
    for (int t : model_->dense_tables()) {
      std::vector<float> tensor;
      visit(model_->tables()[t].name(), [&](const ShardValues& shard) {
        tensor.insert(tensor.end(), shard.weights.begin(), shard.weights.end());
      });
      dense.push_back(std::move(tensor));
    }
    for (const auto& tensor : dense) input.dense.push_back(tensor.data());
    input.row_index = row_index.data();
    auto net = model_->CreateNet(CpuNet(1, 1));
    EXPECT_TRUE(net.ok()) << net.status();
    float logit = 0;
    const absl::Status computed = (*net)->Forward(input, &logit);
    EXPECT_TRUE(computed.ok()) << computed;
    EXPECT_NE(logit, 0);
    return Sigmoid(logit);
  }

  std::string Predict(const PredictOptions& options, PredictSummary* summary = nullptr) const {
    const auto result = PredictFile(options);
    EXPECT_TRUE(result.ok()) << result.status();
    if (result.ok() && summary != nullptr) *summary = *result;
    return Read(options.output_file);
  }

  std::string dir_;
  JobConfig job_;
  std::unique_ptr<Model> model_;
  TableLayouts layouts_;
  std::mt19937 random_{7};
};

constexpr char kHeader[] = "label,age,job,tags\n";

TEST_F(PredictorTest, OutputDoesNotDependOnTheNumberOfThreads) {
  // Several pieces in one file, and many files of one piece.
  std::vector<std::string> files = {Write("large.csv", kHeader + Lines(200000))};
  uint64_t lines = 200000;
  for (int i = 0; i < 40; ++i, lines += i) {
    files.push_back(Write(absl::StrCat("small", i, ".csv"), kHeader + Lines(i)));
  }
  lines -= 40;
  PredictOptions options = Options(files);
  options.id_column = "job";
  options.max_bad_lines = lines;
  PredictSummary one;
  const std::string expected = Predict(options, &one);
  EXPECT_EQ(std::count(expected.begin(), expected.end(), '\n'), static_cast<int64_t>(lines));
  EXPECT_EQ(one.examples + one.bad.count, lines);
  EXPECT_GT(one.bad.count, 0u);
  for (const int worker_num : {2, 3, 7}) {
    options.worker_num = worker_num;
    options.net_threads = 1 + worker_num % 2;
    uint64_t before = 0, in_order = 1;
    options.progress = [&](uint64_t written) {
      in_order &= written >= before ? 1 : 0;
      before = written;
    };
    PredictSummary summary;
    EXPECT_TRUE(Predict(options, &summary) == expected) << worker_num;
    EXPECT_EQ(in_order, 1u);
    EXPECT_EQ(before, lines);
    EXPECT_EQ(summary.examples, one.examples);
    EXPECT_EQ(summary.bad.count, one.bad.count);
    EXPECT_EQ(summary.bad.first, one.bad.first);
  }
}

TEST_F(PredictorTest, TheEarliestErrorIsReturned) {
  std::vector<std::string> files;
  for (int i = 0; i < 8; ++i) {
    std::string bytes = Gzip(kHeader + Lines(3000));
    if (i == 4 || i == 6) bytes.resize(bytes.size() / 2);
    files.push_back(Write(absl::StrCat("f", i, ".gz"), bytes));
  }
  Write("scores", "before");
  for (const int worker_num : {1, 2, 3, 7}) {
    PredictOptions options = Options(files);
    options.worker_num = worker_num;
    const absl::Status status = PredictFile(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("f4.gz"));
    EXPECT_EQ(Read(dir_ + "/scores"), "before");
    EXPECT_FALSE(std::filesystem::exists(UnfinishedName(options.output_file)));
  }
}

TEST_F(PredictorTest, AFullDiskIsReported) {
  PredictOptions options = Options({Write("a.csv", kHeader + Lines(100000))});
  options.output_file = "/dev/full";
  options.max_bad_lines = 100000;
  for (const int worker_num : {1, 3}) {
    options.worker_num = worker_num;
    const absl::Status status = PredictFile(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("/dev/full"), HasSubstr("space")));
  }
}

TEST_F(PredictorTest, MalformedLinesScoreNanAndAreReported) {
  const std::string data = Write(
      "a.csv", std::string(kHeader) +
                   "0,old,w1,w2\n0,30,w1,w2\n1,40,w1\n0,31,w3,w2\n0,32,w3,w2\n0,,w1,w1\n1,x,w0,\n");
  PredictSummary summary;
  std::istringstream lines(Predict(Options({data}), &summary));
  const bool bad[] = {true, false, true, false, false, false, true};
  std::string line;
  for (bool is_bad : bad) {
    ASSERT_TRUE(std::getline(lines, line));
    if (is_bad) {
      EXPECT_EQ(line, "nan");
    } else {
      EXPECT_TRUE(std::stod(line) > 0 && std::stod(line) < 1) << line;
    }
  }
  EXPECT_FALSE(std::getline(lines, line));
  EXPECT_EQ(summary.examples, 4u);
  EXPECT_EQ(summary.bad.count, 3u);
  ASSERT_FALSE(summary.bad.first.empty());
  EXPECT_THAT(summary.bad.first[0], HasSubstr("a.csv:2"));
}

TEST_F(PredictorTest, LabelColumnMayBeMissing) {
  const std::string with = Write("a.csv", std::string(kHeader) + "1,30,w1,w2\nmaybe,40,w1,w9\n");
  const std::string without = Write("b.csv", "age,job,tags\n30,w1,w2\n40,w1,w9\n");
  PredictSummary summary;
  const std::string scores = Predict(Options({without}), &summary);
  EXPECT_EQ(summary.bad.count, 0u);
  EXPECT_EQ(scores, Predict(Options({with})));
}

// One example whose first key is in no file.
Batch OneExample(uint64_t known_key) {
  Batch batch;
  batch.Reset(1, 2);
  batch.n = 1;
  batch.numeric = {0.5f};
  batch.keys = {987654321, known_key};
  batch.key_offsets = {0, 1, 2};
  return batch;
}

TEST_F(PredictorTest, UnknownKeysHaveTheirInitialRows) {
  const Batch batch = OneExample(Keys()[1]);
  EXPECT_EQ(Score(batch), ScoreByHand(batch));
}

class SeveralTablesPredictorTest : public PredictorTest {
 protected:
  std::string JobText() const override {
    return absl::StrReplaceAll(kPredictorJob,
                               {{"name: \"tags\"", "name: \"tags\" embedding_dim: 3"}});
  }
};

TEST_F(SeveralTablesPredictorTest, EachKeyHasTheRowOfItsTable) {
  ASSERT_EQ(model_->sparse_tables().size(), 2u);
  // Both tables have rows of both keys.
  Batch batch = OneExample(Keys()[1]);
  EXPECT_EQ(Score(batch), ScoreByHand(batch));
  std::swap(batch.keys[0], batch.keys[1]);
  EXPECT_EQ(Score(batch), ScoreByHand(batch));
  batch.keys = {Keys()[0], Keys()[0]};
  EXPECT_EQ(Score(batch), ScoreByHand(batch));
}

TEST_F(SeveralTablesPredictorTest, AScoreDoesNotDependOnTheBatch) {
  const std::string lines = Lines(3000);
  const std::string all = Predict(Options({Write("all.csv", kHeader + lines)}));
  size_t few = 0;
  for (int line = 0; line < 20; ++line) few = lines.find('\n', few) + 1;
  const std::string scores = Predict(Options({Write("few.csv", kHeader + lines.substr(0, few))}));
  EXPECT_EQ(std::count(scores.begin(), scores.end(), '\n'), 20);
  EXPECT_EQ(scores, all.substr(0, scores.size()));
}

TEST_F(PredictorTest, IdsPrecedeTheScoresAlsoForBadLines) {
  const std::string data =
      Write("a.csv", std::string(kHeader) + "1,30,w1,w2\n0,old,w3,w2\n0,30\n1,40,w4,w2\n");
  PredictOptions options = Options({data});
  const std::vector<std::string> scores = absl::StrSplit(Predict(options), '\n');
  options.id_column = "job";
  EXPECT_EQ(Predict(options),
            absl::StrCat("w1\t", scores[0], "\nw3\tnan\n\tnan\nw4\t", scores[3], "\n"));
  options.id_column = "user";
  EXPECT_THAT(std::string(PredictFile(options).status().message()),
              AllOf(HasSubstr("\"user\""), HasSubstr("id_column")));
}

TEST_F(PredictorTest, IdsThatWouldBreakTheLineAreQuoted) {
  const std::string data = Write(
      "a.csv", std::string(kHeader) +
                   "1,30,\"a\nb\",w2\n0,30,a\tb,w2\n0,30,\"say \"\"a\"\"\",w2\n1,30,\"a, b\",w2\n");
  PredictOptions options = Options({data});
  const std::vector<std::string> scores = absl::StrSplit(Predict(options), '\n');
  options.id_column = "job";
  EXPECT_EQ(Predict(options),
            absl::StrCat("\"a\nb\"\t", scores[0], "\n\"a\tb\"\t", scores[1],
                         "\n\"say \"\"a\"\"\"\t", scores[2], "\na, b\t", scores[3], "\n"));
}

TEST_F(PredictorTest, StandardInputIsScoredLikeAFile) {
  const std::string data = Write("a.csv", kHeader + Lines(300));
  PredictSummary of_file, of_input;
  const std::string expected = Predict(Options({data}), &of_file);
  const int saved = dup(STDIN_FILENO), file = open(data.c_str(), O_RDONLY);
  dup2(file, STDIN_FILENO);
  EXPECT_EQ(Predict(Options({"-"}), &of_input), expected);
  dup2(saved, STDIN_FILENO);
  close(saved);
  close(file);
  EXPECT_EQ(of_input.examples, of_file.examples);
  EXPECT_EQ(of_input.bad.count, of_file.bad.count);
  // Malformed lines are reported under the name of the input.
  ASSERT_FALSE(of_file.bad.first.empty());
  EXPECT_EQ(of_input.bad.first[0],
            absl::StrReplaceAll(of_file.bad.first[0], {{data, "standard input"}}));
  EXPECT_EQ(PredictFile(Options({"-", data})).status().code(), absl::StatusCode::kInvalidArgument);
  PredictOptions two = Options({"-"});
  two.worker_num = 2;
  EXPECT_EQ(PredictFile(two).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PredictorTest, AnExistingOutputIsKeptUnlessReplaceIsSet) {
  PredictOptions options = Options({Write("a.csv", std::string(kHeader) + "1,30,w1,w2\n")});
  Write("scores", "before");
  options.replace = false;
  EXPECT_EQ(PredictFile(options).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Read(dir_ + "/scores"), "before");
}

TEST_F(PredictorTest, UnusableScoresLeaveTheOutputUnchanged) {
  Write("scores", "before");
  const std::string none = Write("none.csv", kHeader), empty = Write("empty.csv", ""),
                    words = Write("words.csv", std::string(kHeader) + "0,old,w1,w2\n"),
                    mixed = Write("mixed.csv", std::string(kHeader) + "0,old,w1,w2\n0,3,w1,w2\n");
  for (const std::string& data : {none, empty, words}) {
    EXPECT_EQ(PredictFile(Options({data})).status().code(), absl::StatusCode::kFailedPrecondition)
        << data;
  }
  PredictOptions options = Options({mixed});
  options.max_bad_lines = 0;
  const absl::Status given = PredictFile(options).status();
  EXPECT_EQ(given.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(given.message()), AllOf(HasSubstr("mixed.csv:2"), HasSubstr(" 0;")));
  options.max_bad_lines.reset();  // the job's: none
  EXPECT_EQ(PredictFile(options).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Read(dir_ + "/scores"), "before");
  options.max_bad_lines = 1;
  EXPECT_THAT(Predict(options), HasSubstr("nan\n0."));
  // A single file may have no lines; all files together may not.
  EXPECT_THAT(Predict(Options({none, mixed})), HasSubstr("nan\n0."));
}

TEST_F(PredictorTest, DataThatChangesMeanwhileLeavesTheOutputUnchanged) {
  const std::string text = kHeader + Lines(500), path = dir_ + "/a.csv";
  const auto begin = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  const std::vector<std::function<void()>> changes = {
      [&] { std::filesystem::resize_file(path, text.size() / 2); },
      [&] { Write("a.csv", kHeader + Lines(900)); },
      [&] { Write("a.csv", text); },  // the same size, and another time of change
      [&] {
        Write("new", text);
        std::filesystem::rename(dir_ + "/new", path);
      }};
  Write("scores", "before");
  for (size_t i = 0; i < changes.size(); ++i) {
    Write("a.csv", text);
    std::filesystem::last_write_time(path, begin);
    PredictOptions options = Options({path});
    options.progress = [&](uint64_t) { changes[i](); };
    const absl::Status status = PredictFile(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << i;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    EXPECT_EQ(Read(dir_ + "/scores"), "before");
  }
  // The state counts that FixInput has recorded, however much later the file is read.
  Write("a.csv", text);
  PredictOptions options = Options({path});
  ASSERT_TRUE(FixInput(&options).ok());
  Predict(options);
  std::filesystem::resize_file(path, text.size() - 9);
  options.worker_num = 2;
  EXPECT_EQ(PredictFile(options).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(PredictorTest, AFileThatIsNamedTwiceIsScoredTwice) {
  const std::string a = Write("a.csv", kHeader + Lines(5)), b = Write("b.csv", kHeader + Lines(3));
  const std::string of_a = Predict(Options({a})), of_b = Predict(Options({b}));
  EXPECT_EQ(Predict(Options({b, dir_ + "/?.csv"})), of_b + of_a + of_b);
}

TEST_F(PredictorTest, LinksUnderTheNamesOfUnfinishedScoresAreNotFollowed) {
  const PredictOptions options = Options({Write("a.csv", kHeader + Lines(5))});
  Planted planted(dir_ + "/victim");
  planted.Link(UnfinishedName(options.output_file));
  const absl::Status status = PredictFile(options).status();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(planted.VictimIsUnchanged());
  EXPECT_TRUE(
      std::filesystem::is_regular_file(std::filesystem::symlink_status(options.output_file)));
}

// Files with the names of unfinished scores, and what is left of them after the next prediction.
class UnfinishedScoresTest : public PredictorTest {
 protected:
  void Plant(const std::string& name, const std::string& text = "0.25\nnan\n") {
    Write(name, text);
    planted_.push_back(name);
  }
  // Predicts into `scores` and returns the other files of the folder but the model and the data.
  std::vector<std::string> PredictAndList() {
    Predict(Options({Write("a.csv", std::string(kHeader) + "1,30,w1,w2\n")}));
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_)) {
      const std::string name = entry.path().filename();
      if (name != "scores" && name != "model" && name != "a.csv") names.push_back(name);
    }
    return names;
  }
  // Returns the pid of a process that has ended.
  static std::string Ended() {
    const pid_t pid = fork();
    if (pid == 0) _exit(0);
    waitpid(pid, nullptr, 0);
    return absl::StrCat(pid);
  }

  std::vector<std::string> planted_;
};

TEST_F(UnfinishedScoresTest, FilesOfEndedProcessesAreRemoved) {
  Plant("scores." + Ended() + ".unfinished", "0.25\n1e-07\n0.1234");  // cut off
  Plant("scores." + Ended() + ".unfinished", "");
  Plant("scores." + Ended() + ".unfinished", "u\t1\t0.5\n\tnan\n");
  EXPECT_THAT(PredictAndList(), IsEmpty());
}

TEST_F(UnfinishedScoresTest, APredictionThatFailsRemovesThemToo) {
  const std::string name = "scores." + Ended() + ".unfinished";
  Plant(name);
  const std::string bad = Write("bad.csv", std::string(kHeader) + "1,x,w1,w2\n");
  EXPECT_FALSE(PredictFile(Options({bad})).ok());
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/" + name));
}

TEST_F(UnfinishedScoresTest, AnErrorNamesTheOutput) {
  PredictOptions options = Options({Write("a.csv", std::string(kHeader) + "1,30,w1,w2\n")});
  options.output_file = dir_ + "/none/scores";
  const absl::Status refused = PredictFile(options).status();
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr(options.output_file));
  EXPECT_THAT(std::string(refused.message()), testing::Not(testing::HasSubstr("unfinished")));
}

TEST_F(UnfinishedScoresTest, FilesOfALiveProcessAreKept) {
  Plant(absl::StrCat("scores.", getppid(), ".unfinished"));
  EXPECT_EQ(PredictAndList(), planted_);
}

// The processes of another container are not visible here and seem to have ended.
TEST_F(UnfinishedScoresTest, LockedFilesAreKept) {
  Plant("scores." + Ended() + ".unfinished");
  const int fd = open((dir_ + "/" + planted_[0]).c_str(), O_RDONLY);
  ASSERT_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(PredictAndList(), planted_);
  close(fd);
  EXPECT_THAT(PredictAndList(), IsEmpty());
}

TEST_F(UnfinishedScoresTest, TheFileIsLockedWhileItIsWritten) {
  PredictOptions options = Options({Write("a.csv", kHeader + Lines(5))});
  int seen = 0;
  options.progress = [&](uint64_t) {
    const int fd = open(UnfinishedName(options.output_file).c_str(), O_RDONLY);
    EXPECT_NE(flock(fd, LOCK_EX | LOCK_NB), 0);
    close(fd);
    ++seen;
  };
  Predict(options);
  EXPECT_EQ(seen, 1);
}

TEST_F(UnfinishedScoresTest, ForeignFilesAreKept) {
  const std::string pid = Ended();
  for (const std::string& name :
       {"scores." + pid + ".unfinished.bak", "scores." + pid + "x.unfinished",
        "scores.0" + pid + ".unfinished", "scores." + pid + ".old.unfinished",
        "scores2." + pid + ".unfinished", std::string("scores.unfinished")}) {
    Plant(name);
  }
  Plant("scores." + pid + ".unfinished", "0.5\nmy notes\n");
  const std::string link = "scores." + Ended() + ".unfinished";
  Plant("others");
  std::filesystem::create_symlink("others", dir_ + "/" + link);
  planted_.push_back(link);
  EXPECT_THAT(PredictAndList(), UnorderedElementsAreArray(planted_));
}

TEST_F(PredictorTest, FailuresNameTheCauseAndLeaveTheOutputUnchanged) {
  const std::string data = Write("a.csv", std::string(kHeader) + "1,30,w1,w2\n");
  Write("scores", "before");
  PredictOptions options = Options({dir_ + "/none.csv"});
  EXPECT_THAT(std::string(PredictFile(options).status().message()), HasSubstr("none.csv"));
  options = Options({Write("c.csv", "label,age\n1,2\n")});
  EXPECT_THAT(std::string(PredictFile(options).status().message()), HasSubstr("\"job\""));
  options = Options({data});
  options.model_dir = dir_;
  EXPECT_EQ(PredictFile(options).status().code(), absl::StatusCode::kNotFound);
  options = Options({data});
  options.worker_num = 0;
  EXPECT_EQ(PredictFile(options).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PredictFile(Options({})).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Read(dir_ + "/scores"), "before");
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/scores.unfinished"));
  options = Options({data});
  options.output_file = dir_ + "/no/such/folder";
  EXPECT_THAT(std::string(PredictFile(options).status().message()),
              HasSubstr(dir_ + "/no/such/folder"));
}

TEST_F(PredictorTest, DamagedShardIsRefusedByName) {
  for (const auto& entry : std::filesystem::directory_iterator(ModelDir())) {
    if (entry.path().filename().string().rfind("deep.1.weight", 0) != 0) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-2, std::ios::end);
    file.put('!');
  }
  const absl::Status status = Predictor::Load(ModelDir(), BuiltInModels(), Env::Real()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("deep.1.weight"));
}

TEST_F(PredictorTest, TablesOfAnotherJobAreRefused) {
  // The job file of a model with another embedding_dim.
  std::string text = Read(ModelDir() + "/job.textproto");
  const size_t at = text.find("embedding_dim: 8");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 16, "embedding_dim: 9");
  std::ofstream(ModelDir() + "/job.textproto") << text;
  const absl::Status status = Predictor::Load(ModelDir(), BuiltInModels(), Env::Real()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
}

}  // namespace
}  // namespace sluice
