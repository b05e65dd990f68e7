#include "common/saved_model/shard_image.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "common/base/sha256.h"
#include "common/saved_model/saved_model.h"
#include "tests/common/saved_model/memory_env.h"

namespace sluice {
namespace {

constexpr uint32_t kDim = 4;

TableLayouts Tables(uint32_t num_shards, uint64_t dense_rows = 1) {
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
  absl::Status ReadKeys(uint64_t first, size_t n, uint64_t* keys) override {
    std::copy_n(keys_.begin() + static_cast<int64_t>(first), n, keys);
    return absl::OkStatus();
  }
  absl::Status ReadWeights(const uint32_t* rows, size_t n, size_t stride, char* to) override {
    if (fail_after-- == 0) return absl::AbortedError("changed");
    for (size_t i = 0; i < n; ++i) {
      for (uint32_t d = 0; d < kDim; ++d) {
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

// The digest is defined by keys and weights alone, so the number of runs does not change it.
TEST(ShardImageTest, TheDigestDoesNotDependOnRuns) {
  constexpr uint64_t kDenseRows = 1100;  // makes five blocks
  const std::vector<uint64_t> keys = Keys(200000);
  std::vector<float> elements(kDenseRows * 1000);
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = Weight(i, 0);
  std::map<uint64_t, std::vector<float>> sorted;
  for (const uint64_t key : keys) {
    for (uint32_t d = 0; d < kDim; ++d) sorted[key].push_back(Weight(key, d));
  }
  std::string plain;
  for (const auto& [key, weights] : sorted) {
    plain.append(reinterpret_cast<const char*>(&key), sizeof(key));
    plain.append(reinterpret_cast<const char*>(weights.data()), kDim * sizeof(float));
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
      const auto cut = CutOfElements(*tables[1], s, block);
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
