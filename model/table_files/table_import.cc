#include "model/table_files/table_import.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/output_target.h"
#include "common/base/random_id.h"
#include "common/base/status_macros.h"
#include "common/config/mode.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file_reader.h"
#include "common/table/not_finite.h"
#include "model/model_spec.h"
#include "model/table_files/dense_source.h"
#include "model/table_files/model_folder.h"
#include "model/table_files/record_rows.h"
#include "model/table_files/row_keys.h"
#include "model/table_files/row_spool.h"
#include "model/table_files/table_copy.h"
#include "model/table_files/table_source.h"

namespace sluice {
namespace {

constexpr uint32_t kFewestShards = 16, kMostShards = 4096;
constexpr uint64_t kShardBytes = 64 << 20;  // about, of a table whose job names no number of shards
constexpr size_t kExamples = 3;

// Where rows may be divided that do not go to a folder of this host: on a disk, which /tmp may not
// be.
std::string TemporaryFolder() {
  const char* const chosen = std::getenv("TMPDIR");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  std::error_code ignored;
  return std::filesystem::is_directory("/var/tmp", ignored) ? "/var/tmp" : "/tmp";
}

// The first key that two of the rows have.
std::optional<uint64_t> RepeatedKey(ShardRows* rows) {
  constexpr size_t kAtOnce = 4096;
  std::vector<uint64_t> keys(rows->size());
  uint32_t numbers[kAtOnce];
  for (size_t i = 0; i < keys.size(); i += kAtOnce) {
    const size_t n = std::min(kAtOnce, keys.size() - i);
    if (!rows->ReadKeys(i, n, &keys[i], numbers).ok()) return std::nullopt;
  }
  std::sort(keys.begin(), keys.end());
  const auto repeated = std::adjacent_find(keys.begin(), keys.end());
  return repeated == keys.end() ? std::nullopt : std::optional<uint64_t>(*repeated);
}

class Import {
 public:
  Import(const ImportOptions& options, const ModelList& models, Env* env)
      : options_(options),
        models_(models),
        env_(env),
        save_id_(absl::StrFormat("%016x", RandomId())) {}

  absl::StatusOr<ImportReport> Run() {
    SLUICE_RETURN_IF_ERROR(CheckOutput());
    SLUICE_RETURN_IF_ERROR(ReadBase());
    SLUICE_RETURN_IF_ERROR(OpenTable());
    const bool existed = env_->Exists(options_.output);
    SLUICE_RETURN_IF_ERROR(env_->MakeDirs(options_.output));
    const absl::Status status = WriteModel();
    if (!status.ok()) {
      DiscardModel(options_.output, env_, save_id_);
      if (!existed) env_->RemoveDir(options_.output).IgnoreError();
      return status;
    }
    return report_;
  }

 private:
  absl::Status CheckOutput() const {
    if (!options_.like.empty())
      SLUICE_RETURN_IF_ERROR(CheckIsOutside(options_.output, options_.like));
    if (env_->Exists(absl::StrCat(options_.output, "/MANIFEST")) && !options_.overwrite) {
      return absl::InvalidArgumentError(absl::StrCat(
          options_.output, " holds a model; give another folder, or --overwrite to replace it"));
    }
    return absl::OkStatus();
  }

  // The job, the tables, and where the other tables come from.
  absl::Status ReadBase() {
    if (!options_.like.empty()) {
      SLUICE_ASSIGN_OR_RETURN(base_, ModelFolder::Read(options_.like, env_));
      if (options_.state && !base_.checkpoint()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "--state: ", options_.like,
            " is a model, whose other tables have no optimizer state; give --like=CHECKPOINT (a "
            "folder step-N) or --job, or leave out --state"));
      }
    } else {
      base_.dir = "the job";
      base_.job = *options_.job;
      if (options_.state && ModeOf(base_.job.strategy()) == Mode::kGeo) {
        return absl::InvalidArgumentError(
            "--state: in Geo the workers have the optimizer's state; leave it out, and start from "
            "the weights with initial_model");
      }
    }
    SLUICE_ASSIGN_OR_RETURN(spec_, ModelSpec::Create(base_.job, models_));
    if (!options_.like.empty()) return absl::OkStatus();
    for (const TableConfig& table : spec_->tables()) *base_.manifest.add_tables() = table;
    for (TableConfig& table : *base_.manifest.mutable_tables()) {
      if (table.kind() != TableConfig::SPARSE || table.num_shards() > 0) continue;
      table.set_num_shards(kFewestShards);
      free_shards_.push_back(table.name());
    }
    SLUICE_ASSIGN_OR_RETURN(base_.layouts,
                            CreateTableLayouts(base_.manifest.tables(), base_.job.train().seed()));
    return absl::OkStatus();
  }

