#include "common/saved_model/shard_image.h"

#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "common/base/sha256.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file_reader.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/common/saved_model/read_shard_file.h"

namespace sluice {
namespace {

constexpr uint32_t kShardImageDim = 4;

TableLayouts Tables(uint32_t num_shards, uint64_t dense_rows = 1) {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  TableConfig* sparse = tables.Add();
  sparse->set_name("e");
  sparse->set_kind(TableConfig::SPARSE);
  sparse->set_num_shards(num_shards);
  sparse->add_columns()->set_dim(kShardImageDim);
  sparse->mutable_columns(0)->mutable_optimizer()->mutable_sgd();
  TableConfig* dense = tables.Add();
  dense->set_name("w");
  dense->set_kind(TableConfig::DENSE);
  dense->add_shape(dense_rows);
  dense->add_shape(1000);
  dense->mutable_optimizer()->mutable_sgd();
  return *CreateTableLayouts(tables, 1);
}

float Weight(uint64_t key, uint32_t d) { return static_cast<float>(key % 977) + d; }

class Rows : public ShardRows {
 public:
  explicit Rows(std::vector<uint64_t> keys) : keys_(std::move(keys)) {}
  uint64_t size() const override { return keys_.size(); }
  absl::StatusOr<size_t> ReadKeys(uint64_t first, size_t n, uint64_t* keys,
                                  uint32_t* rows) override {
    std::copy_n(keys_.begin() + static_cast<int64_t>(first), n, keys);
    std::iota(rows, rows + n, static_cast<uint32_t>(first));
    return n;
  }
  absl::Status ReadRecords(const uint32_t* rows, size_t n, size_t stride, char* to) override {
    if (fail_after-- == 0) return absl::AbortedError("changed");
    for (size_t i = 0; i < n; ++i) {
      for (uint32_t d = 0; d < kShardImageDim; ++d) {
        const float weight = Weight(keys_[rows[i]], d);
        std::memcpy(to + i * stride + d * sizeof(float), &weight, sizeof(weight));
      }
    }
    return absl::OkStatus();
  }
  int fail_after = -1;

