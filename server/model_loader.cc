#include "server/model_loader.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/saved_model/manifest_files.h"
#include "common/saved_model/model_tables.h"
#include "common/saved_model/saved_model.h"
#include "common/table/hash_parts.h"

namespace sluice {
namespace {

// Of one read: large enough that calls do not count, small enough to stay in a cache until the rows
// are copied.
constexpr size_t kReadBytes = 256 << 10;

// The least memory of a row beside its floats: header and index, see row_store.h.
constexpr double kRowOverhead = 24 + 10;

absl::Status NoMemory(const std::string& directory) {
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for the rows of ", directory,
                   "; use more pservers, or machines with more memory"));
}

const TableConfig& TableOf(const Manifest& manifest, const std::string& name) {
  return *std::find_if(manifest.tables().begin(), manifest.tables().end(),
                       [&](const TableConfig& table) { return table.name() == name; });
}

}  // namespace

ModelLoader::ModelLoader(Options options, const TableLayouts& layouts, const ShardTable* shards)
    : options_(std::move(options)), layouts_(layouts), shards_(*shards) {}

absl::Status ModelLoader::Load() {
  SLUICE_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(options_.directory, options_.env));
  std::vector<TableConfig> tables;
  for (const auto& layout : layouts_) tables.push_back(layout->config());
  SLUICE_RETURN_IF_ERROR(CheckTables(options_.directory, manifest, tables));
  SLUICE_RETURN_IF_ERROR(Plan(manifest));
  SLUICE_RETURN_IF_ERROR(CheckMemory());
  // Neighbours in the list are of different shards, so that threads seldom wait for one another's
  // lock.
  std::stable_sort(pieces_.begin(), pieces_.end(),
                   [](const Piece& a, const Piece& b) { return a.turn < b.turn; });
  std::vector<std::thread> threads;
  const size_t more = std::min<size_t>(std::max(1u, options_.threads), pieces_.size());
  try {
    for (size_t i = 1; i < more; ++i) threads.emplace_back([this] { Work(); });
  } catch (const std::exception&) {
    // There is no room for more threads: those that are there do it.
  }
  Work();
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(&mutex_);
  return status_;
}

absl::Status ModelLoader::Plan(const Manifest& manifest) {
  for (size_t t = 0; t < layouts_.size(); ++t) {
    const TableConfig& saved = TableOf(manifest, layouts_[t]->name());
    SLUICE_ASSIGN_OR_RETURN(const auto files, FilesOfTable(options_.directory, manifest, saved));
    if (!layouts_[t]->sparse() && files.size() != layouts_[t]->num_shards()) {
      return absl::DataLossError(absl::StrCat("model ", options_.directory, ": table '",
                                              saved.name(), "' has ", files.size(), " files, its ",
                                              layouts_[t]->num_shards(),
                                              " blocks need one each; save the model again"));
    }
    for (uint32_t shard = 0; shard < files.size(); ++shard) {
      if (options_.progress->cancelled()) return absl::CancelledError("the job was dropped");
      SLUICE_RETURN_IF_ERROR(PlanFile(saved, *files[shard], shard, t));
    }
  }
  return absl::OkStatus();
}

absl::Status ModelLoader::PlanFile(const TableConfig& saved, const SavedFile& file, uint32_t shard,
                                   size_t table) {
  const TableLayout& layout = *layouts_[table];
  // Blocks of a dense tensor follow from its shape: they are the same here and there.
  const bool here = layout.sparse() ? ShareHere(table, shard, saved.num_shards()) > 0
                                    : shards_[table][shard] != nullptr;
  if (!here) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(auto reader,
                          ShardFileReader::Open(options_.env, options_.directory, saved, file));
  const ShardFileHeader& header = reader->header();
  if (!layout.sparse() && (header.first_element() != shard * layout.block_elements() ||
                           header.elements() != layout.ShardElements(shard))) {
    return absl::DataLossError(absl::StrCat(
        reader->path(), " is damaged: it has ", header.elements(), " elements from ",
        header.first_element(), " on, block ", shard, " has ", layout.ShardElements(shard),
        " from ", shard * layout.block_elements(), " on; use another copy of the model"));
  }
  options_.progress->Plan(reader->overhead_bytes());
  options_.progress->Add(reader->overhead_bytes());
  PlanRuns(*reader, table);
  files_.push_back(std::move(reader));
  return absl::OkStatus();
}

