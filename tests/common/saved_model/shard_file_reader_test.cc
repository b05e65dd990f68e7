#include "common/saved_model/shard_file_reader.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

#include "common/base/crc32c.h"
#include "common/base/hash.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file.h"
#include "tests/common/saved_model/memory_env.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kShardFileReaderDim = 16;
constexpr size_t kRecord = 8 + 4 * kShardFileReaderDim;
constexpr char kName[] = "e-0.shard", kPath[] = "m/e-0.shard";

TableConfig Table(uint32_t num_shards) {
  TableConfig table;
  table.set_name("e");
  table.set_kind(TableConfig::SPARSE);
  table.set_num_shards(num_shards);
  table.add_columns()->set_dim(kShardFileReaderDim);
  table.mutable_columns(0)->mutable_optimizer()->mutable_sgd();
  return table;
}

std::string Row(uint64_t key) {
  std::string row(kRecord, '\0');
  std::memcpy(row.data(), &key, 8);
  for (uint32_t d = 0; d < kShardFileReaderDim; ++d) {
    const float weight = static_cast<float>(key % 1000) + d;
    std::memcpy(row.data() + 8 + 4 * d, &weight, 4);
  }
  return row;
}

// Reads all records of runs [begin, end) of the file.
absl::StatusOr<std::string> Read(Env* env, const TableConfig& table, const SavedFile& file,
                                 uint32_t begin = 0, uint32_t end = UINT32_MAX,
                                 size_t at_once = 64 << 10) {
  auto reader = ShardFileReader::Open(env, "m", table, file);
  if (!reader.ok()) return reader.status();
  RunReader runs(reader->get(), begin, std::min(end, (*reader)->runs()));
  std::string all;
  while (true) {
    auto records = runs.Next(at_once);
    if (!records.ok()) return records.status();
    if (records->empty()) return all;
    all += *records;
  }
}

// Holds a file of 16 runs, and its keys.
class ShardFileReaderTest : public ::testing::Test {
 protected:
  ShardFileReaderTest() {
    std::mt19937_64 random(7);
    while (keys_.size() < 40000) keys_.insert(random());
    file_ = Write(std::vector<uint64_t>(keys_.begin(), keys_.end()));
    good_ = env_.Get(kPath);
    reader_ = *ShardFileReader::Open(&env_, "m", table_, file_);
  }

  SavedFile Write(const std::vector<uint64_t>& keys) {
    google::protobuf::RepeatedPtrField<TableConfig> tables;
    *tables.Add() = table_;
    const auto layouts = CreateTableLayouts(tables, 1);
    ShardValues values;
    values.keys = keys;
    for (const uint64_t key : keys) {
      const std::string row = Row(key);
      values.weights.resize(values.weights.size() + kShardFileReaderDim);
      std::memcpy(&values.weights[values.weights.size() - kShardFileReaderDim], row.data() + 8,
                  4 * kShardFileReaderDim);
    }
    const auto file = WriteShardFile("m", *(*layouts)[0], 0, values, &env_);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *file : SavedFile();
  }

  // Stores a file of these bytes and returns its manifest entry, with the right size and checksum.
  SavedFile PutWithChecksum(const std::string& bytes) {
    env_.Put(kPath, bytes);
    SavedFile file;
    file.set_name(kName);
    file.set_bytes(bytes.size());
    file.set_crc32c(Crc32c(bytes.data(), bytes.size()));
    return file;
  }

  void ExpectDamaged(const std::string& bytes, const std::string& what) {
    env_.Put(kPath, bytes);
    const absl::Status status = Read(&env_, table_, file_).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << what << ": " << status;
    ASSERT_THAT(std::string(status.message()), HasSubstr(kPath)) << what;
  }

  // The first byte after the header, and the first after the last block.
  size_t body_begin() const { return 12 + *reinterpret_cast<const uint32_t*>(&good_[8]); }
  size_t body_end() const { return body_begin() + keys_.size() * kRecord; }

