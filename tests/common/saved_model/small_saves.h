// Models and checkpoints of two small tables, made as pservers, rank 0 and the scheduler do
// together.
//
// All values of a save are its number, so that a save whose files are of several saves is noticed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/file_origin.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/saved_model.h"

namespace sluice {

// A sparse table of 20 rows in two shards, and a dense one.
inline TableLayouts SmallTables() {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  TableConfig* sparse = tables.Add();
  sparse->set_name("embedding");
  sparse->set_kind(TableConfig::SPARSE);
  sparse->set_num_shards(2);
  auto* group = sparse->add_columns();
  group->set_name("deep");
  group->set_dim(1);
  group->mutable_optimizer()->mutable_adagrad();
  TableConfig* dense = tables.Add();
  dense->set_name("bias");
  dense->set_kind(TableConfig::DENSE);
  dense->add_shape(2);
  dense->mutable_optimizer()->mutable_adagrad();
  return *CreateTableLayouts(tables, 1);
}

inline std::vector<uint64_t> SmallKeys(const TableLayout& table, uint32_t shard) {
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; key < 20; ++key) {
    if (table.ShardOf(key) == shard) keys.push_back(key);
  }
  return keys;
}

inline JobConfig SmallJob(uint64_t number) {
  JobConfig job;
  job.set_name(absl::StrCat("job", number));
  return job;
}

// ---------------------------------------------------------------------------------------- models

inline absl::Status SaveSmallModel(const std::string& dir, const TableLayouts& tables,
                                   uint64_t number, const std::string& save_id, Env* env) {
  Manifest manifest;
  manifest.set_job_id(SmallJob(number).name());
  for (const auto& table : tables) {
    *manifest.add_tables() = table->config();
    for (uint32_t s = 0; s < table->num_shards(); ++s) {
      ShardValues values;
      if (table->sparse()) values.keys = SmallKeys(*table, s);
      values.weights.assign(table->sparse() ? values.keys.size() : 2, static_cast<float>(number));
      auto file = WriteShardFile(dir, *table, s, values, env, save_id);
      if (!file.ok()) return file.status();
      *manifest.add_files() = *file;
    }
  }
  const auto prepared = PrepareModel(dir, SmallJob(number), manifest, env, save_id);
  return prepared.ok() ? CommitModel(dir, env, save_id) : prepared.status();
}

// Reads and checks every file of the model in `dir`, which must be of one save, and returns its
// job_id.
inline std::string LoadedModel(const std::string& dir, Env* env) {
  const auto manifest = ReadManifest(dir, env);
  EXPECT_TRUE(manifest.ok()) << manifest.status();
  if (!manifest.ok()) return "";
  const auto digest = ModelDigest(dir, *manifest, env);
  EXPECT_TRUE(digest.ok()) << digest.status();
  EXPECT_EQ(digest.value_or(""), manifest->model_digest());
  const auto job = ReadModelJob(dir, env);
  EXPECT_TRUE(job.ok()) << job.status();
  if (job.ok()) {
    EXPECT_EQ(job->name(), manifest->job_id());
  }
  return manifest->job_id();
}

// ----------------------------------------------------------------------------------- checkpoints

inline constexpr uint64_t kSmallInstance = 77;

