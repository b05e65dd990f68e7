#include "common/saved_model/saved_model.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/sha256.h"
#include "tests/common/saved_model/read_shard_file.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kRows = 3000, kWidth = 101;  // the dense table has two blocks
constexpr uint32_t kDim = 3;

class SavedModelTest : public ::testing::Test {
 protected:
  SavedModelTest() {
    std::string pattern = ::testing::TempDir() + "/saved_model_test.XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    dir_ = root_ + "/model";
    std::mt19937_64 random(5);
    for (int i = 0; i < 500; ++i)
      rows_[random()] = {Weight(&random), Weight(&random), Weight(&random)};
    rows_[0] = {1, 2, 3};
    rows_[~0ull] = {4, 5, 6};
    for (uint64_t i = 0; i < kRows * kWidth; ++i) dense_.push_back(Weight(&random));
  }
  ~SavedModelTest() override { std::filesystem::remove_all(root_); }

  static float Weight(std::mt19937_64* random) {
    return std::normal_distribution<float>()(*random);
  }

  static TableLayouts Tables(uint32_t num_shards) {
    google::protobuf::RepeatedPtrField<TableConfig> tables;
    TableConfig* sparse = tables.Add();
    sparse->set_name("wide/embedding");
    sparse->set_kind(TableConfig::SPARSE);
    sparse->set_num_shards(num_shards);
    auto* group = sparse->add_columns();
    group->set_name("deep");
    group->set_dim(kDim);
    group->mutable_optimizer()->mutable_adagrad();
    TableConfig* dense = tables.Add();
    dense->set_name("deep/0");
    dense->set_kind(TableConfig::DENSE);
    dense->add_shape(kRows);
    dense->add_shape(kWidth);
    dense->mutable_optimizer()->mutable_adam();
    return *CreateTableLayouts(tables, 1);
  }

  ShardValues Values(const TableLayout& table, uint32_t shard) const {
    ShardValues values;
    if (table.sparse()) {
      for (const auto& [key, weights] : rows_) {
        if (table.ShardOf(key) != shard) continue;
        values.keys.push_back(key);
        values.weights.insert(values.weights.end(), weights.begin(), weights.end());
      }
    } else {
      values.first_element = shard * table.block_elements();
      const auto begin = dense_.begin() + static_cast<int64_t>(values.first_element);
      values.weights.assign(begin, begin + static_cast<int64_t>(table.ShardElements(shard)));
    }
    return values;
  }

  static JobConfig Job() {
    JobConfig job;
    job.set_name("test job");
    job.mutable_optimizers()->mutable_all()->set_learning_rate(0.1f);
    return job;
  }

  // Writes every shard of every table, as pservers do.
  Manifest Shards(const TableLayouts& tables) const {
    Manifest manifest;
    manifest.set_job_id("job-1");
    manifest.set_global_step(77);
    for (const auto& table : tables) {
      *manifest.add_tables() = table->config();
      for (uint32_t s = 0; s < table->num_shards(); ++s) {
        auto file = WriteShardFile(dir_, *table, s, Values(*table, s), Env::Real());
        EXPECT_TRUE(file.ok()) << file.status();
        *manifest.add_files() = *file;
      }
    }
    return manifest;
  }

  Manifest Save(uint32_t num_shards = 4) const {
    auto manifest = FinishModel(dir_, Job(), Shards(Tables(num_shards)), Env::Real());
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    return *manifest;
  }

  // Does not sync, unlike Env, because some tests write many files.
  void Overwrite(const std::string& name, const std::string& bytes) const {
    std::FILE* file = std::fopen((dir_ + "/" + name).c_str(), "wb");
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
    EXPECT_EQ(std::fclose(file), 0);
  }

  std::string root_, dir_;
  std::map<uint64_t, std::vector<float>> rows_;
  std::vector<float> dense_;
};

