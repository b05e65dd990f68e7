#include "common/daemon/table_rows.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

std::string Grouped(uint64_t value) {
  std::string text = absl::StrCat(value);
  for (size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

}  // namespace

void AddTurnover(const RowTurnover& more, RowTurnover* sum) {
  sum->set_admitted(sum->admitted() + more.admitted());
  sum->set_refused(sum->refused() + more.refused());
  sum->set_expired(sum->expired() + more.expired());
  sum->set_evicted(sum->evicted() + more.evicted());
  sum->set_deleted(sum->deleted() + more.deleted());
}

void AddShards(const TableStatus& more, TableStatus* sum) {
  sum->set_name(more.name());
  sum->set_kind(more.kind());
  sum->set_shards(sum->shards() + more.shards());
  sum->set_rows(sum->rows() + more.rows());
  sum->set_bytes(sum->bytes() + more.bytes());
  sum->set_reserved_bytes(sum->reserved_bytes() + more.reserved_bytes());
  sum->set_row_limit(sum->row_limit() + more.row_limit());
  if (more.has_turnover()) AddTurnover(more.turnover(), sum->mutable_turnover());
}

std::string DescribeRows(const TableStatus& table) {
  const RowTurnover& t = table.turnover();
  const uint64_t gone = t.refused() + t.expired() + t.evicted() + t.deleted();
  if (table.row_limit() == 0 && gone == 0) return "";
  std::string text = Grouped(table.rows());
  if (table.row_limit() > 0) absl::StrAppend(&text, " of at most ", Grouped(table.row_limit()));
  absl::StrAppend(&text, " rows");
  const auto add = [&text](uint64_t count, const char* what) {
    if (count > 0) absl::StrAppend(&text, ", ", Grouped(count), " ", what);
  };
  add(t.admitted(), "admitted");
  add(t.refused(), "updates refused");
  add(t.expired(), "expired");
  add(t.evicted(), "evicted");
  add(t.deleted(), "deleted");
  return text;
}

std::string RowLimitWarning(const TableStatus& shards, const TableConfig& table) {
  if (shards.row_limit() == 0 || table.has_evict()) return "";
  if (shards.shards() == 0) return "";
  // The shares differ by one row at most, and this is the smallest.
  const uint64_t share = shards.row_limit() / shards.shards();
  // The mean stands for shards that the report does not name.
  uint64_t fullest = shards.rows() / shards.shards();
  for (const ShardStatus& shard : shards.each()) fullest = std::max(fullest, shard.rows());
  if (fullest < share - share / 10) return "";
  const std::string limit = table.max_rows() > 0 ? absl::StrCat("max_rows, ", table.max_rows())
                                                 : absl::StrCat("max_gib, ", table.max_gib());
  // No figure that changes: the job keeps each warning once.
  return absl::StrCat("a shard of table '", table.name(), "' has used 90 % of its share of ", limit,
                      "; the job fails when a shard is full; raise the limit, or let the table ",
                      "drop rows (evict, expire)");
}

}  // namespace sluice
