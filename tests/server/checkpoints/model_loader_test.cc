#include "server/checkpoints/model_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <new>
#include <random>

#include "common/base/crc32c.h"
#include "common/base/hash.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file.h"
#include "tests/common/saved_model/memory_env.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kDim = 16;
constexpr uint64_t kDenseRows = 1300;  // of 1000: 5 blocks
constexpr size_t kRows = 60000;

float Weight(uint64_t key, uint32_t d) { return static_cast<float>(key % 1021) + d; }

TableLayouts Tables(uint32_t num_shards) {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  TableConfig* sparse = tables.Add();
  sparse->set_name("e");
  sparse->set_kind(TableConfig::SPARSE);
  sparse->set_num_shards(num_shards);
  sparse->add_columns()->set_dim(kDim);
  sparse->mutable_columns(0)->mutable_optimizer()->mutable_sgd();
  TableConfig* dense = tables.Add();
  dense->set_name("w");
  dense->set_kind(TableConfig::DENSE);
  dense->add_shape(kDenseRows);
  dense->add_shape(1000);
  dense->mutable_optimizer()->mutable_sgd();
  return *CreateTableLayouts(tables, 1);
}

class ModelLoaderTest : public testing::Test {
 protected:
  ModelLoaderTest() {
    std::mt19937_64 random(31);
    for (size_t i = 0; i < kRows; ++i) keys_.push_back(random());
    std::sort(keys_.begin(), keys_.end());
  }

  // Saves the model with the given number of shards.
  void Save(uint32_t num_shards) {
    env_ = std::make_unique<MemoryEnv>();
    Manifest manifest;
    for (const auto& table : Tables(num_shards)) {
      *manifest.add_tables() = table->config();
      for (uint32_t s = 0; s < table->num_shards(); ++s) {
        *manifest.add_files() = *WriteShardFile("m", *table, s, Values(*table, s), env_.get());
      }
    }
    const auto finished = FinishModel("m", JobConfig(), manifest, env_.get());
    ASSERT_TRUE(finished.ok()) << finished.status();
    manifest_ = *finished;
  }

  uint64_t BytesOfShards() const {
    uint64_t bytes = 0;
    for (const SavedFile& file : manifest_.files()) {
      if (IsShardFile(file.name())) bytes += file.bytes();
    }
    return bytes;
  }

  ShardValues Values(const TableLayout& table, uint32_t shard) const {
    ShardValues values;
    if (table.sparse()) {
      for (const uint64_t key : keys_) {
        if (table.ShardOf(key) != shard) continue;
        values.keys.push_back(key);
        for (uint32_t d = 0; d < kDim; ++d) values.weights.push_back(Weight(key, d));
      }
    } else {
      values.first_element = shard * table.block_elements();
      for (uint64_t i = 0; i < table.ShardElements(shard); ++i) {
        values.weights.push_back(Weight(values.first_element + i, 0));
      }
    }
    return values;
  }

  // Makes the shards of pserver `p` of `pservers`, which are dealt in turn.
  static ShardTable ShardsOf(const TableLayouts& tables, uint32_t p, uint32_t pservers) {
    ShardTable shards;
    for (const auto& table : tables) {
      shards.emplace_back(table->num_shards());
      for (uint32_t s = p; s < table->num_shards(); s += pservers) {
        shards.back()[s] = table->sparse() ? MakeSparseShard(table, s, UpdatePolicy())
                                           : MakeDenseShard(table, s, UpdatePolicy());
      }
    }
    return shards;
  }

  absl::Status Load(const TableLayouts& tables, const ShardTable& shards, uint32_t threads = 3,
                    uint64_t memory = UINT64_MAX) {
    progress_ = std::make_unique<LoadProgress>();
    ModelLoader::Options options;
    options.directory = "m";
    options.threads = threads;
    options.env = env_.get();
    options.progress = progress_.get();
    options.available_memory = [memory] { return memory; };
    return ModelLoader(options, tables, &shards).Load();
  }