  MemoryEnv env_;
  const TableConfig table_ = Table(1);
  std::set<uint64_t> keys_;
  SavedFile file_;
  std::string good_;
  std::unique_ptr<ShardFileReader> reader_;
};

TEST_F(ShardFileReaderTest, RunsHoldTheirPartsOfTheHashRangeInAscendingOrder) {
  ASSERT_EQ(reader_->runs(), 16u);
  ASSERT_EQ(reader_->parts(), 16u);
  std::set<uint64_t> met;
  for (uint32_t run = 0; run < 16; ++run) {
    const auto records = Read(&env_, table_, file_, run, run + 1);
    ASSERT_TRUE(records.ok()) << records.status();
    EXPECT_EQ(records->size(), reader_->RunBytes(run));
    uint64_t last = 0;
    for (size_t at = 0; at < records->size(); at += kRecord) {
      uint64_t key;
      std::memcpy(&key, &(*records)[at], 8);
      ASSERT_EQ(ShardOfKey(key, 16), run);
      ASSERT_GE(key, last);
      last = key;
      ASSERT_EQ(records->substr(at, kRecord), Row(key));
      ASSERT_TRUE(met.insert(key).second);
    }
  }
  EXPECT_EQ(met, keys_);
}

TEST_F(ShardFileReaderTest, OnlyTheBytesOfARunAreRead) {
  env_.TakeBytesRead();
  const auto reader = *ShardFileReader::Open(&env_, "m", table_, file_);
  const uint64_t overhead = env_.TakeBytesRead();
  EXPECT_EQ(overhead, reader->overhead_bytes());
  EXPECT_LT(overhead, 1000u);
  RunReader run(reader.get(), 2, 3);
  while (!run.Next(1 << 20)->empty()) {
  }
  EXPECT_EQ(env_.TakeBytesRead(), reader->RunBytes(2));
}

TEST_F(ShardFileReaderTest, EveryPieceSizeGivesTheSameRecords) {
  const std::string all = *Read(&env_, table_, file_);
  for (const size_t at_once : {size_t{1}, size_t{kRecord}, size_t{1000}, size_t{1} << 30}) {
    EXPECT_EQ(*Read(&env_, table_, file_, 0, 16, at_once), all) << at_once;
  }
}

TEST_F(ShardFileReaderTest, EveryFlippedBitIsDataLossThatNamesTheFile) {
  google::protobuf::LogSilencer silencer;
  for (size_t i = 0; i < good_.size(); ++i) {
    if (i > body_begin() && i < body_end())
      i = std::min(i + 20011, body_end());  // a sample of the rows
    std::string bad = good_;
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
    ASSERT_NO_FATAL_FAILURE(ExpectDamaged(bad, absl::StrCat("byte ", i)));
  }
}

TEST_F(ShardFileReaderTest, TruncatedZeroedAndSwappedRegionsAreDataLoss) {
  google::protobuf::LogSilencer silencer;
  const size_t begin = body_begin(), end = body_end(), block = 3640 * kRecord;
  for (const size_t size : {size_t{0}, size_t{7}, size_t{12}, begin, begin + 1, end - 1, end,
                            end + 1, good_.size() - 4, good_.size() - 1}) {
    ASSERT_NO_FATAL_FAILURE(ExpectDamaged(good_.substr(0, size), absl::StrCat("cut at ", size)));
  }
  ASSERT_NO_FATAL_FAILURE(ExpectDamaged(good_ + "x", "one byte too many"));
  struct Region {
    size_t at, bytes;
  };
  for (const Region r :
       {Region{0, 8}, Region{8, 4}, Region{12, begin - 12}, Region{begin, 8},
        Region{begin + block, block}, Region{end - 4096, 4096}, Region{end, 16},
        Region{end, good_.size() - end}, Region{good_.size() - 4, 4}, Region{0, good_.size()}}) {
    std::string bad = good_;
    std::fill_n(bad.begin() + r.at, r.bytes, '\0');
    ASSERT_NO_FATAL_FAILURE(ExpectDamaged(bad, absl::StrCat("zeros from ", r.at)));
  }
  for (const size_t other : {begin + block, begin + 7 * block, end - block}) {
    std::string bad = good_;
    std::swap_ranges(bad.begin() + begin, bad.begin() + begin + block, bad.begin() + other);
    ASSERT_NO_FATAL_FAILURE(ExpectDamaged(bad, absl::StrCat("swapped with ", other)));
  }
}

