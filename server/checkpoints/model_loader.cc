#include "server/checkpoints/model_loader.h"

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
#include "common/config/mode.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/model_tables.h"
#include "common/saved_model/saved_model.h"
#include "server/shards/no_room.h"

namespace sluice {
namespace {

// Bytes of one read: large enough to amortize the call, small enough to stay in cache until the
// rows are copied.
constexpr size_t kReadBytes = 256 << 10;

// The least memory per row in addition to its floats: header and index (row_store.h).
constexpr double kRowOverhead = 24 + 10;

absl::Status NoMemory(const std::string& directory) {
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for the rows of ", directory,
                   "; use more pservers, or machines with more memory"));
}

}  // namespace

ModelLoader::ModelLoader(Options options, const TableLayouts& layouts, const ShardTable* shards)
    : options_(std::move(options)), layouts_(layouts), shards_(*shards) {}

absl::Status ModelLoader::Load() {
  SLUICE_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(options_.directory, options_.env));
  SLUICE_RETURN_IF_ERROR(CheckManifest(manifest));
  SLUICE_RETURN_IF_ERROR(Plan(manifest));
  // Plan has read only headers and indexes, so a model that does not fit is refused before its rows
  // are read.
  SLUICE_RETURN_IF_ERROR(CheckMemory());
  // Neighbours in the list belong to different shards, so that threads rarely wait for each other's
  // lock.
  std::stable_sort(pieces_.begin(), pieces_.end(),
                   [](const Piece& a, const Piece& b) { return a.turn < b.turn; });
  std::vector<std::thread> threads;
  const size_t more = std::min<size_t>(std::max(1u, options_.threads), pieces_.size());
  try {
    for (size_t i = 1; i < more; ++i) threads.emplace_back([this] { Work(); });
  } catch (const std::exception&) {
    // The system refuses more threads; the ones that started do all the work.
  }
  Work();
  for (std::thread& thread : threads) thread.join();
  {
    MutexLock lock(&mutex_);
    SLUICE_RETURN_IF_ERROR(status_);
  }
  if (options_.new_job) StartFacts(manifest.checkpoint());
  if (options_.state) RestorePositions();
  return absl::OkStatus();
}

absl::Status ModelLoader::CheckManifest(const Manifest& manifest) const {
  std::vector<TableConfig> tables;
  for (const auto& layout : layouts_) tables.push_back(layout->config());
  if (!options_.state) return CheckValues(options_.directory, manifest, tables);
  if (!options_.new_job) SLUICE_RETURN_IF_ERROR(CheckTables(options_.directory, manifest, tables));
  if (!manifest.has_checkpoint()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options_.directory,
                     " is a model, which has no optimizer state to resume from; give a "
                     "checkpoint, or start a new job with initial_model"));
  }
  return options_.new_job ? CheckStart(options_.directory, manifest, tables, nullptr)
                          : CheckRules(options_.directory, manifest, tables);
}

absl::Status ModelLoader::Plan(const Manifest& manifest) {
  values_only_.assign(layouts_.size(), !options_.state);
  of_geo_ = manifest.checkpoint().mode() == ModeName(Mode::kGeo);
  starts_.resize(layouts_.size());
  for (size_t t = 0; t < layouts_.size(); ++t) {
    TableConfig table = layouts_[t]->config();
    // A job that continues has its own tables, whatever it once started from.
    if (options_.state && !options_.new_job) table.clear_start();
    const TableConfig* const saved = StartOf(manifest, table);
    // A new job may have tables that the model lacks. Tables on workers are loaded there.
    if (saved == nullptr || layouts_[t]->on_workers()) {
      saved_shards_.push_back(0);
      continue;
    }
    if (table.has_start()) {
      SLUICE_ASSIGN_OR_RETURN(starts_[t], StartMap::Create(*saved, table));
    }
    SLUICE_RETURN_IF_ERROR(PlanTable(manifest, *saved, t));
  }
  return absl::OkStatus();
}

