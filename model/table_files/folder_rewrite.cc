#include "model/table_files/folder_rewrite.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/output_target.h"
#include "common/base/random_id.h"
#include "common/base/status_macros.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file.h"
#include "model/table_files/record_rows.h"
#include "model/table_files/table_copy.h"

namespace sluice {
namespace {

constexpr size_t kRewritePieceBytes = 1 << 20;
// Of a shard, so that its header stays far below what readers accept. Without all of them the next
// export begins a new chain.
constexpr int kMostTombstones = 1 << 14;

void CountFates(const std::vector<RowFate>& fates, RowTurnover* turnover) {
  const auto count = [&](RowFate fate) {
    return static_cast<uint64_t>(std::count(fates.begin(), fates.end(), fate));
  };
  turnover->set_expired(turnover->expired() + count(RowFate::kExpired));
  turnover->set_evicted(turnover->evicted() + count(RowFate::kEvicted));
  turnover->set_deleted(turnover->deleted() + count(RowFate::kDeleted));
}

class Rewrite {
 public:
  Rewrite(const ModelFolder& from, const TableLayout& table, std::string output,
          RowChooser* chooser, Env* env)
      : from_(from),
        table_(table),
        output_(std::move(output)),
        chooser_(*chooser),
        env_(env),
        save_id_(SaveIdOfCheckpoint(from.manifest)) {
    if (save_id_.empty()) save_id_ = absl::StrFormat("%016x", RandomId());
  }

  absl::StatusOr<RewriteReport> Run() {
    Manifest manifest = from_.manifest;
    if (manifest.export_().from() > 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          from_.dir,
          " is a delta of an export, not a whole model; make one with sluice delta apply"));
    }
    // A base with other rows is none of its chain.
    manifest.clear_export_();
    manifest.clear_files();
    manifest.clear_model_digest();
    if (output_.empty()) {
      SLUICE_RETURN_IF_ERROR(RewriteTable(&manifest));
      return report_;
    }
    SLUICE_RETURN_IF_ERROR(CheckOutput());
    const bool existed = env_->Exists(output_);
    SLUICE_RETURN_IF_ERROR(env_->MakeDirs(output_));
    const absl::Status status = Write(std::move(manifest));
    if (!status.ok()) {
      DiscardModel(output_, env_, save_id_);
      if (!existed) env_->RemoveDir(output_).IgnoreError();
      return status;
    }
    return report_;
  }