  // Checks that all values are where they belong.
  void ExpectLoaded(const TableLayouts& tables, const ShardTable& shards) {
    size_t wanted = 0, rows = 0;
    for (const uint64_t key : keys_) {
      Shard* shard = shards[0][tables[0]->ShardOf(key)].get();
      if (shard == nullptr) continue;
      ++wanted;
      float read[kDim];
      shard->Read(&key, 1, reinterpret_cast<uint8_t*>(read));
      for (uint32_t d = 0; d < kDim; ++d) ASSERT_EQ(read[d], Weight(key, d)) << key;
    }
    for (const auto& shard : shards[0]) rows += shard == nullptr ? 0 : shard->rows();
    EXPECT_EQ(rows, wanted);
    for (const auto& block : shards[1]) {
      if (block == nullptr) continue;
      std::vector<float> read(block->rows());
      block->Read(nullptr, 0, reinterpret_cast<uint8_t*>(read.data()));
      EXPECT_EQ(read, Values(*tables[1], block->index()).weights);
    }
  }

  std::string PathOf(const std::string& name) const { return "m/" + name; }

  std::vector<uint64_t> keys_;
  std::unique_ptr<MemoryEnv> env_;
  std::unique_ptr<LoadProgress> progress_;
  Manifest manifest_;
};

TEST_F(ModelLoaderTest, AnyNumberOfShardsLoadsIntoAnyOther) {
  for (const uint32_t saved : {1u, 4u, 7u}) {
    Save(saved);
    for (const uint32_t opened : {1u, 5u, 16u}) {
      for (const uint32_t pservers : {1u, 3u}) {
        SCOPED_TRACE(testing::Message() << saved << " to " << opened << " on " << pservers);
        const TableLayouts tables = Tables(opened);
        for (uint32_t p = 0; p < pservers; ++p) {
          const ShardTable shards = ShardsOf(tables, p, pservers);
          const absl::Status status = Load(tables, shards, 1 + p);
          ASSERT_TRUE(status.ok()) << status;
          ASSERT_NO_FATAL_FAILURE(ExpectLoaded(tables, shards));
        }
      }
    }
  }
}

TEST_F(ModelLoaderTest, PserversTogetherReadTheModelOnce) {
  struct Case {
    uint32_t saved, opened, pservers;
  };
  // 7 shards do not divide the runs evenly: a run at a border belongs to two shards.
  Save(4);
  uint64_t size = BytesOfShards(), sum = 0;
  for (uint32_t p = 0; p < 7; ++p) {
    const TableLayouts tables = Tables(7);
    ASSERT_TRUE(Load(tables, ShardsOf(tables, p, 7)).ok());
    sum += progress_->read();
  }
  EXPECT_LE(sum, size * 1.25);
  for (const Case c : {Case{16, 16, 2}, Case{4, 32, 8}, Case{16, 32, 8}, Case{1, 4, 2}}) {
    SCOPED_TRACE(testing::Message() << c.saved << " to " << c.opened << " on " << c.pservers);
    Save(c.saved);
    size = BytesOfShards();
    sum = 0;
    const TableLayouts tables = Tables(c.opened);
    for (uint32_t p = 0; p < c.pservers; ++p) {
      const ShardTable shards = ShardsOf(tables, p, c.pservers);
      env_->TakeBytesRead();
      ASSERT_TRUE(Load(tables, shards).ok());
      const uint64_t bytes = env_->TakeBytesRead();
      // The manifest is read, too, but does not count as load.
      EXPECT_LE(progress_->read(), bytes);
      EXPECT_GE(progress_->read() + 20000, bytes);
      EXPECT_EQ(progress_->read(), progress_->planned());
      sum += progress_->read();
    }
    EXPECT_GE(sum, size);
    // Fronts and indexes of files are read more than once.
    EXPECT_LE(sum, size * 1.01);
  }
}

TEST_F(ModelLoaderTest, OnlyThePserverThatNeedsADamagedRunFails) {
  Save(4);
  const std::string name = "e-2.shard";
  std::string bytes = env_->Get(PathOf(name));
  bytes[bytes.size() / 2] ^= 1;
  env_->Put(PathOf(name), bytes);
  const TableLayouts tables = Tables(4);
  for (uint32_t p = 0; p < 4; ++p) {
    const absl::Status status = Load(tables, ShardsOf(tables, p, 4));
    EXPECT_EQ(status.code(), p == 2 ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk)
        << status;
    if (p == 2) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(name));
    }
  }
}