TEST_F(SavedModelTest, ReadsBackTheSavedModel) {
  const Manifest saved = Save();
  auto manifest = ReadManifest(dir_, Env::Real());
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(*manifest, saved));
  EXPECT_EQ(manifest->global_step(), 77u);
  auto job = ReadModelJob(dir_, Env::Real());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(*job, Job()));

  std::map<uint64_t, std::vector<float>> rows;
  std::vector<uint32_t> shards;
  auto status = VisitShards(
      dir_, *manifest, "wide/embedding", Env::Real(), [&](uint32_t shard, ShardValues values) {
        shards.push_back(shard);
        for (size_t i = 0; i < values.keys.size(); ++i) {
          rows[values.keys[i]].assign(&values.weights[i * kDim], &values.weights[i * kDim] + kDim);
        }
        return absl::OkStatus();
      });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(rows, rows_);
  EXPECT_THAT(shards, ElementsAre(0, 1, 2, 3));

  std::vector<float> dense(dense_.size());
  status = VisitShards(dir_, *manifest, "deep/0", Env::Real(), [&](uint32_t, ShardValues values) {
    std::copy(values.weights.begin(), values.weights.end(),
              dense.begin() + static_cast<int64_t>(values.first_element));
    return absl::OkStatus();
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(dense, dense_);
}

TEST_F(SavedModelTest, DigestEqualsThePlainComputation) {
  // Tables count in the order of their names, not of their ids: "deep/0" before "wide/embedding".
  std::string bytes(reinterpret_cast<const char*>(dense_.data()), dense_.size() * sizeof(float));
  for (const auto& [key, weights] : rows_) {
    bytes.append(reinterpret_cast<const char*>(&key), sizeof(key));
    bytes.append(reinterpret_cast<const char*>(weights.data()), kDim * sizeof(float));
  }
  EXPECT_EQ(Save().model_digest(), Sha256Hex(bytes));
}

TEST_F(SavedModelTest, DigestDoesNotDependOnTheNumberOfShards) {
  const std::string digest = Save(4).model_digest();
  EXPECT_EQ(Save(1).model_digest(), digest);
  EXPECT_EQ(Save(9).model_digest(), digest);
  rows_[0][1] += 1;
  EXPECT_NE(Save(4).model_digest(), digest);
}

TEST_F(SavedModelTest, ASmallerModelLeavesNoOldShardsBehindAndTouchesNothingElse) {
  Save(9);
  Overwrite("notes.txt", "mine");
  Overwrite("wide.embedding-8.shard.1.2.unfinished", "torn");
  Save(1);
  EXPECT_THAT(*Env::Real()->List(dir_),
              ElementsAre("MANIFEST", "deep.0-0.shard", "deep.0-1.shard", "job.textproto",
                          "notes.txt", "wide.embedding-0.shard"));
}

TEST_F(SavedModelTest, EmptyShardsAreVisitedOnce) {
  rows_.clear();
  const Manifest manifest = Save();
  int visited = 0;
  EXPECT_TRUE(
      VisitShards(dir_, manifest, "wide/embedding", Env::Real(), [&](uint32_t, ShardValues values) {
        ++visited;
        EXPECT_TRUE(values.keys.empty());
        return absl::OkStatus();
      }).ok());
  EXPECT_EQ(visited, 4);
}

TEST_F(SavedModelTest, AFolderWithoutAManifestIsNotFound) {
  const auto absent = ReadManifest(dir_, Env::Real()).status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(absent.message()), HasSubstr(dir_));
  const auto other = ReadManifest(root_, Env::Real()).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(other.message()),
              AllOf(HasSubstr(root_), HasSubstr("MANIFEST"), Not(HasSubstr("unfinished"))));
  std::filesystem::create_directory(root_ + "/checkpoints");
  EXPECT_THAT(std::string(ReadManifest(root_, Env::Real()).status().message()),
              AllOf(HasSubstr(root_ + "/checkpoints/step-N"), Not(HasSubstr(dir_))));
  Shards(Tables(4));
  EXPECT_THAT(std::string(ReadManifest(root_, Env::Real()).status().message()),
              AllOf(HasSubstr("give " + dir_), HasSubstr(root_ + "/checkpoints/step-N")));
  const auto unfinished = ReadManifest(dir_, Env::Real()).status();
  EXPECT_EQ(unfinished.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unfinished.message()), HasSubstr("unfinished"));
}

TEST_F(SavedModelTest, FinishModelNamesAMissingShard) {
  Manifest manifest = Shards(Tables(4));
  for (int i = 0; i < manifest.files_size(); ++i) {
    if (manifest.files(i).name() != "wide.embedding-2.shard") continue;
    manifest.mutable_files()->DeleteSubrange(i, 1);
    break;
  }
  const auto status = FinishModel(dir_, Job(), manifest, Env::Real()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("wide.embedding-2.shard"));
  EXPECT_FALSE(Env::Real()->Exists(dir_ + "/MANIFEST"));
}