absl::Status ModelLoader::PlanTable(const Manifest& manifest, const TableConfig& saved,
                                    size_t table) {
  const TableLayout& layout =
      starts_[table] == nullptr ? *layouts_[table] : *starts_[table]->saved_layout();
  const uint32_t saved_shards = layout.sparse() ? saved.num_shards() : layout.num_files();
  saved_shards_.push_back(saved_shards);
  SLUICE_ASSIGN_OR_RETURN(const auto files, FilesOfTable(options_.directory, manifest, saved));
  if (!layout.sparse() && files.size() != saved_shards) {
    return absl::DataLossError(absl::StrCat(
        "model ", options_.directory, ": table '", saved.name(), "' has ", files.size(),
        " files, but its ", saved_shards, " blocks need one each; save the model again"));
  }
  for (uint32_t shard = 0; shard < files.size(); ++shard) {
    if (options_.progress->cancelled()) return absl::CancelledError("the job was dropped");
    SLUICE_RETURN_IF_ERROR(PlanFile(saved, *files[shard], shard, table));
  }
  return absl::OkStatus();
}

bool ModelLoader::NeedsFile(size_t table, uint32_t file, const TableConfig& saved) const {
  if (layouts_[table]->sparse()) return ShareHere(table, file, saved.num_shards()) > 0;
  const auto& shards = shards_[table];
  // The blocks of a dense tensor depend only on its shape, so file and job have the same ones. If
  // the shapes differ, the facts of all files are needed.
  if (starts_[table] == nullptr) return shards[file] != nullptr;
  return std::any_of(shards.begin(), shards.end(), [](const auto& s) { return s != nullptr; });
}