TEST_F(ModelLoaderTest, ErrorNamesTheMissingFile) {
  Save(4);
  ASSERT_TRUE(env_->RemoveFile("m/w-3.shard").ok());
  const TableLayouts tables = Tables(4);
  const absl::Status status = Load(tables, ShardsOf(tables, 0, 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("w-3.shard"));
}

TEST_F(ModelLoaderTest, CancelEndsTheLoadBetweenTwoReads) {
  Save(2);
  const TableLayouts tables = Tables(2);
  for (const uint32_t threads : {1u, 4u}) {
    env_->TakeBytesRead();
    std::atomic<int> reads{0};
    env_->before_read = [&](const std::string& path, uint64_t, uint64_t n) {
      if (n > 100000 && ++reads == 3) progress_->Cancel();
      return absl::OkStatus();
    };
    EXPECT_EQ(Load(tables, ShardsOf(tables, 0, 1), threads).code(), absl::StatusCode::kCancelled);
    EXPECT_LT(progress_->read(), progress_->planned() / 2);
  }
}

TEST_F(ModelLoaderTest, ErrorInOneThreadEndsAllThreads) {
  Save(8);
  const TableLayouts tables = Tables(8);
  env_->before_read = [](const std::string& path, uint64_t offset, uint64_t) -> absl::Status {
    if (path != "m/e-5.shard" || offset < 1000 || offset > 300000) return absl::OkStatus();
    return absl::InternalError("read m/e-5.shard: Input/output error");
  };
  const absl::Status status = Load(tables, ShardsOf(tables, 0, 1), 4);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("e-5.shard"));
}