TEST_F(ShardFileReaderTest, AnIntactFileOfAnotherModelIsDataLoss) {
  std::vector<uint64_t> keys(keys_.begin(), keys_.end());
  const auto gap = std::adjacent_find(keys.begin(), keys.end(), [](uint64_t a, uint64_t b) {
    return a + 1 < b && ShardOfKey(a, 16) == ShardOfKey(a + 1, 16);
  });
  ++*gap;
  const SavedFile theirs = Write(keys);
  ASSERT_TRUE(Read(&env_, table_, theirs).ok());
  ASSERT_EQ(theirs.bytes(), file_.bytes());
  EXPECT_EQ(ShardFileReader::Open(&env_, "m", table_, file_).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(ShardFileReaderTest, DamageInOneRunDoesNotAffectOtherRuns) {
  std::string bad = good_;
  bad[body_begin() + reader_->RunBytes(0) + 50] ^= 1;  // damages run 1
  env_.Put(kPath, bad);
  for (uint32_t run = 0; run < 16; ++run) {
    const absl::Status status = Read(&env_, table_, file_, run, run + 1).status();
    EXPECT_EQ(status.code(), run == 1 ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk) << run;
    if (run == 1) {
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("bytes ", body_begin() + reader_->RunBytes(0))));
    }
  }
}

TEST_F(ShardFileReaderTest, ADiskErrorKeepsItsCodeAndNamesThePlace) {
  const uint64_t bad_sector = body_begin() + 1000000;
  env_.before_read = [&](const std::string& path, uint64_t offset, uint64_t n) -> absl::Status {
    if (offset > bad_sector || offset + n <= bad_sector) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("read ", path, ": Input/output error"));
  };
  const absl::Status status = Read(&env_, table_, file_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr(kPath));
  EXPECT_THAT(std::string(status.message()), HasSubstr("(bytes "));
}

// The parts of a file of the format, each of which a test can make wrong.
struct Parts {
  ShardFileHeader header;
  std::vector<std::string> blocks;
  ShardFileIndex index;

  explicit Parts(const std::vector<std::vector<uint64_t>>& keys_of_blocks) {
    header.set_table("e");
    header.set_kind(TableConfig::SPARSE);
    header.set_dim(kShardFileReaderDim);
    header.set_runs(1);
    for (const auto& keys : keys_of_blocks) {
      std::string block;
      for (const uint64_t key : keys) block += Row(key);
      header.set_rows(header.rows() + keys.size());
      index.add_records(static_cast<uint32_t>(keys.size()));
      index.add_crc32c(Crc32c(block.data(), block.size()));
      blocks.push_back(block);
    }
    index.add_run_blocks(static_cast<uint32_t>(blocks.size()));
  }
  std::string File() const {
    std::string bytes = EncodeShardFileHeader(header);
    for (const std::string& block : blocks) bytes += block;
    const std::string tail = index.SerializeAsString();
    const uint32_t length = static_cast<uint32_t>(tail.size());
    return bytes + tail + std::string(reinterpret_cast<const char*>(&length), 4);
  }
};