// Rows whose floats are all `value`, in the form of a checkpoint.
class StateRows : public ShardRows {
 public:
  StateRows(std::vector<uint64_t> keys, float value) : keys_(std::move(keys)), value_(value) {}
  uint64_t size() const override { return keys_.size(); }
  absl::StatusOr<size_t> ReadKeys(uint64_t first, size_t n, uint64_t* keys,
                                  uint32_t* rows) override {
    std::copy_n(keys_.begin() + static_cast<int64_t>(first), n, keys);
    std::iota(rows, rows + n, static_cast<uint32_t>(first));
    return n;
  }
  absl::Status ReadRecords(const uint32_t*, size_t n, size_t stride, char* to) override {
    for (size_t i = 0; i < n; ++i, to += stride) {
      std::memset(to, 7, kRowHistoryBytes);
      for (size_t at = kRowHistoryBytes; at < kRowHistoryBytes + 2 * sizeof(float);
           at += sizeof(float)) {
        std::memcpy(to + at, &value_, sizeof(value_));
      }
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<uint64_t> keys_;
  const float value_;
};

// Writes files as versions did that looked at no values: the last float of each block is NaN.
class NotFiniteCut : public ShardCut {
 public:
  explicit NotFiniteCut(std::unique_ptr<ShardCut> cut) : cut_(std::move(cut)) {}
  absl::StatusOr<bool> Next(std::string* chunk) override {
    std::string next;
    const auto more = cut_->Next(&next);
    if (!more.ok() || !*more) return more;
    *chunk = next;
    if (chunks_++ == 0) return more;  // the header
    // Blocks follow, and then the index, which has their checksums.
    ShardFileIndex index;
    const size_t end = next.size() - sizeof(uint32_t);
    if (index.ParseFromArray(next.data(), static_cast<int>(end)) &&
        index.crc32c_size() == static_cast<int>(crcs_.size())) {
      for (size_t i = 0; i < crcs_.size(); ++i) index.set_crc32c(static_cast<int>(i), crcs_[i]);
      *chunk = index.SerializeAsString() + next.substr(end);
      EXPECT_EQ(chunk->size(), next.size());
      return more;
    }
    const float nan = std::nanf("");
    std::memcpy(chunk->data() + chunk->size() - sizeof nan, &nan, sizeof nan);
    crcs_.push_back(Crc32c(chunk->data(), chunk->size()));
    return more;
  }

 private:
  const std::unique_ptr<ShardCut> cut_;
  int chunks_ = 0;
  std::vector<uint32_t> crcs_;
};

// The files that the pservers write, and a rank in Geo. `change` may be null.
using ChangeCut = std::function<std::unique_ptr<ShardCut>(std::unique_ptr<ShardCut>)>;
inline absl::StatusOr<Manifest> WriteSmallShards(const std::string& root,
                                                 const TableLayouts& tables, uint64_t step,
                                                 uint64_t number, Env* env,
                                                 const ChangeCut& change = nullptr) {
  const std::string dir = CheckpointFolder(root, step);
  Manifest manifest;
  manifest.set_job_id("a-1");
  manifest.set_global_step(step);
  manifest.mutable_checkpoint()->set_mode("sync");
  manifest.mutable_checkpoint()->set_global_step(step);
  manifest.mutable_checkpoint()->set_unix_time(1e9 + static_cast<double>(number));
  CutState state;
  state.facts.emplace().set_closed(step);
  state.state_floats = 1;
  const auto value = static_cast<float>(number);
  const std::vector<float> array(2, value);
  for (const auto& table : tables) {
    *manifest.add_tables() = table->config();
    for (uint32_t s = 0; s < table->num_shards(); ++s) {
      std::unique_ptr<ShardCut> cut;
      if (table->sparse()) {
        cut = CutOfRows(*table, s, std::make_unique<StateRows>(SmallKeys(*table, s), value), state);
      } else {
        const std::shared_ptr<const float> lent(std::shared_ptr<void>(), array.data());
        cut = CutOfElements(*table, s, {lent, lent}, state);
      }
      if (change) cut = change(std::move(cut));
      auto file =
          WriteShardFile(dir, *table, s, cut.get(), env, CheckpointSaveId(kSmallInstance, number));
      if (!file.ok()) return file.status();
      *manifest.add_files() = *file;
    }
  }
  // A rank's own file, as Geo has it.
  const std::string bytes = absl::StrCat(kOwnGeoStateMagic, "of a rank in save ", number);
  SavedFile* const file = manifest.add_files();
  file->set_name(WorkerFileName(0, CheckpointSaveId(kSmallInstance, number)));
  file->set_bytes(bytes.size());
  file->set_crc32c(Crc32c(bytes.data(), bytes.size()));
  const absl::Status written = env->WriteFile(absl::StrCat(dir, "/", file->name()), {bytes});
  if (!written.ok()) return written;
  return manifest;
}

inline absl::Status CommitSmallCheckpoint(const std::string& root, uint64_t step, uint64_t number,
                                          const Manifest& manifest, Env* env) {
  return CommitCheckpoint(CheckpointFolder(root, step), SmallJob(number), manifest, env,
                          CheckpointSaveId(kSmallInstance, number));
}

inline absl::Status SaveSmallCheckpoint(const std::string& root, const TableLayouts& tables,
                                        uint64_t step, uint64_t number, Env* env) {
  const auto manifest = WriteSmallShards(root, tables, step, number, env);
  return manifest.ok() ? CommitSmallCheckpoint(root, step, number, *manifest, env)
                       : manifest.status();
}

// The number of the checkpoint that is chosen, all of which is read and is of one save. 0: none.
inline uint64_t LoadedCheckpoint(const std::string& root, const TableLayouts& tables, Env* env) {
  const auto chosen = ChooseCheckpoint(root, /*allow_older=*/false, env, nullptr);
  if (absl::IsNotFound(chosen.status())) return 0;
  EXPECT_TRUE(chosen.ok()) << chosen.status();
  if (!chosen.ok()) return 0;
  const absl::Status intact = VerifyCheckpoint(chosen->dir, env, nullptr);
  EXPECT_TRUE(intact.ok()) << intact;
  const auto job = ReadModelJob(chosen->dir, env);
  EXPECT_TRUE(job.ok()) << job.status();
  std::set<float> values;
  for (const auto& table : tables) {
    const absl::Status read = VisitShards(
        chosen->dir, chosen->manifest, table->name(), env, [&](uint32_t, ShardValues shard) {
          values.insert(shard.weights.begin(), shard.weights.end());
          return absl::OkStatus();
        });
    EXPECT_TRUE(read.ok()) << read;
  }
  EXPECT_EQ(values.size(), 1u);
  if (values.empty() || !job.ok()) return 0;
  const auto number = static_cast<uint64_t>(*values.begin());
  EXPECT_EQ(job->name(), SmallJob(number).name());
  return number;
}

}  // namespace sluice