  absl::Status OpenTable() {
    std::string name = options_.table;
    if (name.empty() && !options_.feature.empty()) {
      SLUICE_ASSIGN_OR_RETURN(const FeatureKeys keys,
                              FeatureKeys::Create(base_.job, *spec_, options_.feature));
      name = keys.table();
    }
    SLUICE_ASSIGN_OR_RETURN(table_, ChooseTable(base_.dir, base_.layouts, name));
    report_.table = table_->name();
    report_.sparse = table_->sparse();
    SLUICE_ASSIGN_OR_RETURN(const TableCopy copy, CopyOf(*table_));
    state_floats_ = copy.state_floats();
    if (!table_->sparse()) {
      for (const auto& [flag, given] : std::initializer_list<std::pair<const char*, bool>>{
               {"--feature", !options_.feature.empty()},
               {"--vocabulary", !options_.vocabulary.empty()},
               {"--column", !options_.column.empty()},
               {"--name", !options_.name.empty()},
               {"--text_columns", !options_.text_columns.empty()}}) {
        if (!given) continue;
        return absl::InvalidArgumentError(absl::StrCat(flag, " is for tables of rows, and '",
                                                       table_->name(), "' is dense; leave it out"));
      }
      if (options_.files.size() != 1)
        return absl::InvalidArgumentError("a dense table comes from one file, .npz or .npy");
      SLUICE_ASSIGN_OR_RETURN(dense_,
                              DenseSource::Open(options_.files[0], *table_, state_floats_, env_));
      return absl::OkStatus();
    }
    columns_.emplace(*table_, state_floats_);
    SLUICE_RETURN_IF_ERROR(OpenSource());
    return ChooseShards();
  }

  absl::Status OpenSource() {
    SourceOptions source;
    source.columns = &*columns_;
    source.state = options_.state;
    source.column = options_.column;
    source.name = options_.name;
    source.text_columns = options_.text_columns;
    SLUICE_ASSIGN_OR_RETURN(source_, TableSource::Open(options_.files, source, env_));
    SLUICE_ASSIGN_OR_RETURN(
        RowKeys keys,
        RowKeys::Create(base_.job, *spec_, {table_->name(), options_.feature, options_.vocabulary},
                        *source_, env_));
    keys_.emplace(std::move(keys));
    report_.unused_columns = source_->unused();
    report_.initial_columns.clear();
    for (size_t i = 0; i < columns_->groups(); ++i) {
      if (!source_->has()[i]) report_.initial_columns.push_back(columns_->floats()[i].group);
    }
    return absl::OkStatus();
  }

  // A table whose job names no number of shards gets as many as keep a shard small.
  absl::Status ChooseShards() {
    if (std::find(free_shards_.begin(), free_shards_.end(), table_->name()) == free_shards_.end())
      return absl::OkStatus();
    const uint64_t bytes = ExpectedBytes();
    uint32_t shards = kFewestShards;
    while (shards < kMostShards && bytes / shards > kShardBytes) shards *= 2;
    if (shards == kFewestShards) return absl::OkStatus();
    const uint32_t id = table_->id();
    base_.manifest.mutable_tables(static_cast<int>(id))->set_num_shards(shards);
    SLUICE_ASSIGN_OR_RETURN(base_.layouts,
                            CreateTableLayouts(base_.manifest.tables(), base_.job.train().seed()));
    table_ = base_.layouts[id].get();  // the earlier layouts are gone
    return absl::OkStatus();
  }

  // About how many bytes the rows of the source take in the spool.
  uint64_t ExpectedBytes() const {
    constexpr uint64_t kMostRatio = 1000;  // of what is compressed
    uint64_t size = 0;
    for (const std::string& file : options_.files) size += env_->FileSize(file).value_or(0);
    // Text takes about as much room as its numbers.
    if (source_->rows() == 0) return size;
    // A damaged header may claim any number of rows.
    const uint64_t rows = std::min(source_->rows(), UINT64_MAX / RecordBytes());
    return std::min(rows * RecordBytes(), size * kMostRatio);
  }

  // How the tables of the base are brought into the output.
  absl::StatusOr<TableCopy> CopyOf(const TableLayout& table) const {
    return TableCopy::Create(base_, !options_.like.empty(), table, options_.state, env_);
  }

  size_t RecordBytes() const {
    return sizeof(uint64_t) + (options_.state ? kRowHistoryBytes : 0) +
           sizeof(float) * columns_->row_floats();
  }

