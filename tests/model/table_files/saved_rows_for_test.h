// A checkpoint or model whose table `embedding` has given rows, and what folders hold.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/crc32c.h"
#include "common/base/file_origin.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file_reader.h"
#include "model/model_spec.h"
#include "model/table_files/record_rows.h"
#include "model/table_files/row_records.h"
#include "model/table_files/table_copy.h"
#include "tests/model/table_files/table_files_for_test.h"

namespace sluice {

struct SavedRow {
  uint64_t last_seen = 0;
  uint32_t count = 0;
  std::vector<float> floats;  // weights, then state
  bool operator==(const SavedRow& other) const {
    return last_seen == other.last_seen && count == other.count && floats == other.floats;
  }
};
using SavedTable = std::map<uint64_t, SavedRow>;

class SavedRowsTest : public TableFilesTest {
 protected:
  static constexpr uint32_t kShards = 4;
  static constexpr char kSaveId[] = "00000000000000ab";

  void SetUp() override {
    TableFilesTest::SetUp();
    facts_.set_schedule_steps(1000);
    facts_.set_updates(77);
    for (int day = 0; day < 10; ++day) {
      DayStart* const start = facts_.add_days();
      start->set_day(20000 + day);
      start->set_schedule_step(static_cast<uint64_t>(day) * 100);
    }
    auto spec = ModelSpec::Create(job_, BuiltInSpecs());
    ASSERT_TRUE(spec.ok()) << spec.status();
    for (const TableConfig& table : (*spec)->tables()) *tables_.Add() = table;
    for (TableConfig& table : tables_) {
      if (table.kind() == TableConfig::SPARSE) table.set_num_shards(kShards);
    }
  }

  // The table `embedding`, whose expire, evict, ... a test may set.
  TableConfig& Config() {
    for (TableConfig& table : tables_) {
      if (table.name() == "embedding") return table;
    }
    return *tables_.Add();
  }
  TableLayouts Layouts() const { return *CreateTableLayouts(tables_, job_.train().seed()); }
  std::shared_ptr<const TableLayout> Layout() {
    for (const auto& layout : Layouts()) {
      if (layout->name() == "embedding") return layout;
    }
    return nullptr;
  }

  // Rows as training leaves them: most are rare, old or both.
  SavedTable RandomRows(size_t n, uint64_t seed) {
    std::mt19937_64 random(seed);
    const size_t floats = Layout()->dim() + Layout()->state_floats();
    SavedTable rows;
    while (rows.size() < n) {
      SavedRow& row = rows[random()];
      row.last_seen = random() % 1000;
      row.count = static_cast<uint32_t>(1 + (random() % 64) / (1 + random() % 64));
      row.floats.clear();
      for (size_t i = 0; i < floats; ++i)
        row.floats.push_back(static_cast<float>(random() % 2000) / 1000.0f - 1.0f);
      if (random() % 16 == 0) std::fill(row.floats.begin(), row.floats.end(), 0.0f);
    }
    return rows;
  }