void ModelLoader::PlanRuns(const ShardFileReader& file, size_t table) {
  const TableLayout& layout = *layouts_[table];
  const double row_bytes = kRowOverhead + sizeof(float) * (layout.dim() + layout.state_floats());
  bool open = false;  // the last piece ends with the run before
  for (uint32_t run = 0; run < file.runs(); ++run) {
    const uint32_t part = file.first_part() + run;
    const uint64_t bytes = file.RunBytes(run);
    const double share = file.sparse() ? ShareHere(table, part, file.parts()) : 1;
    if (bytes == 0 || share == 0) {
      open = false;
      continue;
    }
    options_.progress->Plan(bytes);
    uint32_t first = file.header().shard();
    if (file.sparse()) {
      first = ShardsOfPart(part, file.parts(), layout.num_shards()).first;
      row_bytes_ += share * row_bytes * static_cast<double>(bytes / file.record_bytes());
    }
    if (open && pieces_.back().first_shard == first) {
      pieces_.back().end = run + 1;
      continue;
    }
    pieces_.push_back({&file, table, run, run + 1, first, turns_[{table, first}]++});
    open = true;
  }
}

double ModelLoader::ShareHere(size_t table, uint32_t part, uint32_t parts) const {
  const ShardSpan span = ShardsOfPart(part, parts, layouts_[table]->num_shards());
  double here = 0;
  for (uint32_t s = span.first; s <= span.last; ++s) here += shards_[table][s] != nullptr;
  return here / (span.last - span.first + 1);
}

absl::Status ModelLoader::CheckMemory() const {
  constexpr double kMiB = 1 << 20;
  const uint64_t available = options_.available_memory();
  if (row_bytes_ <= static_cast<double>(available)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("the rows of %s need %.1f MiB on this pserver, and %.1f MiB are available "
                      "(MemAvailable); use more pservers, or machines with more memory",
                      options_.directory, row_bytes_ / kMiB, available / kMiB));
}

bool ModelLoader::failed() {
  MutexLock lock(&mutex_);
  return !status_.ok();
}

void ModelLoader::Work() {
  RowsByShard scratch;
  while (true) {
    const Piece* piece;
    {
      MutexLock lock(&mutex_);
      if (!status_.ok() || next_piece_ == pieces_.size()) return;
      piece = &pieces_[next_piece_++];
    }
    absl::Status status;
    try {
      status = LoadPiece(*piece, &scratch);
    } catch (const std::bad_alloc&) {
      status = NoMemory(options_.directory);
    }
    if (status.ok()) continue;
    MutexLock lock(&mutex_);
    if (status_.ok()) status_ = std::move(status);
  }
}

absl::Status ModelLoader::LoadPiece(const Piece& piece, RowsByShard* scratch) {
  RunReader runs(piece.file, piece.begin, piece.end);
  uint64_t element = piece.file->header().first_element();
  std::vector<float> elements;  // aligned, unlike the bytes of a file
  while (true) {
    if (options_.progress->cancelled()) return absl::CancelledError("the job was dropped");
    if (failed()) return absl::OkStatus();
    SLUICE_ASSIGN_OR_RETURN(const std::string records, runs.Next(kReadBytes));
    if (records.empty()) return absl::OkStatus();
    if (piece.file->sparse()) {
      LoadRows(piece.table, *piece.file, records, scratch);
    } else {
      elements.resize(records.size() / sizeof(float));
      std::memcpy(elements.data(), records.data(), records.size());
      shards_[piece.table][piece.first_shard]->LoadElements(element, elements.data(),
                                                            elements.size());
      element += elements.size();
    }
    options_.progress->Add(records.size());
  }
}

void ModelLoader::LoadRows(size_t table, const ShardFileReader& file, const std::string& records,
                           RowsByShard* scratch) {
  const uint32_t num_shards = layouts_[table]->num_shards();
  if (scratch->rows.size() < num_shards) scratch->rows.resize(num_shards);
  for (size_t offset = 0; offset < records.size(); offset += file.record_bytes()) {
    uint64_t key;
    std::memcpy(&key, records.data() + offset, sizeof(key));
    const uint32_t shard = ShardOfKey(key, num_shards);
    if (shards_[table][shard] == nullptr) continue;
    RowsByShard::Rows& rows = scratch->rows[shard];
    if (rows.keys.empty()) scratch->shards.push_back(shard);
    rows.keys.push_back(key);
    rows.weights.push_back(records.data() + offset + sizeof(key));
  }
  for (const uint32_t shard : scratch->shards) {
    RowsByShard::Rows& rows = scratch->rows[shard];
    shards_[table][shard]->LoadRows(rows.keys.data(), rows.weights.data(), rows.keys.size());
    rows.keys.clear();
    rows.weights.clear();
  }
  scratch->shards.clear();
}

}  // namespace sluice