absl::Status ModelLoader::PlanFile(const TableConfig& saved, const SavedFile& file, uint32_t shard,
                                   size_t table) {
  if (!NeedsFile(table, shard, saved)) return absl::OkStatus();
  const TableLayout& layout =
      starts_[table] == nullptr ? *layouts_[table] : *starts_[table]->saved_layout();
  SLUICE_ASSIGN_OR_RETURN(auto reader,
                          ShardFileReader::Open(options_.env, options_.directory, saved, file));
  const ShardFileHeader& header = reader->header();
  if (!layout.sparse() && (header.first_element() != shard * layout.block_elements() ||
                           header.elements() != layout.ShardElements(shard))) {
    return absl::DataLossError(absl::StrCat(
        reader->path(), " is damaged: it has ", header.elements(), " elements from ",
        header.first_element(), " on, but block ", shard, " has ", layout.ShardElements(shard),
        " from ", shard * layout.block_elements(), " on; use another copy of the model"));
  }
  if (options_.state) {
    SLUICE_RETURN_IF_ERROR(CheckState(*reader, table));
    facts_[{table, shard}] = header.facts();
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
  bool open = false;  // the last piece ends at the previous run
  for (uint32_t run = 0; run < file.runs(); ++run) {
    const uint32_t part = file.first_part() + run;
    const uint64_t bytes = file.RunBytes(run);
    const double share = file.sparse()                ? ShareHere(table, part, file.parts())
                         : HasElementsOf(file, table) ? 1
                                                      : 0;
    if (bytes == 0 || share == 0) {
      open = false;
      continue;
    }
    options_.progress->Plan(bytes);
    // A run can hold keys of several shards when the job divides the keys otherwise than the file.
    uint32_t first = file.header().shard();
    if (file.sparse()) {
      first = ShardsOfPart(part, file.parts(), layout.num_shards()).first;
      row_bytes_ += share * row_bytes * static_cast<double>(bytes / file.record_bytes());
    }
    // Neighbouring runs of the same shard make one piece, which is read in one go.
    if (open && pieces_.back().first_shard == first) {
      pieces_.back().end = run + 1;
      continue;
    }
    pieces_.push_back({&file, table, run, run + 1, first, turns_[{table, first}]++});
    open = true;
  }
}

absl::Status ModelLoader::CheckState(const ShardFileReader& file, size_t table) {
  uint32_t floats = 0;  // that the file should have
  for (const auto& shard : shards_[table]) {
    if (shard == nullptr) continue;
    floats = shard->saved_state_floats();
    // A job of Geo has no state here, whatever the saved table has.
    if (starts_[table] != nullptr && floats == layouts_[table]->state_floats())
      floats = starts_[table]->saved_layout()->state_floats();
  }
  const auto damaged = [&](const std::string& what) {
    return absl::DataLossError(
        absl::StrCat(file.path(), " is damaged: ", what, "; use another checkpoint"));
  };
  if (!file.has_state()) return damaged("it belongs to a model, not to a checkpoint");
  const uint32_t saved = file.header().state_floats();
  // A shard of Geo counts exchanges, not steps, so nothing says how old its rows are.
  if (options_.new_job && of_geo_ && layouts_[table]->config().has_expire())
    values_only_[table] = true;
  // One of the two optimizers has no state, so a new job takes the values alone.
  if (options_.new_job &&
      (values_only_[table] || (saved != floats && (saved == 0 || floats == 0)))) {
    values_only_[table] = true;
  } else if (saved != floats) {
    return damaged(absl::StrCat("it has ", saved,
                                " floats of optimizer state for each row or element, but table '",
                                layouts_[table]->name(), "' has ", floats));
  }
  if (options_.step.has_value() && file.header().facts().closed() != *options_.step) {
    return damaged(absl::StrCat("it was cut after step ", file.header().facts().closed(),
                                ", but the checkpoint is of step ", *options_.step));
  }
  return absl::OkStatus();
}

void ModelLoader::StartFacts(const CheckpointState& from) {
  const bool geo = from.mode() == ModeName(Mode::kGeo);
  for (auto& [shard, facts] : facts_) {
    // The new job counts its own steps, updates and ranks from 0. Only its schedules continue.
    facts.clear_closed();
    facts.clear_updates();
    facts.clear_updates_lost();
    facts.clear_ranks();
    // Its first export is a base, which needs to know of no row that is gone.
    facts.clear_tombstones();
    facts.clear_tombstones_since();
    // Bias correction starts again with fresh state.
    if (values_only_[shard.first]) facts.clear_count();
    if (!geo) continue;
    // A shard of Geo counts exchanges of many steps.
    facts.set_schedule_steps(from.global_step() / std::max(1u, from.worker_num()));
    facts.clear_schedule_frames();
  }
}

// If the number of shards differs, each shard gets the furthest position, and no lost updates:
// these are counted by shard. In sync all are equal.
void ModelLoader::RestorePositions() {
  const auto schedule = [](const ShardFacts& facts) {
    return std::make_pair(facts.schedule_steps(), facts.schedule_frames());
  };
  for (size_t t = 0; t < layouts_.size(); ++t) {
    if (saved_shards_[t] == 0) continue;
    ShardFacts furthest;
    for (auto it = facts_.lower_bound({t, 0}); it != facts_.end() && it->first.first == t; ++it) {
      const ShardFacts& facts = it->second;
      furthest.set_updates(std::max(furthest.updates(), facts.updates()));
      furthest.set_closed(std::max(furthest.closed(), facts.closed()));
      furthest.set_count(std::max(furthest.count(), facts.count()));
      if (schedule(facts) <= schedule(furthest)) continue;
      furthest.set_schedule_steps(facts.schedule_steps());
      furthest.set_schedule_frames(facts.schedule_frames());
    }
    for (const auto& shard : shards_[t]) {
      if (shard == nullptr) continue;
      // The blocks of a dense table that has another form are not those of the files.
      const bool same = saved_shards_[t] == layouts_[t]->num_shards() &&
                        (layouts_[t]->sparse() || starts_[t] == nullptr);
      shard->RestorePosition(same ? facts_[{t, shard->index()}] : furthest);
      if (same && options_.same_instance) shard->RestoreRanks(facts_[{t, shard->index()}]);
    }
  }
}

bool ModelLoader::HasElementsOf(const ShardFileReader& file, size_t table) const {
  if (starts_[table] == nullptr) return true;
  const uint64_t block = layouts_[table]->block_elements();
  bool any = false;
  starts_[table]->ForEachRun(file.header().first_element(), file.header().elements(),
                             [&](uint64_t, uint64_t to, uint64_t n) {
                               for (uint64_t s = to / block; s <= (to + n - 1) / block; ++s)
                                 any |= shards_[table][s] != nullptr;
                             });
  return any;
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
      // The first error ends all threads: the tables are dropped anyway.
      if (!status_.ok() || next_piece_ == pieces_.size()) return;
      piece = &pieces_[next_piece_++];
    }
    absl::Status status;
    try {
      status = LoadPiece(*piece, &scratch);
    } catch (const NoRoom& why) {
      status = absl::ResourceExhaustedError(absl::StrCat(options_.directory, ": ", why.what()));
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
  uint64_t at = 0;
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
      LoadElements(piece, elements, &at);
    }
    options_.progress->Add(records.size());
  }
}