TEST_F(SavedModelTest, AMissingBlockIsDataLoss) {
  Manifest manifest = Shards(Tables(1));
  manifest.mutable_files()->RemoveLast();  // deep.0-1
  EXPECT_EQ(FinishModel(dir_, Job(), manifest, Env::Real()).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(SavedModelTest, EveryFlippedByteOfAShardIsDataLossThatNamesIt) {
  google::protobuf::LogSilencer silencer;
  const Manifest manifest = Save(40);
  const std::string name = "wide.embedding-0.shard";
  const std::string good = *Env::Real()->ReadFile(dir_ + "/" + name);
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x20);
    Overwrite(name, bad);
    const absl::Status status = VisitShards(dir_, manifest, "wide/embedding", Env::Real(),
                                            [](uint32_t, ShardValues) { return absl::OkStatus(); });
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << i << " " << status;
    ASSERT_THAT(std::string(status.message()), HasSubstr(name));
  }
}

TEST_F(SavedModelTest, ATruncatedOrMissingShardIsDataLossThatNamesIt) {
  const Manifest manifest = Save(1);
  const std::string name = "deep.0-1.shard";
  const std::string good = *Env::Real()->ReadFile(dir_ + "/" + name);
  auto visit = [&] {
    return VisitShards(dir_, manifest, "deep/0", Env::Real(),
                       [](uint32_t, ShardValues) { return absl::OkStatus(); });
  };
  ASSERT_TRUE(visit().ok());
  for (size_t size : {size_t{0}, size_t{5}, size_t{12}, size_t{20}, good.size() - 1}) {
    Overwrite(name, good.substr(0, size));
    EXPECT_EQ(visit().code(), absl::StatusCode::kDataLoss) << size;
    EXPECT_THAT(std::string(visit().message()), HasSubstr(name));
    EXPECT_EQ(ModelDigest(dir_, manifest, Env::Real()).status().code(),
              absl::StatusCode::kDataLoss);
  }
  ASSERT_TRUE(Env::Real()->RemoveFile(dir_ + "/" + name).ok());
  EXPECT_EQ(visit().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(visit().message()), HasSubstr(name));
}

// The files have the right size and checksum but wrong contents, so the later checks must refuse
// them.
TEST_F(SavedModelTest, RandomBytesAreRefusedAndNeverCrash) {
  Manifest manifest = Save(4);
  manifest.mutable_tables()->RemoveLast();  // the digest of the dense table would only take time
  google::protobuf::LogSilencer silencer;   // protobuf logs names that are not UTF-8
  std::mt19937_64 random(99);
  const std::string name = "wide.embedding-1.shard";
  const std::string good = *Env::Real()->ReadFile(dir_ + "/" + name);
  SavedFile* file = nullptr;
  for (SavedFile& f : *manifest.mutable_files()) {
    if (f.name() == name) file = &f;
  }
  int refused = 0;
  for (int round = 0; round < 120; ++round) {
    std::string bytes = good;
    if (round % 2 == 0) {
      // Changes a few bytes of the magic, length or header.
      for (int k = 0; k < 3; ++k) bytes[random() % 48] = static_cast<char>(random());
    } else {
      bytes.resize(random() % 200);
      for (char& c : bytes) c = static_cast<char>(random());
      if (round % 4 == 1)
        bytes.replace(0, std::min<size_t>(8, bytes.size()), "SLSHARD1",
                      std::min<size_t>(8, bytes.size()));
    }
    file->set_bytes(bytes.size());
    file->set_crc32c(Crc32c(bytes.data(), bytes.size()));
    Overwrite(name, bytes);
    uint32_t shard = 0;
    const auto values = ReadShardFile(dir_, manifest.tables(0), *file, &shard, Env::Real());
    const auto digest = ModelDigest(dir_, manifest, Env::Real());
    if (!values.ok()) {
      ++refused;
      EXPECT_EQ(values.status().code(), absl::StatusCode::kDataLoss) << values.status();
      EXPECT_FALSE(digest.ok());
    }
  }
  EXPECT_GT(refused, 90);
}

