// ApplyChain: brings a base and its deltas together, one shard after another.
//
// A sparse shard: the members are read from the newest to the base. The first member that has a
// key, as a row or as gone, decides what becomes of it. A dense shard is that of the last member,
// since a delta has dense tables whole.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/crc32c.h"
#include "common/base/random_id.h"
#include "common/base/status_macros.h"
#include "common/saved_model/export_chain.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file.h"
#include "common/saved_model/shard_file_reader.h"
#include "common/table/table_layout.h"

namespace sluice {
namespace {

constexpr size_t kPieceBytes = 1 << 20;

// The rows of one shard of a chain, with their weights.
struct MergedRows {
  std::vector<uint64_t> keys;
  std::vector<float> weights;  // [keys.size()][dim]
};

absl::Status AddMember(const ShardFileReader& file, bool base, size_t dim,
                       absl::flat_hash_set<uint64_t>* decided, MergedRows* rows) {
  ValueReader records(&file, 0, file.runs());
  const size_t step = records.record_bytes();
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(const std::string piece, records.Next(kPieceBytes));
    if (piece.empty()) break;
    for (size_t at = 0; at < piece.size(); at += step) {
      uint64_t key;
      std::memcpy(&key, piece.data() + at, sizeof(key));
      // The base comes last, and has each key once.
      if (base ? decided->contains(key) : !decided->insert(key).second) continue;
      rows->keys.push_back(key);
      const size_t end = rows->weights.size();
      rows->weights.resize(end + dim);
      std::memcpy(rows->weights.data() + end, piece.data() + at + sizeof(key), dim * sizeof(float));
    }
  }
  // After its rows: a key that is in both has a row.
  decided->insert(file.header().gone().begin(), file.header().gone().end());
  return absl::OkStatus();
}

// In ascending order of the keys.
ShardValues Sorted(const MergedRows& rows, size_t dim) {
  std::vector<uint32_t> order(rows.keys.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return rows.keys[a] < rows.keys[b]; });
  ShardValues values;
  values.keys.reserve(order.size());
  values.weights.resize(rows.weights.size());
  float* to = values.weights.data();
  for (const uint32_t row : order) {
    values.keys.push_back(rows.keys[row]);
    std::memcpy(to, rows.weights.data() + row * dim, dim * sizeof(float));
    to += dim;
  }
  return values;
}

class Application {
 public:
  Application(const std::vector<ExportMember>& chain, std::string output, Env* env)
      : chain_(chain),
        last_(chain.back()),
        output_(std::move(output)),
        env_(env),
        save_id_(absl::StrFormat("%016x", RandomId())) {}

  absl::StatusOr<Manifest> Run(bool as_base) {
    SLUICE_RETURN_IF_ERROR(CheckTables());
    SLUICE_ASSIGN_OR_RETURN(const JobConfig job, ReadExportJob(last_.dir, last_.manifest, env_));
    const bool existed = env_->Exists(output_);
    SLUICE_RETURN_IF_ERROR(env_->MakeDirs(output_));
    absl::StatusOr<Manifest> made = Write(job, as_base);
    if (made.ok()) {
      const absl::Status committed = CommitModel(output_, env_, save_id_);
      if (committed.ok()) return made;
      made = committed;
    }
    DiscardModel(output_, env_, save_id_);
    if (!existed) env_->RemoveDir(output_).IgnoreError();
    return made;
  }

