#include "model/table_files/table_stats.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file_reader.h"
#include "model/table_files/model_folder.h"
#include "model/table_files/row_ages.h"
#include "model/table_files/row_records.h"

namespace sluice {
namespace {

constexpr size_t kStatPieceBytes = 1 << 20;
// Reading is soon the limit, and each thread has a piece of a file in memory.
constexpr size_t kMostStatThreads = 16;

void AddTurnover(const RowTurnover& from, RowTurnover* to) {
  to->set_admitted(to->admitted() + from.admitted());
  to->set_refused(to->refused() + from.refused());
  to->set_expired(to->expired() + from.expired());
  to->set_evicted(to->evicted() + from.evicted());
  to->set_deleted(to->deleted() + from.deleted());
}

// Adds one shard's file.
absl::Status AddShard(const std::string& dir, const TableConfig& table, const SavedFile& file,
                      Env* env, TableStats* stats) {
  SLUICE_ASSIGN_OR_RETURN(const auto reader, ShardFileReader::Open(env, dir, table, file));
  const ShardFileHeader& header = reader->header();
  const ShardFacts& facts = header.facts();
  const bool history = reader->has_state();
  const RowAges ages(table.expire(), facts);
  stats->bytes += file.bytes();
  stats->state_floats = std::max(stats->state_floats, header.state_floats());
  stats->schedule_steps = std::max(stats->schedule_steps, facts.schedule_steps());
  stats->tombstones += static_cast<uint64_t>(facts.tombstones_size());
  AddTurnover(facts.turnover(), &stats->turnover);
  if (ages.has_days()) {
    const int32_t day = facts.days().rbegin()->day();
    stats->today = std::max(stats->today.value_or(day), day);
  }
  RunReader runs(reader.get(), 0, reader->runs());
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(const std::string records, runs.Next(kStatPieceBytes));
    if (records.empty()) return absl::OkStatus();
    const RowRecords rows(*reader, records);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (history && ages.Expired(rows.last_seen(i), rows.count(i))) {
        ++stats->expired;
        continue;
      }
      ++stats->rows;
      stats->norm.Add(std::sqrt(rows.SquaredNorm(i)));
      if (!history) continue;
      stats->count.Add(rows.count(i));
      stats->age_steps.Add(static_cast<double>(ages.Steps(rows.last_seen(i))));
      if (ages.has_days()) stats->age_days.Add(static_cast<double>(ages.Days(rows.last_seen(i))));
    }
  }
}

// Adds what a thread has counted.
void AddStats(const TableStats& from, TableStats* to) {
  to->bytes += from.bytes;
  to->rows += from.rows;
  to->expired += from.expired;
  to->tombstones += from.tombstones;
  to->state_floats = std::max(to->state_floats, from.state_floats);
  to->schedule_steps = std::max(to->schedule_steps, from.schedule_steps);
  if (from.today) to->today = std::max(to->today.value_or(*from.today), *from.today);
  AddTurnover(from.turnover, &to->turnover);
  to->norm.Add(from.norm);
  to->count.Add(from.count);
  to->age_steps.Add(from.age_steps);
  to->age_days.Add(from.age_days);
}

absl::StatusOr<TableStats> StatTable(const ModelFolder& folder, const TableLayout& table,
                                     Env* env) {
  SLUICE_ASSIGN_OR_RETURN(const auto files,
                          FilesOfTable(folder.dir, folder.manifest, table.config()));
  const size_t threads = std::min(
      {files.size(), kMostStatThreads, size_t{std::max(1u, std::thread::hardware_concurrency())}});
  std::vector<TableStats> parts(threads);
  std::vector<absl::Status> statuses(files.size());
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  const auto work = [&](size_t thread) {
    // Relaxed: only the number itself matters, and join orders all that the threads wrote.
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < files.size();) {
      if (failed.load(std::memory_order_relaxed)) return;
      statuses[i] = AddShard(folder.dir, table.config(), *files[i], env, &parts[thread]);
      if (!statuses[i].ok()) failed.store(true, std::memory_order_relaxed);
    }
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < threads; ++i) others.emplace_back(work, i);
  work(0);
  for (std::thread& thread : others) thread.join();
  for (absl::Status& status : statuses) SLUICE_RETURN_IF_ERROR(status);
  TableStats stats;
  stats.name = table.name();
  stats.dim = table.dim();
  stats.shards = static_cast<uint32_t>(files.size());
  for (const TableStats& part : parts) AddStats(part, &stats);
  return stats;
}