TEST_F(ShardFileReaderTest, ImpossibleContentsAreDataLossDespiteRightChecksums) {
  EXPECT_TRUE(Read(&env_, table_, PutWithChecksum(Parts({{1, 2}, {3}}).File())).ok());
  std::vector<std::pair<std::string, Parts>> lies;
  lies.push_back({"keys that do not ascend", Parts({{1, 3}, {2}})});
  lies.push_back({"a key twice", Parts({{1, 1}})});
  Parts parts({{1, 2}, {3}});
  parts.index.set_run_blocks(0, 1);
  lies.push_back({"a block outside every run", parts});
  parts.index.set_run_blocks(0, 7);
  lies.push_back({"a run with more blocks than the index", parts});
  parts.index.set_run_blocks(0, 2);
  parts.index.add_run_blocks(0);
  lies.push_back({"one run too many", parts});
  parts = Parts({{1, 2}, {3}});
  parts.index.set_records(0, 1);
  lies.push_back({"too few records", parts});
  parts.index.set_records(0, UINT32_MAX);
  lies.push_back({"too many records", parts});
  parts.index.set_records(0, 0);
  lies.push_back({"an empty block", parts});
  parts = Parts({{1, 2}, {3}});
  parts.index.add_crc32c(5);
  lies.push_back({"one checksum too many", parts});
  parts = Parts({{1, 2}, {3}});
  parts.header.set_rows(4);
  lies.push_back({"more rows than records", parts});
  parts.header.set_rows(3);
  parts.header.set_runs(0);
  lies.push_back({"no runs", parts});
  parts.header.set_runs(UINT32_MAX);
  lies.push_back({"absurdly many runs", parts});
  parts.header.set_runs(1);
  parts.header.set_state_floats(1);
  lies.push_back({"optimizer state", parts});
  parts = Parts({{1, 2, 3, 4, 5, 6, 7, 8}});
  parts.header.set_runs(2);
  parts.index.add_run_blocks(0);
  lies.push_back({"keys of another run", parts});
  for (const auto& [what, lie] : lies) {
    const absl::Status status = Read(&env_, table_, PutWithChecksum(lie.File())).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << what << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(kPath)) << what;
  }
  // With two shards, half of these keys belong to the other shard.
  EXPECT_EQ(Read(&env_, Table(2), PutWithChecksum(Parts({{1, 2, 3, 4, 5, 6, 7, 8}}).File()))
                .status()
                .code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(ShardFileReaderTest, AFileOfVersionOneIsOneRunOfOneBlock) {
  Parts parts({{1, 2, 9, 70}});
  parts.header.clear_runs();
  std::string bytes = EncodeShardFileHeader(parts.header) + parts.blocks[0];
  bytes.replace(0, 8, "SLSHARD1");
  const SavedFile file = PutWithChecksum(bytes);
  EXPECT_EQ(*Read(&env_, table_, file), parts.blocks[0]);
  EXPECT_EQ(*Read(&env_, table_, file, 0, 1, kRecord), parts.blocks[0]) << "a row at a time";
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string bad = bytes;
    bad[i] ^= 4;
    env_.Put(kPath, bad);
    const absl::Status status = Read(&env_, table_, file, 0, 1, kRecord).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << i;
    ASSERT_THAT(std::string(status.message()), HasSubstr(kPath)) << i;
  }
  parts.header.set_rows(0);
  std::string empty = EncodeShardFileHeader(parts.header);
  empty.replace(0, 8, "SLSHARD1");
  EXPECT_EQ(*Read(&env_, table_, PutWithChecksum(empty)), "");
}

TEST_F(ShardFileReaderTest, RandomFilesNeverCrash) {
  google::protobuf::LogSilencer silencer;
  std::mt19937_64 random(41);
  int refused = 0;
  const std::string good = Parts({{1, 2}, {3}, {4, 5, 6}}).File();
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = good;
    for (uint64_t k = 1 + random() % 4; k > 0; --k)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (round % 3 == 0) bytes.resize(random() % bytes.size());
    const auto records = Read(&env_, table_, PutWithChecksum(bytes));
    refused += !records.ok();
    if (!records.ok()) {
      ASSERT_EQ(records.status().code(), absl::StatusCode::kDataLoss) << records.status();
    }
  }
  EXPECT_GT(refused, 2500);
}

}  // namespace
}  // namespace sluice