void ModelLoader::LoadElements(const Piece& piece, const std::vector<float>& values, uint64_t* at) {
  const uint64_t first = piece.file->header().first_element();
  const uint64_t elements = piece.file->header().elements();
  const StartMap* const start = starts_[piece.table].get();
  for (size_t done = 0; done < values.size();) {
    const auto array = static_cast<uint32_t>(*at / elements);  // 0: the weights
    const uint64_t element = *at % elements;
    const size_t n = std::min<uint64_t>(values.size() - done, elements - element);
    const float* const from = values.data() + done;
    if (start == nullptr) {
      StoreElements(piece.table, piece.first_shard, array, first + element, from, n);
    } else {
      const uint64_t block = layouts_[piece.table]->block_elements();
      start->ForEachRun(first + element, n, [&](uint64_t offset, uint64_t to, uint64_t count) {
        // A shard takes what is in its block.
        for (uint64_t s = to / block; s <= (to + count - 1) / block; ++s)
          StoreElements(piece.table, s, array, to, from + offset, count);
      });
    }
    done += n;
    *at += n;
  }
}

// A block of a checkpoint is the weights, then one array for each float of state.
void ModelLoader::StoreElements(size_t table, uint64_t shard, uint32_t array, uint64_t first,
                                const float* values, size_t n) {
  Shard* const to = shards_[table][shard].get();
  if (to == nullptr) return;
  if (!values_only_[table]) {
    to->RestoreElements(array, first, values, n);
  } else if (array == 0) {
    to->LoadElements(first, values, n);
  }
}

void ModelLoader::ConvertRows(size_t table, const ShardFileReader& file, RecordView* records,
                              RowsByShard* scratch) const {
  const TableLayout& layout = *layouts_[table];
  const bool state = !values_only_[table];
  const size_t history = state ? kRowHistoryBytes : 0;
  const size_t floats = layout.dim() + (state ? layout.state_floats() : 0);
  const size_t rows = records->bytes / file.record_bytes();
  const size_t bytes = sizeof(uint64_t) + history + floats * sizeof(float);
  scratch->converted.resize(rows * bytes);
  scratch->row.resize(floats);
  for (size_t i = 0; i < rows; ++i) {
    const char* const from = records->data + i * file.record_bytes();
    char* const to = scratch->converted.data() + i * bytes;
    uint64_t key;
    std::memcpy(&key, from, sizeof(key));
    std::memcpy(to, from, sizeof(key) + history);
    starts_[table]->ConvertRow(layout, key, state, from + file.weights_offset(),
                               scratch->row.data());
    std::memcpy(to + sizeof(key) + history, scratch->row.data(), floats * sizeof(float));
  }
  *records = {scratch->converted.data(), scratch->converted.size(), bytes, sizeof(uint64_t)};
}

void ModelLoader::LoadRows(size_t table, const ShardFileReader& file, const std::string& bytes,
                           RowsByShard* scratch) {
  const uint32_t num_shards = layouts_[table]->num_shards();
  const bool values_only = values_only_[table];
  RecordView records = {bytes.data(), bytes.size(), file.record_bytes(),
                        values_only ? file.weights_offset() : sizeof(uint64_t)};
  if (starts_[table] != nullptr) ConvertRows(table, file, &records, scratch);
  // Rows are grouped by shard first, so that each shard is locked once for a whole read.
  if (scratch->rows.size() < num_shards) scratch->rows.resize(num_shards);
  for (size_t offset = 0; offset < records.bytes; offset += records.record_bytes) {
    uint64_t key;
    std::memcpy(&key, records.data + offset, sizeof(key));
    const uint32_t shard = ShardOfKey(key, num_shards);
    if (shards_[table][shard] == nullptr) continue;
    RowsByShard::Rows& rows = scratch->rows[shard];
    if (rows.keys.empty()) scratch->shards.push_back(shard);
    rows.keys.push_back(key);
    rows.records.push_back(records.data + offset + records.behind_key);
  }
  for (const uint32_t shard : scratch->shards) {
    RowsByShard::Rows& rows = scratch->rows[shard];
    Shard* const to = shards_[table][shard].get();
    if (!values_only) {
      to->RestoreRows(rows.keys.data(), rows.records.data(), rows.keys.size());
    } else {
      to->LoadRows(rows.keys.data(), rows.records.data(), rows.keys.size());
    }
    rows.keys.clear();
    rows.records.clear();
  }
  scratch->shards.clear();
}

}  // namespace sluice