absl::StatusOr<FolderStats> StatFolder(const std::string& dir, const std::string& name, Env* env) {
  SLUICE_ASSIGN_OR_RETURN(const ModelFolder folder, ModelFolder::Read(dir, env));
  FolderStats stats;
  stats.checkpoint = folder.checkpoint();
  stats.global_step = folder.manifest.global_step();
  std::vector<const TableLayout*> tables;
  if (!name.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const TableLayout* const table,
                            ChooseSparseTable(dir, folder.layouts, name));
    tables.push_back(table);
  } else {
    for (const auto& layout : folder.layouts) {
      if (layout->sparse()) tables.push_back(layout.get());
    }
    if (tables.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(dir, " has no sparse table; dense tables have no rows"));
    }
  }
  for (const TableLayout* const table : tables) {
    SLUICE_ASSIGN_OR_RETURN(TableStats one, StatTable(folder, *table, env));
    stats.tables.push_back(std::move(one));
  }
  return stats;
}

}  // namespace

void PowerHistogram::Add(double figure) {
  greatest_ = std::max(greatest_, figure);
  if (!(figure > 0)) {
    ++zeros_;
    return;
  }
  ++by_exponent_[std::clamp(std::ilogb(figure), kLowest, kHighest) - kLowest];
}

void PowerHistogram::Add(const PowerHistogram& other) {
  zeros_ += other.zeros_;
  greatest_ = std::max(greatest_, other.greatest_);
  for (size_t i = 0; i < by_exponent_.size(); ++i) by_exponent_[i] += other.by_exponent_[i];
}

uint64_t PowerHistogram::rows() const {
  uint64_t rows = zeros_;
  for (uint64_t n : by_exponent_) rows += n;
  return rows;
}

std::vector<PowerHistogram::Bucket> PowerHistogram::Buckets() const {
  std::vector<Bucket> buckets;
  if (zeros_ > 0) buckets.push_back({0, 0, zeros_});
  const auto has_rows = [](uint64_t n) { return n > 0; };
  const auto first = std::find_if(by_exponent_.begin(), by_exponent_.end(), has_rows);
  const auto last = std::find_if(by_exponent_.rbegin(), by_exponent_.rend(), has_rows).base();
  for (auto i = first; i < last; ++i) {
    const int exponent = kLowest + static_cast<int>(i - by_exponent_.begin());
    buckets.push_back({std::ldexp(1.0, exponent), std::ldexp(1.0, exponent + 1), *i});
  }
  return buckets;
}

absl::StatusOr<FolderStats> StatTables(const std::string& dir, const std::string& name, Env* env) {
  SLUICE_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(dir, env));
  absl::StatusOr<FolderStats> stats = StatFolder(dir, name, env);
  if (!absl::IsNotFound(stats.status()) && !absl::IsDataLoss(stats.status())) return stats;
  const absl::StatusOr<Manifest> now = ReadManifest(dir, env);
  const bool replaced = now.ok() && SaveIdOfCheckpoint(*now) != SaveIdOfCheckpoint(manifest);
  if (!absl::IsNotFound(now.status()) && !replaced) return stats;
  return absl::NotFoundError(absl::StrCat(dir, replaced ? " was replaced" : " was removed",
                                          " while it was read; give a newer one"));
}

}  // namespace sluice