  // Writes a checkpoint with these rows and facts_, or a model with their weights.
  void WriteFolder(const std::string& dir, const SavedTable& rows, bool state, Env* env,
                   const std::string& save_id = kSaveId) {
    ModelFolder base;
    base.dir = "the job";
    base.job = job_;
    *base.manifest.mutable_tables() = tables_;
    base.layouts = Layouts();
    Manifest manifest = base.manifest;
    manifest.set_job_id("job-1");
    manifest.set_global_step(600);
    if (state) {
      manifest.mutable_checkpoint()->set_mode("sync");
      manifest.mutable_checkpoint()->set_worker_num(1);
    }
    for (const auto& table : base.layouts) {
      const auto copy = TableCopy::Create(base, /*saved=*/false, *table, state, env);
      ASSERT_TRUE(copy.ok()) << copy.status();
      if (table->name() != "embedding") {
        ASSERT_TRUE(copy->Write(dir, save_id, &manifest).ok());
        continue;
      }
      std::vector<std::string> records(kShards);
      for (const auto& [key, row] : rows) {
        std::string& to = records[table->ShardOf(key)];
        Append(&key, sizeof(key), &to);
        if (state) Append(&row.last_seen, sizeof(row.last_seen), &to);
        if (state) Append(&row.count, sizeof(row.count), &to);
        Append(row.floats.data(), FloatsOf(*table, state) * sizeof(float), &to);
      }
      for (uint32_t shard = 0; shard < kShards; ++shard) {
        CutState cut_state;
        if (state) cut_state = {facts_, table->state_floats()};
        const size_t bytes =
            8 + (state ? kRowHistoryBytes : 0) + FloatsOf(*table, state) * sizeof(float);
        const auto cut = CutOfRows(*table, shard,
                                   std::make_unique<RecordRows>(&records[shard], bytes), cut_state);
        auto file = WriteShardFile(dir, *table, shard, cut.get(), env, save_id);
        ASSERT_TRUE(file.ok()) << file.status();
        *manifest.add_files() = *file;
      }
    }
    if (state) AddWorkerFile(dir, save_id, env, &manifest);
    const absl::Status prepared = state ? PrepareCheckpoint(dir, job_, manifest, env, save_id)
                                        : PrepareModel(dir, job_, manifest, env, save_id).status();
    ASSERT_TRUE(prepared.ok()) << prepared;
    ASSERT_TRUE(CommitModel(dir, env, save_id).ok());
  }

  static void AddWorkerFile(const std::string& dir, const std::string& save_id, Env* env,
                            Manifest* manifest) {
    const std::string name = WorkerFileName(0, save_id),
                      text = absl::StrCat(kOwnGeoStateMagic, " of a worker");
    ASSERT_TRUE(env->WriteFile(absl::StrCat(dir, "/", name), {text}).ok());
    SavedFile* const file = manifest->add_files();
    file->set_name(name);
    file->set_bytes(text.size());
    file->set_crc32c(Crc32c(text.data(), text.size()));
  }

  // The rows of the folder's table, and the facts of its shards.
  SavedTable ReadFolder(const std::string& dir, Env* env,
                        std::vector<ShardFacts>* facts = nullptr) {
    SavedTable rows;
    const auto manifest = ReadManifest(dir, env);
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    if (!manifest.ok()) return rows;
    const auto files = *FilesOfTable(dir, *manifest, Config());
    for (const SavedFile* const file : files) {
      const auto reader = *ShardFileReader::Open(env, dir, Config(), *file);
      if (facts != nullptr) facts->push_back(reader->header().facts());
      RunReader runs(reader.get(), 0, reader->runs());
      while (true) {
        const auto piece = runs.Next(1 << 20);
        EXPECT_TRUE(piece.ok()) << piece.status();
        if (!piece.ok() || piece->empty()) break;
        const RowRecords records(*reader, *piece);
        for (size_t i = 0; i < records.size(); ++i) {
          SavedRow& row = rows[records.key(i)];
          if (reader->has_state()) row.last_seen = records.last_seen(i);
          if (reader->has_state()) row.count = records.count(i);
          const absl::string_view bytes = records.record(i).substr(reader->weights_offset());
          row.floats.resize(bytes.size() / sizeof(float));
          std::memcpy(row.floats.data(), bytes.data(), bytes.size());
        }
      }
    }
    return rows;
  }

  // All files of a folder.
  static std::map<std::string, std::string> FilesOf(const std::string& dir, Env* env) {
    std::map<std::string, std::string> files;
    const auto names = env->List(dir);
    if (!names.ok()) return files;
    for (const std::string& name : *names)
      files[name] = env->ReadFile(absl::StrCat(dir, "/", name)).value_or("(unreadable)");
    return files;
  }

  google::protobuf::RepeatedPtrField<TableConfig> tables_;
  ShardFacts facts_;  // of each shard

 private:
  static size_t FloatsOf(const TableLayout& table, bool state) {
    return table.dim() + (state ? table.state_floats() : 0);
  }
  static void Append(const void* from, size_t n, std::string* to) {
    to->append(static_cast<const char*>(from), n);
  }
};

}  // namespace sluice