 private:
  absl::Status CheckOutput() const {
    SLUICE_RETURN_IF_ERROR(CheckIsOutside(output_, from_.dir));
    // The second is what a checkpoint that has lost its manifest still has.
    for (const char* const name : {"/MANIFEST", "/job.textproto"}) {
      if (!env_->Exists(absl::StrCat(output_, name))) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          output_, " holds a model or checkpoint, which stays; give a new folder for the output"));
    }
    return absl::OkStatus();
  }

  absl::Status Write(Manifest manifest) {
    for (const auto& table : from_.layouts) {
      if (table.get() == &table_) {
        SLUICE_RETURN_IF_ERROR(RewriteTable(&manifest));
        continue;
      }
      SLUICE_ASSIGN_OR_RETURN(const TableCopy copy, TableCopy::Create(from_, /*saved=*/true, *table,
                                                                      from_.checkpoint(), env_));
      SLUICE_RETURN_IF_ERROR(copy.Write(output_, save_id_, &manifest));
    }
    for (const SavedFile& file : from_.manifest.files()) {
      if (!IsWorkerFileName(file.name())) continue;
      const std::string rank = file.name().substr(0, file.name().find('.'));
      SLUICE_ASSIGN_OR_RETURN(
          *manifest.add_files(),
          CopySavedFile(from_.dir, file, output_, absl::StrCat(rank, ".", save_id_), env_));
    }
    if (from_.checkpoint()) {
      SLUICE_RETURN_IF_ERROR(
          PrepareCheckpoint(output_, from_.job, std::move(manifest), env_, save_id_));
    } else {
      SLUICE_ASSIGN_OR_RETURN(
          manifest, PrepareModel(output_, from_.job, std::move(manifest), env_, save_id_));
      report_.digest = manifest.model_digest();
    }
    return CommitModel(output_, env_, save_id_);
  }

  absl::Status RewriteTable(Manifest* manifest) {
    SLUICE_ASSIGN_OR_RETURN(const auto files,
                            FilesOfTable(from_.dir, from_.manifest, table_.config()));
    for (uint32_t shard = 0; shard < files.size(); ++shard)
      SLUICE_RETURN_IF_ERROR(RewriteShard(shard, *files[shard], manifest));
    return absl::OkStatus();
  }

  absl::Status RewriteShard(uint32_t shard, const SavedFile& file, Manifest* manifest) {
    SLUICE_ASSIGN_OR_RETURN(const auto reader,
                            ShardFileReader::Open(env_, from_.dir, table_.config(), file));
    std::string records;
    records.reserve(reader->records() * reader->record_bytes());
    RunReader runs(reader.get(), 0, reader->runs());
    while (true) {
      SLUICE_ASSIGN_OR_RETURN(const std::string piece, runs.Next(kRewritePieceBytes));
      if (piece.empty()) break;
      records += piece;
    }
    const RowRecords rows(*reader, records);
    std::vector<RowFate> fates(rows.size(), RowFate::kStays);
    SLUICE_RETURN_IF_ERROR(chooser_.Choose(shard, reader->header().facts(), rows, &fates));
    const auto kept =
        static_cast<uint64_t>(std::count(fates.begin(), fates.end(), RowFate::kStays));
    report_.rows += rows.size();
    report_.kept += kept;
    report_.bytes += file.bytes();
    if (output_.empty()) {
      const uint64_t gone = (rows.size() - kept) * reader->record_bytes();
      report_.kept_bytes += file.bytes() - std::min(file.bytes(), gone);
      return absl::OkStatus();
    }
    SavedFile* const added = manifest->add_files();
    if (kept == rows.size()) {
      SLUICE_ASSIGN_OR_RETURN(*added,
                              CopySavedFile(from_.dir, file, output_,
                                            ShardFileName(table_.name(), shard, save_id_), env_));
    } else {
      SLUICE_ASSIGN_OR_RETURN(*added, WriteRows(shard, *reader, rows, fates, kept));
    }
    report_.kept_bytes += added->bytes();
    return absl::OkStatus();
  }

  absl::StatusOr<SavedFile> WriteRows(uint32_t shard, const ShardFileReader& reader,
                                      const RowRecords& rows, const std::vector<RowFate>& fates,
                                      uint64_t kept) {
    CutState state;
    state.state_floats = reader.header().state_floats();
    if (reader.has_state()) {
      state.facts = reader.header().facts();
      CountFates(fates, state.facts->mutable_turnover());
      if (state.facts->has_tombstones_since() || from_.job.has_export_())
        AddTombstones(rows, fates, &*state.facts);
    }
    std::string records;
    records.reserve(kept * reader.record_bytes());
    for (size_t i = 0; i < rows.size(); ++i) {
      if (fates[i] != RowFate::kStays) continue;
      records.append(rows.record(i).data(), rows.record(i).size());
    }
    const auto cut =
        CutOfRows(table_, shard, std::make_unique<RecordRows>(&records, reader.record_bytes()),
                  std::move(state));
    return WriteShardFile(output_, table_, shard, cut.get(), env_, save_id_);
  }

  // In the order of step and key, as a pserver writes them.
  void AddTombstones(const RowRecords& rows, const std::vector<RowFate>& fates, ShardFacts* facts) {
    const uint64_t step = facts->schedule_steps();
    std::vector<uint64_t> keys;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (fates[i] != RowFate::kStays) keys.push_back(rows.key(i));
    }
    std::sort(keys.begin(), keys.end());
    for (uint64_t key : keys) {
      RowTombstone* const tombstone = facts->add_tombstones();
      tombstone->set_key(key);
      tombstone->set_schedule_step(step);
    }
    if (facts->tombstones_size() <= kMostTombstones) return;
    facts->clear_tombstones();
    facts->set_tombstones_since(step + 1);
    ++report_.chains_ended;
  }

  const ModelFolder& from_;
  const TableLayout& table_;
  const std::string output_;
  RowChooser& chooser_;
  Env* const env_;
  std::string save_id_;
  RewriteReport report_;
};

}  // namespace

absl::StatusOr<RewriteReport> RewriteFolder(const ModelFolder& from, const TableLayout& table,
                                            const std::string& output, RowChooser* chooser,
                                            Env* env) {
  return Rewrite(from, table, output, chooser, env).Run();
}

}  // namespace sluice