TEST_F(ModelLoaderTest, OutOfMemoryIsReturnedAsAStatus) {
  Save(2);
  const TableLayouts tables = Tables(2);
  std::atomic<int> reads{0};
  env_->before_read = [&](const std::string&, uint64_t, uint64_t n) -> absl::Status {
    if (n > 100000 && ++reads == 2) throw std::bad_alloc();
    return absl::OkStatus();
  };
  EXPECT_EQ(Load(tables, ShardsOf(tables, 0, 1), 3).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ModelLoaderTest, RowsThatDoNotFitInMemoryAreNotRead) {
  Save(2);
  const TableLayouts tables = Tables(4);
  // SGD keeps no state: 34 bytes and 16 floats per row.
  const uint64_t all = kRows * (34 + 64);
  EXPECT_TRUE(Load(tables, ShardsOf(tables, 0, 2), 2, all * 6 / 10).ok());
  EXPECT_EQ(Load(tables, ShardsOf(tables, 0, 2), 2, all * 4 / 10).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_LT(progress_->read(), 20000u);
}

TEST_F(ModelLoaderTest, LoadsAModelOfVersionOne) {
  Save(3);
  for (SavedFile& file : *manifest_.mutable_files()) {
    if (!IsShardFile(file.name())) continue;
    uint32_t shard;
    const bool sparse = ParseShardFileName(file.name(), "e", &shard);
    if (!sparse) {
      ASSERT_TRUE(ParseShardFileName(file.name(), "w", &shard));
    }
    const ShardValues values = Values(*Tables(3)[sparse ? 0 : 1], shard);
    ShardFileHeader header;
    header.set_table(sparse ? "e" : "w");
    header.set_kind(sparse ? TableConfig::SPARSE : TableConfig::DENSE);
    header.set_shard(shard);
    std::string body;
    if (sparse) {
      header.set_rows(values.keys.size());
      header.set_dim(kDim);
      for (size_t i = 0; i < values.keys.size(); ++i) {
        body.append(reinterpret_cast<const char*>(&values.keys[i]), 8);
        body.append(reinterpret_cast<const char*>(&values.weights[i * kDim]), 4 * kDim);
      }
    } else {
      header.set_first_element(values.first_element);
      header.set_elements(values.weights.size());
      body.append(reinterpret_cast<const char*>(values.weights.data()), 4 * values.weights.size());
    }
    std::string bytes = EncodeShardFileHeader(header) + body;
    bytes.replace(0, 8, "SLSHARD1");
    file.set_bytes(bytes.size());
    file.set_crc32c(Crc32c(bytes.data(), bytes.size()));
    env_->Put(PathOf(file.name()), bytes);
  }
  const std::string digest = manifest_.model_digest();
  manifest_.set_version(1);
  env_->Put("m/MANIFEST", manifest_.DebugString());
  EXPECT_EQ(*ModelDigest("m", manifest_, env_.get()), digest);
  for (const uint32_t opened : {3u, 8u}) {
    const TableLayouts tables = Tables(opened);
    const ShardTable shards = ShardsOf(tables, 1, 2);
    const absl::Status status = Load(tables, shards);
    ASSERT_TRUE(status.ok()) << status;
    ExpectLoaded(tables, shards);
  }
}

TEST_F(ModelLoaderTest, ATableWithMoreRowsThanMaxRowsIsRefused) {
  Save(2);
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  for (const auto& table : Tables(4)) *tables.Add() = table->config();
  for (const uint64_t limit : {uint64_t{kRows} * 2, uint64_t{kRows} / 2}) {
    tables[0].set_max_rows(limit);
    const TableLayouts layouts = *CreateTableLayouts(tables, 1);
    const ShardTable shards = ShardsOf(layouts, 0, 1);
    const absl::Status status = Load(layouts, shards, 2);
    EXPECT_EQ(status.code(),
              limit > kRows ? absl::StatusCode::kOk : absl::StatusCode::kResourceExhausted)
        << status;
    if (status.ok()) continue;
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(HasSubstr("table 'e'"), HasSubstr("max_rows")));
    uint64_t rows = 0;
    for (const auto& shard : shards[0]) rows += shard->rows();
    EXPECT_LE(rows, limit);
  }
}

// A new job whose tables have other rows and columns than those of the checkpoint.
class ModelLoaderStartTest : public testing::Test {
 protected:
  static constexpr uint64_t kInputs = 700, kWidth = 1000;  // 3 blocks

  // `rows`: of the dense table, with the start that they need; `dim`: of the embeddings.
  static TableLayouts Tables(uint64_t rows, uint32_t dim, const TableStart* start) {
    google::protobuf::RepeatedPtrField<TableConfig> tables;
    TableConfig* const dense = tables.Add();
    dense->set_name("deep");
    dense->set_kind(TableConfig::DENSE);
    dense->add_shape(rows);
    dense->add_shape(kWidth);
    dense->mutable_initializer()->mutable_uniform()->set_max(1);
    dense->mutable_optimizer()->mutable_adam();
    if (start != nullptr) *dense->mutable_start() = *start;
    TableConfig* const sparse = tables.Add();
    sparse->set_name(start == nullptr ? "embedding" : "embedding_5");
    sparse->set_kind(TableConfig::SPARSE);
    sparse->set_num_shards(start == nullptr ? 4 : 6);
    if (start != nullptr) sparse->mutable_start()->set_table("embedding");
    for (const char* name : {"wide", "embedding"}) {
      ColumnGroup* const group = sparse->add_columns();
      group->set_name(name);
      group->set_dim(name[0] == 'w' ? 1 : dim);
      group->mutable_initializer()->mutable_uniform()->set_max(1);
      if (name[0] == 'w') {
        group->mutable_optimizer()->mutable_ftrl();
      } else {
        group->mutable_optimizer()->mutable_adam();
      }
    }
    return *CreateTableLayouts(tables, 9);
  }

  static ShardTable ShardsOf(const TableLayouts& tables, uint32_t p, uint32_t pservers) {
    UpdatePolicy policy;
    policy.mode = Mode::kSync;
    ShardTable shards;
    for (const auto& table : tables) {
      shards.emplace_back(table->num_shards());
      for (uint32_t s = p; s < table->num_shards(); s += pservers)
        shards.back()[s] = MakeShard(table, s, policy, ShardLimits());
    }
    return shards;
  }

  // Rows of the dense table that two inputs have: inputs a, b, c of 300, 150 and 250 rows become c,
  // 40 new rows, a.
  static TableStart Start() {
    TableStart start;
    start.set_table("deep");
    for (const auto& [from, to, count] :
         {std::array<uint64_t, 3>{450, 0, 250}, std::array<uint64_t, 3>{0, 290, 300}}) {
      TableStart::Run* const run = start.add_rows();
      run->set_from(from), run->set_to(to), run->set_count(count);
    }
    return start;
  }

  // Makes the checkpoint "c" of tables with random values and state, whose bits are unlike.
  void Save() {
    const TableLayouts tables = Tables(kInputs, 3, nullptr);
    const ShardTable shards = ShardsOf(tables, 0, 1);
    std::mt19937_64 random(5);
    std::normal_distribution<float> normal;
    const TableLayout& dense = *tables[0];
    saved_.assign(3, std::vector<float>(dense.elements()));
    for (uint32_t array = 0; array < 3; ++array) {
      for (float& value : saved_[array]) value = normal(random);
      for (const auto& shard : shards[0])
        shard->RestoreElements(array, 0, saved_[array].data(), saved_[array].size());
    }
    for (int i = 0; i < 3000; ++i) {
      const uint64_t key = random(), last_seen = random() % 90;
      const uint32_t count = 1 + random() % 50;
      std::string record(reinterpret_cast<const char*>(&last_seen), sizeof(last_seen));
      record.append(reinterpret_cast<const char*>(&count), sizeof(count));
      for (uint32_t f = 0; f < tables[1]->dim() + tables[1]->state_floats(); ++f) {
        const float value = normal(random);
        record.append(reinterpret_cast<const char*>(&value), sizeof(value));
      }
      rows_[key] = record;
      const char* const bytes = record.data();
      shards[1][tables[1]->ShardOf(key)]->RestoreRows(&key, &bytes, 1);
    }
    ShardFacts facts;
    facts.set_closed(90), facts.set_schedule_steps(90), facts.set_count(77), facts.set_updates(90);
    Manifest manifest;
    manifest.set_global_step(90);
    for (const auto& table : shards) {
      *manifest.add_tables() = table[0]->table().config();
      for (const auto& shard : table) {
        shard->RestorePosition(facts);
        CutOptions options;
        options.state = true;
        *manifest.add_files() = *WriteShardFile("c", shard->table(), shard->index(),
                                                shard->BeginCut(options).get(), &env_, kSaveId);
      }
    }
    manifest.mutable_checkpoint()->set_mode("sync");
    const absl::Status made = CommitCheckpoint("c", JobConfig(), manifest, &env_, kSaveId);
    ASSERT_TRUE(made.ok()) << made;
  }

  absl::Status Load(const TableLayouts& tables, const ShardTable& shards, bool state,
                    bool new_job) {
    LoadProgress progress;
    ModelLoader::Options options;
    options.directory = "c";
    options.state = state;
    options.new_job = new_job;
    options.threads = 3;
    options.env = &env_;
    options.progress = &progress;
    return ModelLoader(options, tables, &shards).Load();
  }

  // The records of a shard as its cut has them: elements, or rows with their keys; and its facts.
  static std::string RecordsOf(Shard* shard, ShardFacts* facts) {
    CutOptions options;
    options.state = true;
    MemoryEnv env;
    const auto file = WriteShardFile("x", shard->table(), shard->index(),
                                     shard->BeginCut(options).get(), &env, kSaveId);
    EXPECT_TRUE(file.ok()) << file.status();
    const auto reader = *ShardFileReader::Open(&env, "x", shard->table().config(), *file);
    *facts = reader->header().facts();
    std::string records;
    RunReader runs(reader.get(), 0, reader->runs());
    for (std::string next = *runs.Next(1 << 20); !next.empty(); next = *runs.Next(1 << 20))
      records += next;
    return records;
  }

  void ExpectDense(const TableLayout& table, Shard* shard, bool state) const;
  void ExpectSparse(const TableLayout& table, Shard* shard, bool state, size_t* rows) const;

  static constexpr char kSaveId[] = "0123456789abcdef";
  MemoryEnv env_;
  std::vector<std::vector<float>> saved_;  // of the dense table: values and state
  std::map<uint64_t, std::string> rows_;   // the records behind the keys
};

void ModelLoaderStartTest::ExpectDense(const TableLayout& table, Shard* shard, bool state) const {
  std::vector<std::vector<float>> wanted(3, std::vector<float>(table.elements()));
  table.InitialElements(0, table.elements(), wanted[0].data());
  for (int array = 0; array < (state ? 3 : 1); ++array) {
    std::copy_n(saved_[array].begin() + 450 * kWidth, 250 * kWidth, wanted[array].begin());
    std::copy_n(saved_[array].begin(), 300 * kWidth, wanted[array].begin() + 290 * kWidth);
  }
  ShardFacts facts;
  const std::string records = RecordsOf(shard, &facts);
  const uint64_t first = shard->index() * table.block_elements(),
                 n = table.ShardElements(shard->index());
  ASSERT_EQ(records.size(), 3 * n * sizeof(float));
  for (int array = 0; array < 3; ++array) {
    EXPECT_EQ(std::memcmp(records.data() + array * n * sizeof(float), wanted[array].data() + first,
                          n * sizeof(float)),
              0)
        << "array " << array << " of block " << shard->index();
  }
  EXPECT_EQ(facts.count(), state ? 77u : 0u);
  EXPECT_EQ(facts.schedule_steps(), state ? 90u : 0u);
  EXPECT_EQ(facts.closed(), 0u);
}

void ModelLoaderStartTest::ExpectSparse(const TableLayout& table, Shard* shard, bool state,
                                        size_t* rows) const {
  ShardFacts facts;
  const std::string records = RecordsOf(shard, &facts);
  const size_t floats = table.dim() + table.state_floats();
  const size_t bytes = 8 + 12 + floats * sizeof(float);
  ASSERT_EQ(records.size() % bytes, 0u);
  for (size_t at = 0; at < records.size(); at += bytes, ++*rows) {
    uint64_t key;
    std::memcpy(&key, records.data() + at, sizeof(key));
    const auto saved = rows_.find(key);
    ASSERT_TRUE(saved != rows_.end());
    // The saved floats: wide 1, embedding 3, then state: z, n, 3 m, 3 v.
    const char* const from = saved->second.data() + 12;
    std::vector<float> wanted(floats);
    table.InitialRow(key, wanted.data());
    std::memcpy(&wanted[0], from, 4 * sizeof(float));
    if (state) {
      std::memcpy(&wanted[6], from + 4 * sizeof(float), 2 * sizeof(float));
      std::memcpy(&wanted[8], from + 6 * sizeof(float), 3 * sizeof(float));
      std::memcpy(&wanted[13], from + 9 * sizeof(float), 3 * sizeof(float));
    }
    EXPECT_EQ(std::memcmp(records.data() + at + 20, wanted.data(), floats * sizeof(float)), 0);
    const std::string history = state ? saved->second.substr(0, 12) : std::string(12, 0);
    EXPECT_EQ(records.substr(at + 8, 12), history);
  }
  EXPECT_EQ(facts.schedule_steps(), state ? 90u : 0u);
}

TEST_F(ModelLoaderStartTest, RowsAndColumnsGoWhereTheTablesHaveThemNow) {
  Save();
  const TableStart start = Start();
  for (const bool state : {true, false}) {
    for (const uint32_t pservers : {1u, 3u}) {
      SCOPED_TRACE(testing::Message() << (state ? "state on " : "values on ") << pservers);
      size_t rows = 0;
      const TableLayouts tables = Tables(590, 5, &start);
      for (uint32_t p = 0; p < pservers; ++p) {
        const ShardTable shards = ShardsOf(tables, p, pservers);
        const absl::Status status = Load(tables, shards, state, state);
        ASSERT_TRUE(status.ok()) << status;
        for (const auto& shard : shards[0]) {
          if (shard != nullptr) ExpectDense(*tables[0], shard.get(), state);
        }
        for (const auto& shard : shards[1]) {
          if (shard != nullptr) ExpectSparse(*tables[1], shard.get(), state, &rows);
        }
      }
      EXPECT_EQ(rows, rows_.size());
    }
  }
}

TEST_F(ModelLoaderStartTest, AJobThatContinuesHasItsOwnTablesWhateverItStartedFrom) {
  Save();
  TableStart start = Start();
  const TableLayouts other = Tables(590, 5, &start);
  EXPECT_EQ(Load(other, ShardsOf(other, 0, 1), true, /*new_job=*/false).code(),
            absl::StatusCode::kInvalidArgument);
  // Of the form of the checkpoint: the start does not move its rows again.
  const TableLayouts own = Tables(kInputs, 3, nullptr);
  google::protobuf::RepeatedPtrField<TableConfig> configs;
  for (const auto& table : own) *configs.Add() = table->config();
  *configs[0].mutable_start() = start;
  const TableLayouts tables = *CreateTableLayouts(configs, 9);
  const ShardTable shards = ShardsOf(tables, 0, 1);
  ASSERT_TRUE(Load(tables, shards, true, /*new_job=*/false).ok());
  ShardFacts facts;
  const std::string records = RecordsOf(shards[0][0].get(), &facts);
  EXPECT_EQ(std::memcmp(records.data(), saved_[0].data(), 262000 * sizeof(float)), 0);
  EXPECT_EQ(facts.closed(), 90u);
}

TEST_F(ModelLoaderStartTest, AStartThatDoesNotFitIsRefused) {
  Save();
  TableStart start = Start();
  start.mutable_rows(0)->set_from(451);
  const TableLayouts tables = Tables(590, 5, &start);
  const absl::Status status = Load(tables, ShardsOf(tables, 0, 1), true, true);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("table 'deep'"));
}

}  // namespace
}  // namespace sluice
