#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/arrow/parquet.h"
#include "common/base/mix_hash.h"
#include "common/base/status_macros.h"
#include "model/data/parquet_file.h"
#include "model/data/row_copy.h"
#include "model/profile/held_out.h"

namespace sluice {
namespace {

constexpr uint64_t kLeastRuns = 10'000, kMostRunRows = 1024;
constexpr uint64_t kCopiedBytes = 8 << 20;  // of a batch, about
constexpr uint64_t kFewestCopiedRows = 1024, kMostCopiedRows = 64 << 10;

absl::Status NamedFile(const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

// One of the two files.
class RowsOut {
 public:
  static absl::StatusOr<std::unique_ptr<RowsOut>> Start(const std::string& path,
                                                        const ArrowSchema& schema,
                                                        uint64_t group_rows, Env* env) {
    SLUICE_ASSIGN_OR_RETURN(auto file, env->StartFile(path));
    auto out = std::make_unique<RowsOut>();
    out->path_ = path;
    ParquetWriterOptions options;
    options.row_group_rows = group_rows;
    auto writer = ParquetWriter::Create(std::move(file), CopyOfSchema(schema), options);
    if (!writer.ok()) return NamedFile(path, writer.status());
    out->writer_ = *std::move(writer);
    return out;
  }
  absl::Status Write(ArrowOwner<ArrowArray> rows) {
    return NamedFile(path_, writer_->Write(std::move(rows)));
  }
  absl::Status Finish() { return NamedFile(path_, writer_->Finish()); }

 private:
  std::string path_;
  std::unique_ptr<ParquetWriter> writer_;
};

}  // namespace

absl::StatusOr<HeldOut> HoldOutRows(const std::string& file, double share, const std::string& train,
                                    const std::string& eval, Env* env) {
  SLUICE_ASSIGN_OR_RETURN(const auto reader, ParquetFile::OpenReader(file, env));
  std::vector<uint64_t> groups(reader->row_groups());
  std::iota(groups.begin(), groups.end(), 0);
  std::vector<int32_t> columns(static_cast<size_t>(reader->schema().n_children));
  std::iota(columns.begin(), columns.end(), 0);
  uint64_t all_rows = 0, all_bytes = 0, most_rows = 1;
  for (const uint64_t g : groups) {
    const auto group = reader->RowGroup(g, columns);
    if (!group.ok()) return NamedFile(file, group.status());
    all_rows += group->rows;
    all_bytes += group->bytes;
    most_rows = std::max(most_rows, group->rows);
  }
  const uint64_t batch_rows = std::clamp(kCopiedBytes * all_rows / std::max<uint64_t>(all_bytes, 1),
                                         kFewestCopiedRows, kMostCopiedRows);
  auto rows = reader->Read(groups, columns, batch_rows, /*dictionaries=*/false);
  if (!rows.ok()) return NamedFile(file, rows.status());
  const uint64_t group_rows = std::min<uint64_t>(most_rows, 1 << 20);
  SLUICE_ASSIGN_OR_RETURN(auto to_train, RowsOut::Start(train, (*rows)->schema(), group_rows, env));
  SLUICE_ASSIGN_OR_RETURN(auto to_eval, RowsOut::Start(eval, (*rows)->schema(), group_rows, env));

  const uint64_t run = std::clamp<uint64_t>(all_rows / kLeastRuns, 1, kMostRunRows);
  const auto limit = static_cast<uint64_t>(share * 0x1p32);
  const auto is_held = [&](uint64_t row) { return MixHash(row / run + 1) >> 32 < limit; };
  HeldOut counts;
  uint64_t first = 0;  // of the batch
  while (true) {
    auto next = (*rows)->Next();
    if (!next.ok()) return NamedFile(file, next.status());
    if (next->empty()) break;
    const auto batch = std::make_shared<ArrowOwner<ArrowArray>>(*std::move(next));
    const auto n = static_cast<uint64_t>((*batch)->length);
    for (uint64_t begin = 0, end; begin < n; begin = end) {
      const bool held = is_held(first + begin);
      for (end = begin + 1; end < n && is_held(first + end) == held;) ++end;
      SLUICE_RETURN_IF_ERROR((held ? to_eval : to_train)
                                 ->Write(SliceOfRows(batch, static_cast<int64_t>(begin),
                                                     static_cast<int64_t>(end - begin))));
      (held ? counts.eval_lines : counts.train_lines) += end - begin;
    }
    first += n;
  }
  SLUICE_RETURN_IF_ERROR(to_train->Finish());
  if (const absl::Status finished = to_eval->Finish(); !finished.ok()) {
    env->RemoveFile(train).IgnoreError();
    return finished;
  }
  return counts;
}

}  // namespace sluice