 private:
  const std::vector<uint64_t> keys_;
};

std::vector<uint64_t> Keys(size_t n) {
  std::mt19937_64 random(19);
  std::vector<uint64_t> keys(n);
  for (uint64_t& key : keys) key = random();
  return keys;
}

// Rows of a checkpoint: the history and two floats of state follow from the key.
class StateRows : public Rows {
 public:
  explicit StateRows(std::vector<uint64_t> keys) : Rows(keys), keys_(std::move(keys)) {}
  static std::string Record(uint64_t key) {
    const uint64_t last_seen = key % 1000;
    const auto count = static_cast<uint32_t>(key % 77);
    std::string record(reinterpret_cast<const char*>(&last_seen), sizeof(last_seen));
    record.append(reinterpret_cast<const char*>(&count), sizeof(count));
    for (uint32_t d = 0; d < kShardImageDim + 2; ++d) {
      const float value = Weight(key, d);
      record.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    return record;
  }
  absl::Status ReadRecords(const uint32_t* rows, size_t n, size_t stride, char* to) override {
    for (size_t i = 0; i < n; ++i) {
      const std::string record = Record(keys_[rows[i]]);
      std::memcpy(to + i * stride, record.data(), record.size());
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<uint64_t> keys_;
};

std::string ImageOf(ShardCut* cut) {
  std::string image, chunk;
  while (true) {
    const auto more = cut->Next(&chunk);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) return image;
    EXPECT_LE(chunk.size(), size_t{256} << 10);
    image += chunk;
  }
}

TEST(ShardImageTest, TheOrderOfTheRowsInMemoryDoesNotMatter) {
  const TableLayouts tables = Tables(1);
  std::vector<uint64_t> keys = Keys(100000);
  const std::string image = ImageOf(CutOfRows(*tables[0], 0, std::make_unique<Rows>(keys)).get());
  EXPECT_GT(image.size(), keys.size() * 24);
  std::shuffle(keys.begin(), keys.end(), std::mt19937_64(2));
  EXPECT_EQ(ImageOf(CutOfRows(*tables[0], 0, std::make_unique<Rows>(keys)).get()), image);
}

TEST(ShardImageTest, ForeignAndRepeatedKeysAreInvalidArgument) {
  const TableLayouts tables = Tables(2);
  std::vector<uint64_t> keys;
  for (const uint64_t key : Keys(100)) {
    if (ShardOfKey(key, 2) == 1) keys.push_back(key);
  }
  std::string chunk;
  EXPECT_TRUE(CutOfRows(*tables[0], 1, std::make_unique<Rows>(keys))->Next(&chunk).ok());
  EXPECT_EQ(CutOfRows(*tables[0], 0, std::make_unique<Rows>(keys))->Next(&chunk).status().code(),
            absl::StatusCode::kInvalidArgument);
  keys.push_back(keys[3]);
  EXPECT_EQ(CutOfRows(*tables[0], 1, std::make_unique<Rows>(keys))->Next(&chunk).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ShardImageTest, AnErrorWhileReadingRowsLeavesNoFile) {
  const TableLayouts tables = Tables(1);
  MemoryEnv env;
  auto rows = std::make_unique<Rows>(Keys(100000));
  rows->fail_after = 3;
  const auto cut = CutOfRows(*tables[0], 0, std::move(rows));
  EXPECT_EQ(WriteShardFile("m", *tables[0], 0, cut.get(), &env).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_FALSE(env.Exists("m/e-0.shard"));
}

CutState State(uint32_t floats) {
  CutState state;
  state.facts.emplace().set_closed(9);
  state.facts->add_ranks()->set_sequence(9);
  state.state_floats = floats;
  return state;
}

TEST(ShardImageTest, RowsOfACheckpointHaveTheirHistoryAndState) {
  const TableLayouts tables = Tables(1);
  const std::vector<uint64_t> keys = Keys(50000);
  MemoryEnv env;
  const auto cut = CutOfRows(*tables[0], 0, std::make_unique<StateRows>(keys), State(2));
  const SavedFile file = *WriteShardFile("m", *tables[0], 0, cut.get(), &env);
  const auto reader = ShardFileReader::Open(&env, "m", tables[0]->config(), file);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->header().facts().closed(), 9u);
  EXPECT_EQ((*reader)->header().facts().ranks(0).sequence(), 9u);
  EXPECT_EQ((*reader)->values(), keys.size());
  RunReader runs(reader->get(), 0, (*reader)->runs());
  ValueReader values(reader->get(), 0, (*reader)->runs());
  std::set<uint64_t> met;
  for (std::string records = *runs.Next(100000); !records.empty(); records = *runs.Next(100000)) {
    const std::string pairs = *values.Next(100000);
    const size_t n = records.size() / (*reader)->record_bytes();
    ASSERT_EQ(pairs.size(), n * values.record_bytes());
    for (size_t i = 0; i < n; ++i) {
      const char* const record = records.data() + i * (*reader)->record_bytes();
      uint64_t key;
      std::memcpy(&key, record, sizeof(key));
      ASSERT_EQ(std::string(record + 8, (*reader)->record_bytes() - 8), StateRows::Record(key));
      const std::string pair = pairs.substr(i * values.record_bytes(), values.record_bytes());
      ASSERT_EQ(pair,
                std::string(record, 8) + StateRows::Record(key).substr(
                                             kRowHistoryBytes, kShardImageDim * sizeof(float)));
      met.insert(key);
    }
  }
  EXPECT_TRUE(values.Next(1)->empty());
  EXPECT_EQ(met.size(), keys.size());
}

TEST(ShardImageTest, ElementsOfACheckpointAreFollowedByTheirState) {
  const TableLayouts tables = Tables(1, 100);
  std::vector<float> arrays[3];
  std::vector<std::shared_ptr<const float>> lent;
  for (int a = 0; a < 3; ++a) {
    for (int i = 0; i < 100000; ++i) arrays[a].push_back(Weight(i, a));
    lent.emplace_back(std::shared_ptr<void>(), arrays[a].data());
  }
  MemoryEnv env;
  const auto cut = CutOfElements(*tables[1], 0, lent, State(2));
  const SavedFile file = *WriteShardFile("m", *tables[1], 0, cut.get(), &env);
  const auto reader = ShardFileReader::Open(&env, "m", tables[1]->config(), file);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->values(), 100000u);
  EXPECT_EQ((*reader)->records(), 300000u);
  RunReader runs(reader->get(), 0, 1);
  std::string all, wanted;
  for (std::string records = *runs.Next(70000); !records.empty(); records = *runs.Next(70000))
    all += records;
  for (const auto& array : arrays)
    wanted.append(reinterpret_cast<const char*>(array.data()), 400000);
  EXPECT_EQ(all, wanted);
  uint32_t shard = 1;
  const auto values = ReadShardFile("m", tables[1]->config(), file, &shard, &env);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->weights, arrays[0]);
}

TEST(ShardImageTest, EveryFlippedByteOfAFileWithStateIsDataLossThatNamesIt) {
  google::protobuf::LogSilencer silencer;
  const TableLayouts tables = Tables(1);
  MemoryEnv env;
  const auto cut = CutOfRows(*tables[0], 0, std::make_unique<StateRows>(Keys(50)), State(2));
  const SavedFile file = *WriteShardFile("m", *tables[0], 0, cut.get(), &env);
  const std::string good = env.Get("m/e-0.shard");
  uint32_t shard = 1;
  ASSERT_TRUE(ReadShardFile("m", tables[0]->config(), file, &shard, &env).ok());
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
    env.Put("m/e-0.shard", bad);
    const absl::Status status =
        ReadShardFile("m", tables[0]->config(), file, &shard, &env).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << i << " " << status;
    ASSERT_NE(std::string(status.message()).find("m/e-0.shard"), std::string::npos);
  }
}

// The digest is defined by keys and weights alone, so the number of runs does not change it.
TEST(ShardImageTest, TheDigestDoesNotDependOnRuns) {
  constexpr uint64_t kDenseRows = 1100;  // makes five blocks
  const std::vector<uint64_t> keys = Keys(200000);
  std::vector<float> elements(kDenseRows * 1000);
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = Weight(i, 0);
  std::map<uint64_t, std::vector<float>> sorted;
  for (const uint64_t key : keys) {
    for (uint32_t d = 0; d < kShardImageDim; ++d) sorted[key].push_back(Weight(key, d));
  }
  std::string plain;
  for (const auto& [key, weights] : sorted) {
    plain.append(reinterpret_cast<const char*>(&key), sizeof(key));
    plain.append(reinterpret_cast<const char*>(weights.data()), kShardImageDim * sizeof(float));
  }
  plain.append(reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(float));
  for (const uint32_t num_shards : {1u, 3u, 5000u}) {
    MemoryEnv env;
    const TableLayouts tables = Tables(num_shards, kDenseRows);
    Manifest manifest;
    std::vector<std::vector<uint64_t>> by_shard(num_shards);
    for (const uint64_t key : keys) by_shard[ShardOfKey(key, num_shards)].push_back(key);
    for (const auto& table : tables) *manifest.add_tables() = table->config();
    for (uint32_t s = 0; s < num_shards; ++s) {
      const auto cut = CutOfRows(*tables[0], s, std::make_unique<Rows>(by_shard[s]));
      *manifest.add_files() = *WriteShardFile("m", *tables[0], s, cut.get(), &env);
    }
    for (uint32_t s = 0; s < tables[1]->num_shards(); ++s) {
      const std::shared_ptr<const float> block(std::shared_ptr<void>(),
                                               elements.data() + s * tables[1]->block_elements());
      const auto cut = CutOfElements(*tables[1], s, {block});
      *manifest.add_files() = *WriteShardFile("m", *tables[1], s, cut.get(), &env);
    }
    const auto digest = ModelDigest("m", manifest, &env);
    ASSERT_TRUE(digest.ok()) << digest.status();
    EXPECT_EQ(*digest, Sha256Hex(plain)) << num_shards;
    EXPECT_EQ(*CountRecords("m", manifest, "e", &env), keys.size());
    EXPECT_EQ(*CountRecords("m", manifest, "w", &env), elements.size());
  }
}

}  // namespace
}  // namespace sluice