 private:
  // The members of a chain are of one run of a job, whose tables do not change.
  absl::Status CheckTables() const {
    for (const ExportMember& member : chain_) {
      bool equal = member.manifest.tables_size() == last_.manifest.tables_size();
      for (int t = 0; equal && t < last_.manifest.tables_size(); ++t) {
        equal = member.manifest.tables(t).SerializeAsString() ==
                last_.manifest.tables(t).SerializeAsString();
      }
      if (!equal) {
        return absl::InvalidArgumentError(
            absl::StrCat(member.dir, " and ", last_.dir, " have different tables"));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Manifest> Write(const JobConfig& job, bool as_base) {
    Manifest manifest;
    manifest.set_job_id(last_.manifest.job_id());
    manifest.set_global_step(last_.manifest.global_step());
    manifest.set_epochs(last_.manifest.epochs());
    *manifest.mutable_tables() = last_.manifest.tables();
    if (as_base) {
      ExportFacts* const facts = manifest.mutable_export_();
      *facts = last_.facts();
      facts->clear_from();
      facts->clear_digest();
      facts->clear_gone();
      facts->clear_rows();
    }
    SLUICE_ASSIGN_OR_RETURN(const TableLayouts layouts,
                            CreateTableLayouts(manifest.tables(), /*seed=*/0));
    uint64_t rows = 0;
    for (size_t t = 0; t < layouts.size(); ++t) {
      if (layouts[t]->sparse()) {
        SLUICE_RETURN_IF_ERROR(WriteRows(static_cast<int>(t), *layouts[t], &manifest, &rows));
      } else {
        SLUICE_RETURN_IF_ERROR(CopyDense(manifest.tables(static_cast<int>(t)), &manifest));
      }
    }
    if (as_base) manifest.mutable_export_()->set_rows(rows);
    return PrepareModel(output_, job, std::move(manifest), env_, save_id_);
  }

  absl::Status WriteRows(int table, const TableLayout& layout, Manifest* manifest, uint64_t* all) {
    std::vector<std::vector<const SavedFile*>> files;  // [member][shard]
    for (const ExportMember& member : chain_) {
      SLUICE_ASSIGN_OR_RETURN(
          auto of, FilesOfTable(member.dir, member.manifest, member.manifest.tables(table)));
      files.push_back(std::move(of));
    }
    for (uint32_t shard = 0; shard < layout.num_files(); ++shard) {
      absl::flat_hash_set<uint64_t> decided;
      MergedRows rows;
      for (size_t m = chain_.size(); m-- > 0;) {
        SLUICE_ASSIGN_OR_RETURN(
            const auto file,
            ShardFileReader::Open(env_, chain_[m].dir, chain_[m].manifest.tables(table),
                                  *files[m][shard]));
        SLUICE_RETURN_IF_ERROR(AddMember(*file, m == 0, layout.dim(), &decided, &rows));
      }
      *all += rows.keys.size();
      SLUICE_ASSIGN_OR_RETURN(
          *manifest->add_files(),
          WriteShardFile(output_, layout, shard, Sorted(rows, layout.dim()), env_, save_id_));
    }
    return absl::OkStatus();
  }

  absl::Status CopyDense(const TableConfig& table, Manifest* manifest) {
    SLUICE_ASSIGN_OR_RETURN(const auto files, FilesOfTable(last_.dir, last_.manifest, table));
    for (uint32_t shard = 0; shard < files.size(); ++shard) {
      const std::string path = absl::StrCat(last_.dir, "/", files[shard]->name());
      SavedFile* const copy = manifest->add_files();
      *copy = *files[shard];
      copy->set_name(ShardFileName(table.name(), shard, save_id_));
      SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<NewFile> out,
                              StartFileIn(output_, copy->name(), env_));
      uint32_t crc = 0;
      for (uint64_t at = 0; at < copy->bytes(); at += kPieceBytes) {
        SLUICE_ASSIGN_OR_RETURN(
            const std::string piece,
            env_->ReadRange(path, at, std::min<uint64_t>(kPieceBytes, copy->bytes() - at)));
        crc = ExtendCrc32c(crc, piece.data(), piece.size());
        SLUICE_RETURN_IF_ERROR(out->Append(piece));
      }
      if (crc != copy->crc32c()) {
        return absl::DataLossError(absl::StrCat(
            path, " is damaged: its checksum is wrong; use another copy of its folder"));
      }
      SLUICE_RETURN_IF_ERROR(out->Finish());
    }
    return absl::OkStatus();
  }

  const std::vector<ExportMember>& chain_;
  const ExportMember& last_;
  const std::string output_;
  Env* const env_;
  const std::string save_id_;
};

}  // namespace

absl::StatusOr<Manifest> ApplyChain(const std::vector<ExportMember>& chain,
                                    const std::string& output, bool as_base, Env* env) {
  SLUICE_RETURN_IF_ERROR(CheckChain(chain));
  return Application(chain, output, env).Run(as_base);
}

}  // namespace sluice