  absl::Status WriteModel() {
    Manifest manifest = base_.manifest;
    manifest.clear_files();
    manifest.clear_model_digest();
    manifest.clear_export_();
    if (!options_.state) manifest.clear_checkpoint();
    if (options_.state && options_.like.empty()) {
      manifest.mutable_checkpoint()->set_mode(ModeName(ModeOf(base_.job.strategy())));
      manifest.mutable_checkpoint()->set_worker_num(base_.job.worker_num());
    }
    for (const auto& table : base_.layouts) {
      SLUICE_ASSIGN_OR_RETURN(TableCopy copy, CopyOf(*table));
      if (table.get() != table_) {
        SLUICE_RETURN_IF_ERROR(copy.Write(options_.output, save_id_, &manifest));
      } else if (table->sparse()) {
        SLUICE_RETURN_IF_ERROR(WriteRows(copy, &manifest));
      } else {
        SLUICE_RETURN_IF_ERROR(WriteDense(copy, &manifest));
      }
    }
    if (options_.state) {
      SLUICE_RETURN_IF_ERROR(
          PrepareCheckpoint(options_.output, base_.job, std::move(manifest), env_, save_id_));
    } else {
      SLUICE_ASSIGN_OR_RETURN(
          manifest, PrepareModel(options_.output, base_.job, std::move(manifest), env_, save_id_));
      report_.digest = manifest.model_digest();
    }
    return CommitModel(options_.output, env_, save_id_);
  }

  absl::Status WriteDense(const TableCopy& copy, Manifest* manifest) {
    report_.rows = table_->elements();
    report_.unused_columns = dense_->unused();
    for (uint32_t shard = 0; shard < table_->num_files(); ++shard) {
      SLUICE_ASSIGN_OR_RETURN(auto arrays, dense_->Next(table_->ShardElements(shard)));
      SLUICE_ASSIGN_OR_RETURN(CutState state, copy.StateOf(shard));
      const auto cut = CutOfElements(*table_, shard, std::move(arrays), std::move(state));
      SLUICE_ASSIGN_OR_RETURN(
          *manifest->add_files(),
          WriteShardFile(options_.output, *table_, shard, cut.get(), env_, save_id_));
    }
    return dense_->CheckEnd();
  }

  absl::Status WriteRows(const TableCopy& copy, Manifest* manifest) {
    const bool local = env_->PlaceOf(options_.output).rename;
    SLUICE_ASSIGN_OR_RETURN(
        const auto spool,
        RowSpool::Create(local ? options_.output : TemporaryFolder(),
                         local ? RowSpool::Folder::kOutput : RowSpool::Folder::kTemporary,
                         table_->num_files(), RecordBytes(), ExpectedBytes()));
    SLUICE_RETURN_IF_ERROR(SpoolRows(spool.get()));
    std::string records;
    const auto rows_of = [&](uint32_t shard) -> absl::StatusOr<std::unique_ptr<ShardRows>> {
      if (spool->PartBytes(shard) > options_.most_shard_bytes)
        return SpooledRows::Create(spool.get(), shard);
      return std::make_unique<RecordRows>(&records, RecordBytes());
    };
    for (uint32_t shard = 0; shard < table_->num_files(); ++shard) {
      if (spool->PartBytes(shard) <= options_.most_shard_bytes)
        SLUICE_RETURN_IF_ERROR(spool->Read(shard, &records));
      SLUICE_ASSIGN_OR_RETURN(CutState state, copy.StateOf(shard));
      SLUICE_ASSIGN_OR_RETURN(auto rows, rows_of(shard));
      const auto cut = CutOfRows(*table_, shard, std::move(rows), std::move(state));
      auto file = WriteShardFile(options_.output, *table_, shard, cut.get(), env_, save_id_);
      if (absl::IsInvalidArgument(file.status())) {
        SLUICE_ASSIGN_OR_RETURN(rows, rows_of(shard));
        if (const auto key = RepeatedKey(rows.get())) return NameRepeated(*key);
      }
      SLUICE_RETURN_IF_ERROR(file.status());
      *manifest->add_files() = *std::move(file);
    }
    return absl::OkStatus();
  }

