#include "model/table_files/table_shrink.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mix_hash.h"
#include "common/base/status_macros.h"
#include "model/table_files/row_ages.h"

namespace sluice {
namespace {

class ShrinkChooser : public RowChooser {
 public:
  ShrinkChooser(const ShrinkOptions& options, const TableLayout& table, EvictConfig evict,
                bool history, ShrinkReport* report)
      : options_(options),
        table_(table),
        evict_(std::move(evict)),
        history_(history),
        report_(*report) {}

  absl::Status Choose(uint32_t shard, const ShardFacts& facts, const RowRecords& rows,
                      std::vector<RowFate>* fates) override {
    const RowAges ages(table_.config().expire(), facts);
    if (rows.size() > 0 && !ages.has_days()) SLUICE_RETURN_IF_ERROR(CheckNeedsNoDays());
    if (history_) DropByHistory(ages, rows, fates);
    if (options_.max_rows) DropLowest(ShareOf(shard), ages, rows, fates);
    return absl::OkStatus();
  }

 private:
  struct Ranked {
    double score;
    uint64_t last_seen, mixed_key;
    size_t row;

    bool operator<(const Ranked& other) const {
      return std::tie(score, last_seen, mixed_key) <
             std::tie(other.score, other.last_seen, other.mixed_key);
    }
  };

  absl::Status CheckNeedsNoDays() const {
    const bool half_life =
        options_.max_rows && evict_.score() == EvictConfig::COUNT && evict_.half_life_days() > 0;
    if (!options_.max_age_days && !half_life) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(half_life ? "a half-life" : "--max_age_days", " needs days, which ",
                     options_.folder, " does not have: its job had no data.day; ",
                     half_life ? "give --half_life_days=0" : "give --max_age_steps"));
  }

  void DropByHistory(const RowAges& ages, const RowRecords& rows, std::vector<RowFate>* fates) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const uint64_t seen = rows.last_seen(i);
      const uint32_t count = rows.count(i);
      if (ages.Expired(seen, count)) {
        (*fates)[i] = RowFate::kExpired;
        ++report_.expired;
      } else if ((options_.max_age_steps && ages.Steps(seen) > *options_.max_age_steps) ||
                 (options_.max_age_days && ages.Days(seen) > *options_.max_age_days)) {
        (*fates)[i] = RowFate::kEvicted;
        ++report_.too_old;
      } else if (options_.min_count && count < *options_.min_count) {
        (*fates)[i] = RowFate::kEvicted;
        ++report_.too_rare;
      }
    }
  }

  // The share of max_rows that a job gives to the shard.
  uint64_t ShareOf(uint32_t shard) const {
    const uint64_t shards = table_.num_files();
    return *options_.max_rows / shards + (shard < *options_.max_rows % shards ? 1 : 0);
  }

  double ScoreOf(const RowAges& ages, const RowRecords& rows, size_t i) const {
    switch (evict_.score()) {
      case EvictConfig::NORM:
        return rows.SquaredNorm(i);  // the same order
      case EvictConfig::LAST_USE:
        return static_cast<double>(rows.last_seen(i));
      default:
        break;
    }
    const double count = rows.count(i);
    if (!(evict_.half_life_days() > 0)) return count;
    const auto days = static_cast<double>(ages.Days(rows.last_seen(i)));
    return count * std::exp2(-days / evict_.half_life_days());
  }

  void DropLowest(uint64_t share, const RowAges& ages, const RowRecords& rows,
                  std::vector<RowFate>* fates) {
    std::vector<Ranked> ranked;
    for (size_t i = 0; i < rows.size(); ++i) {
      if ((*fates)[i] != RowFate::kStays) continue;
      ranked.push_back(
          {ScoreOf(ages, rows, i), history_ ? rows.last_seen(i) : 0, MixHash(rows.key(i)), i});
    }
    if (ranked.size() <= share) return;
    const size_t drop = ranked.size() - share;
    std::nth_element(ranked.begin(), ranked.begin() + static_cast<ptrdiff_t>(drop), ranked.end());
    for (size_t i = 0; i < drop; ++i) (*fates)[ranked[i].row] = RowFate::kEvicted;
    report_.beyond_max_rows += drop;
  }

  const ShrinkOptions& options_;
  const TableLayout& table_;
  const EvictConfig evict_;
  const bool history_;  // the folder is a checkpoint
  ShrinkReport& report_;
};

// Refuses limits that are missing or have no effect, and those that a model cannot have.
absl::Status CheckLimits(const ShrinkOptions& options, const TableLayout& table,
                         const EvictConfig& evict, bool checkpoint) {
  const bool by_history = options.max_age_steps || options.max_age_days || options.min_count;
  if (!options.max_rows && !by_history && !table.config().has_expire()) {
    return absl::InvalidArgumentError(
        "no limit is given; give --max_rows, --max_age_steps, --max_age_days or --min_count");
  }
  if (options.max_rows == 0)
    return absl::InvalidArgumentError("--max_rows=0 leaves no row; give at least 1");
  if (!options.max_rows && (options.score || options.half_life_days)) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.score ? "--score" : "--half_life_days",
                     " orders the rows beyond --max_rows; give --max_rows, or leave it out"));
  }
  if (options.half_life_days && evict.score() != EvictConfig::COUNT) {
    return absl::InvalidArgumentError(
        "--half_life_days is for --score=COUNT; leave it out, or give that score");
  }
  if (checkpoint) return absl::OkStatus();
  if (!by_history && options.max_rows && evict.score() == EvictConfig::NORM)
    return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      options.folder,
      " is a model, which has no counts and ages; give a checkpoint (a folder step-N), or "
      "--max_rows with --score=NORM"));
}

}  // namespace

absl::StatusOr<ShrinkReport> ShrinkTable(const ShrinkOptions& options, Env* env) {
  SLUICE_ASSIGN_OR_RETURN(const ModelFolder folder, ModelFolder::Read(options.folder, env));
  SLUICE_ASSIGN_OR_RETURN(const TableLayout* const table,
                          ChooseSparseTable(options.folder, folder.layouts, options.table));
  EvictConfig evict = table->config().evict();
  if (options.score) evict.set_score(*options.score);
  if (options.half_life_days) evict.set_half_life_days(*options.half_life_days);
  SLUICE_RETURN_IF_ERROR(CheckLimits(options, *table, evict, folder.checkpoint()));
  ShrinkReport report;
  report.table = table->name();
  ShrinkChooser chooser(options, *table, evict, folder.checkpoint(), &report);
  SLUICE_ASSIGN_OR_RETURN(report.rewrite,
                          RewriteFolder(folder, *table, options.output, &chooser, env));
  return report;
}

}  // namespace sluice