TEST_F(SavedModelTest, KeysThatDoNotAscendAreRefused) {
  const TableLayouts tables = Tables(1);
  ShardValues values;
  values.weights.assign(2 * kDim, 1);
  for (const std::vector<uint64_t>& keys : {std::vector<uint64_t>{5, 5}, {6, 5}}) {
    values.keys = keys;
    EXPECT_EQ(WriteShardFile(dir_, *tables[0], 0, values, Env::Real()).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(SavedModelTest, ReadsManifestsOfEarlierVersions) {
  Save(1);
  std::string text = *Env::Real()->ReadFile(dir_ + "/MANIFEST");
  text.resize(text.rfind("crc32c: "));  // the earlier versions have none
  for (const char* version : {"version: 1", "version: 2"}) {
    text.replace(text.find("version: "), 10, version);
    Overwrite("MANIFEST", text);
    const auto manifest = ReadManifest(dir_, Env::Real());
    EXPECT_TRUE(manifest.ok()) << manifest.status();
  }
  text.replace(text.find("version: "), 10, "version: 3");
  Overwrite("MANIFEST", text);
  EXPECT_EQ(ReadManifest(dir_, Env::Real()).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(SavedModelTest, EveryFlippedBitOfAManifestIsDataLossThatNamesIt) {
  google::protobuf::LogSilencer silencer;
  Save(1);
  const std::string good = *Env::Real()->ReadFile(dir_ + "/MANIFEST");
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      Overwrite("MANIFEST", bad);
      const absl::Status status = ReadManifest(dir_, Env::Real()).status();
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << i << " " << bit << " " << status;
      ASSERT_THAT(std::string(status.message()), HasSubstr("MANIFEST"));
    }
  }
}

TEST_F(SavedModelTest, ValuesThatDoNotFitTheLayoutAreRefused) {
  const TableLayouts tables = Tables(4);
  ShardValues values = Values(*tables[1], 1);
  EXPECT_EQ(WriteShardFile(dir_, *tables[1], 2, values, Env::Real()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteShardFile(dir_, *tables[1], 0, values, Env::Real()).status().code(),
            absl::StatusCode::kInvalidArgument);
  values.weights.pop_back();
  EXPECT_EQ(WriteShardFile(dir_, *tables[1], 1, values, Env::Real()).status().code(),
            absl::StatusCode::kInvalidArgument);
  ShardValues rows = Values(*tables[0], 0);
  rows.weights.pop_back();
  EXPECT_EQ(WriteShardFile(dir_, *tables[0], 0, rows, Env::Real()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(SavedModelTest, ATruncatedManifestIsDataLossThatNamesIt) {
  Save(1);
  const std::string good = *Env::Real()->ReadFile(dir_ + "/MANIFEST");
  for (size_t size = 0; size + 2 < good.size(); size += 23) {
    Overwrite("MANIFEST", good.substr(0, size));
    const absl::Status status = ReadManifest(dir_, Env::Real()).status();
    ASSERT_FALSE(status.ok()) << size;
    EXPECT_THAT(std::string(status.message()), HasSubstr("MANIFEST"));
  }
}

TEST_F(SavedModelTest, ANewerManifestIsRefusedWithItsVersion) {
  Save(1);
  std::string text = *Env::Real()->ReadFile(dir_ + "/MANIFEST");
  text.replace(text.find("version: 3"), 10, "version: 4");
  text.resize(text.rfind("crc32c: "));
  Overwrite("MANIFEST", absl::StrCat(text, "crc32c: ", Crc32c(text.data(), text.size()), "\n"));
  const absl::Status status = ReadManifest(dir_, Env::Real()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 4"));
}

TEST_F(SavedModelTest, AManifestCannotLeadOutOfItsFolder) {
  Manifest manifest = Save(1);
  SavedFile file = manifest.files(0);
  for (const char* name :
       {"../model/wide.embedding-0.shard", "/etc/passwd", "wide/embedding-0.shard", ""}) {
    file.set_name(name);
    uint32_t shard = 0;
    EXPECT_EQ(ReadShardFile(dir_, manifest.tables(0), file, &shard, Env::Real()).status().code(),
              absl::StatusCode::kDataLoss);
  }
}

TEST_F(SavedModelTest, SizesAreCheckedOnlyOfFilesOfASave) {
  Manifest manifest = Save();
  EXPECT_TRUE(CheckSizes(dir_, manifest, Env::Real()).ok());
  ASSERT_TRUE(Env::Real()->WriteFile(root_ + "/other-0.shard", {"12345"}).ok());
  ASSERT_TRUE(Env::Real()->WriteFile(dir_ + "/other", {"12345"}).ok());
  SavedFile* const file = manifest.add_files();
  file->set_bytes(5);
  for (const std::string name : {"../other-0.shard", "other", "./other", ""}) {
    file->set_name(name);
    const absl::Status status = CheckSizes(dir_, manifest, Env::Real());
    EXPECT_TRUE(absl::IsDataLoss(status)) << name << ": " << status;
  }
  ASSERT_TRUE(Env::Real()->WriteFile(dir_ + "/other-0.shard", {"12345"}).ok());
  file->set_name("other-0.shard");
  EXPECT_TRUE(CheckSizes(dir_, manifest, Env::Real()).ok());
}

TEST_F(SavedModelTest, AnUnknownTableIsNotFound) {
  const Manifest manifest = Save(1);
  const auto status = VisitShards(dir_, manifest, "other", Env::Real(),
                                  [](uint32_t, ShardValues) { return absl::OkStatus(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace sluice