  absl::Status SpoolRows(RowSpool* spool) {
    SourceBlock block;
    std::vector<std::optional<uint64_t>> keys;
    const size_t floats = columns_->row_floats();
    std::vector<float> initial(table_->dim());
    for (uint64_t first = 0;; first += block.rows) {
      SLUICE_ASSIGN_OR_RETURN(const bool more, source_->Next(&block));
      if (!more) {
        report_.unused_lines = keys_->LinesBehind(first);
        return absl::OkStatus();
      }
      SLUICE_RETURN_IF_ERROR(keys_->Resolve(block, first, &keys));
      for (size_t i = 0; i < block.rows; ++i) {
        if (!keys[i]) {
          if (report_.unmatched++ < kExamples) {
            report_.examples.push_back(absl::StrCat(keys_->NameOf(block, i, first), " (",
                                                    source_->PlaceOf(first + i), ")"));
          }
          continue;
        }
        float* const row = block.floats.data() + i * floats;
        if (!report_.initial_columns.empty()) FillInitial(*keys[i], &initial, row);
        SLUICE_RETURN_IF_ERROR(AddRow(block, i, first, *keys[i], row, spool));
        ++report_.rows;
      }
    }
  }

  // Sets the columns that the file lacks.
  void FillInitial(uint64_t key, std::vector<float>* initial, float* row) const {
    table_->InitialRow(key, initial->data());
    for (size_t c = 0; c < columns_->groups(); ++c) {
      const TableColumns::Floats& column = columns_->floats()[c];
      if (source_->has()[c]) continue;
      std::copy_n(initial->data() + column.begin, column.dim, row + column.begin);
    }
  }

  absl::Status AddRow(const SourceBlock& block, size_t i, uint64_t first, uint64_t key,
                      const float* row, RowSpool* spool) {
    const size_t floats = columns_->row_floats();
    const auto* const values = reinterpret_cast<const UnalignedFloat*>(row);
    if (!kernels_.all_finite(floats, values)) return NotFinite(block, i, first, row);
    SLUICE_ASSIGN_OR_RETURN(char* to, spool->Add(table_->ShardOf(key)));
    const auto put = [&to](const void* from, size_t n) {
      std::memcpy(to, from, n);
      to += n;
    };
    put(&key, sizeof(key));
    if (options_.state) {
      put(&block.last_seen[i], sizeof(uint64_t));
      put(&block.count[i], sizeof(uint32_t));
    }
    put(row, floats * sizeof(float));
    return absl::OkStatus();
  }

  absl::Status NotFinite(const SourceBlock& block, size_t i, uint64_t first,
                         const float* row) const {
    const size_t at =
        FirstNotFinite(reinterpret_cast<const UnalignedFloat*>(row), columns_->row_floats());
    std::string column;
    size_t index = at;
    for (const TableColumns::Floats& one : columns_->floats()) {
      if (at < one.begin || at >= one.begin + one.dim) continue;
      column = one.name;
      index = at - one.begin;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        source_->PlaceOf(first + i), " (", keys_->NameOf(block, i, first), "): value ", index,
        " of column '", column, "' is ", row[at], ", which no table may have; remove the row"));
  }

  // Reads the source again, to name the rows that have one key.
  absl::Status NameRepeated(uint64_t key) {
    SLUICE_RETURN_IF_ERROR(OpenSource());
    SourceBlock block;
    std::vector<std::optional<uint64_t>> keys;
    std::vector<std::string> places;
    for (uint64_t first = 0; places.size() < 2; first += block.rows) {
      SLUICE_ASSIGN_OR_RETURN(const bool more, source_->Next(&block));
      if (!more) break;
      SLUICE_RETURN_IF_ERROR(keys_->Resolve(block, first, &keys));
      for (size_t i = 0; i < block.rows && places.size() < 2; ++i) {
        if (keys[i] != key) continue;
        places.push_back(
            absl::StrCat(source_->PlaceOf(first + i), " (", keys_->NameOf(block, i, first), ")"));
      }
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "key ", key, " occurs twice: ", absl::StrJoin(places, " and "),
        keys_->folded() ? "; the feature's hash_buckets give several values one key: keep one of "
                          "them"
                        : "; a key has one row: remove one of them"));
  }

  const ImportOptions& options_;
  const ModelList& models_;
  Env* const env_;
  const std::string save_id_;
  const Kernels& kernels_ = BestKernels();
  ModelFolder base_;
  std::unique_ptr<ModelSpec> spec_;
  std::vector<std::string> free_shards_;  // tables whose job names no number of shards
  const TableLayout* table_ = nullptr;    // in base_.layouts
  uint32_t state_floats_ = 0;             // of a row or an element, in the output
  std::optional<TableColumns> columns_;   // sparse
  std::unique_ptr<TableSource> source_;   // sparse
  std::optional<RowKeys> keys_;           // sparse
  std::unique_ptr<DenseSource> dense_;    // dense
  ImportReport report_;
};

}  // namespace

absl::StatusOr<ImportReport> ImportTable(const ImportOptions& options, const ModelList& models,
                                         Env* env) {
  return Import(options, models, env).Run();
}

}  // namespace sluice
