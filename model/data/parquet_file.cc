#include "model/data/parquet_file.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/data/file_columns.h"
#include "model/data/text_form.h"

namespace sluice {
namespace {

constexpr uint64_t kBatchBytes = 8 << 20;
constexpr uint64_t kLeastBatchRows = 1024, kMostBatchRows = 128 << 10;
// Small row groups are decoded together, up to so many rows.
constexpr uint64_t kRowsTogether = 8192;
// A footer can tell of any number of rows, from which pieces are planned before a row is read.
constexpr uint64_t kMostFileRows = uint64_t{1} << 36;

absl::Status WithPath(const std::string& path, const absl::Status& status) {
  if (status.ok() || absl::IsFailedPrecondition(status)) return status;
  return absl::Status(status.code(), absl::StrCat("data file ", path, ": ", status.message()));
}

// The error for a file that the library does not read as Parquet.
absl::Status NoParquet(const std::string& path, Env* env, const absl::Status& why) {
  const auto head = env->ReadRange(path, 0, kTextFormBytes);
  if (!head.ok() || head->substr(0, 4) == "PAR1") return WithPath(path, why);
  const absl::Status form = CheckTextForm(path, *head);
  if (!form.ok() && head->substr(0, 4) != "PARE") return form;
  return absl::InvalidArgumentError(
      absl::StrCat("data file ", path,
                   head->substr(0, 4) == "PARE" ? " is an encrypted Parquet file, which is not read"
                                                : " is no Parquet file; correct data.format or the "
                                                  "pattern of data files"));
}

// Names of the columns of a table, and then those of the constants that it does not have.
std::vector<std::string> NamesOf(const std::vector<ArrowPath>& paths,
                                 const std::vector<std::pair<std::string, std::string>>& constants,
                                 std::vector<size_t>* used_constants) {
  std::vector<std::string> names;
  for (const ArrowPath& path : paths) names.push_back(path.name);
  const size_t own = names.size();
  for (size_t i = 0; i < constants.size(); ++i) {
    if (std::find(names.begin(), names.begin() + static_cast<ptrdiff_t>(own), constants[i].first) !=
        names.begin() + static_cast<ptrdiff_t>(own))
      continue;
    names.push_back(constants[i].first);
    used_constants->push_back(i);
  }
  return names;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParquetReader>> ParquetFile::OpenReader(const std::string& path,
                                                                       Env* env) {
  SLUICE_RETURN_IF_ERROR(OpenArrow());
  auto file = env->NewReader(path);
  if (!file.ok()) {
    return absl::Status(file.status().code(), absl::StrCat("cannot open the data file ", path, ": ",
                                                           file.status().message()));
  }
  if ((*file)->info().kind != FileInfo::Kind::kFile)
    return absl::InvalidArgumentError(absl::StrCat("data file ", path, " is no file"));
  auto reader = ParquetReader::Open(*std::move(file));
  if (absl::IsInvalidArgument(reader.status())) return NoParquet(path, env, reader.status());
  if (!reader.ok()) return WithPath(path, reader.status());
  return reader;
}

absl::StatusOr<std::vector<std::string>> ParquetFile::ColumnsOf(
    const std::string& path, Env* env,
    const std::vector<std::pair<std::string, std::string>>& constants) {
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<ParquetReader> reader, OpenReader(path, env));
  const auto paths = ArrowPathsOf(reader->schema());
  if (!paths.ok()) return WithPath(path, paths.status());
  std::vector<size_t> used;
  return NamesOf(*paths, constants, &used);
}

absl::StatusOr<std::unique_ptr<ParquetFile>> ParquetFile::Open(const std::string& path, Env* env,
                                                               Options options) {
  std::unique_ptr<ParquetFile> file(new ParquetFile(path, std::move(options)));
  SLUICE_ASSIGN_OR_RETURN(file->reader_, OpenReader(path, env));
  SLUICE_RETURN_IF_ERROR(file->Bind());
  return file;
}

absl::Status ParquetFile::Named(const absl::Status& status) const {
  return WithPath(path_, status);
}

absl::Status ParquetFile::Bind() {
  const auto paths = ArrowPathsOf(reader_->schema());
  if (!paths.ok()) return Named(paths.status());
  std::vector<size_t> used;
  const std::vector<std::string> names = NamesOf(*paths, options_.constants, &used);
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int> bound,
                          BindColumns(options_.columns, names, options_.need_label,
                                      absl::StrCat("data file ", path_), options_.features_end));
  for (const int place : bound) {
    ArrowColumns::Source source;
    ArrowPath column;
    if (place >= static_cast<int>(paths->size())) {
      const auto& constant = options_.constants[used[static_cast<size_t>(place) - paths->size()]];
      source.constant = true;
      source.text = constant.second;
      column.name = constant.first;
      column.values = ArrowClass::kText;
      column.type = "folder name";
    } else if (place >= 0) {
      column = (*paths)[static_cast<size_t>(place)];
      source.steps = column.steps;
      projection_.push_back(static_cast<int32_t>(column.steps[0]));
    }
    columns_.push_back(std::move(column));
    sources_.push_back(std::move(source));
  }
  // A batch without columns would have no rows.
  if (projection_.empty() && reader_->schema().n_children > 0) projection_.push_back(0);
  std::sort(projection_.begin(), projection_.end());
  projection_.erase(std::unique(projection_.begin(), projection_.end()), projection_.end());
  // A type that is not read is refused before anything is.
  const auto readable = ArrowColumns::Create(reader_->schema(), sources_);
  if (!readable.ok()) return Named(readable.status());
  for (ArrowColumns::Source& source : sources_) {
    if (source.steps.empty()) continue;
    const auto at = std::lower_bound(projection_.begin(), projection_.end(),
                                     static_cast<int32_t>(source.steps[0]));
    source.steps[0] = static_cast<size_t>(at - projection_.begin());
  }
  for (uint64_t g = 0; g < reader_->row_groups(); ++g) {
    const auto group = reader_->RowGroup(g, projection_);
    if (!group.ok()) return Named(group.status());
    if (group->rows > kMostFileRows - rows_) {
      return Named(absl::InvalidArgumentError(
          absl::StrCat("its footer tells of more than ", kMostFileRows,
                       " rows, the most of one file; it is damaged, or needs to be split")));
    }
    begins_.push_back(rows_);
    groups_.push_back({group->rows, group->bytes});
    rows_ += group->rows;
  }
  return absl::OkStatus();
}

size_t ParquetFile::GroupOf(uint64_t row) const {
  // Groups without rows begin where the next one does.
  return static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), row) -
                             begins_.begin()) -
         1;
}

absl::Status ParquetFile::StartAt(size_t group, uint64_t end) {
  std::vector<uint64_t> together = {group};
  uint64_t rows = groups_[group].rows, bytes = groups_[group].bytes;
  for (size_t g = group + 1; g < groups_.size(); ++g) {
    const bool wanted = begins_[g] < end && bytes + groups_[g].bytes <= kBatchBytes;
    if (!wanted && rows + groups_[g].rows > kRowsTogether) break;
    rows += groups_[g].rows;
    bytes += groups_[g].bytes;
    together.push_back(g);
  }
  const uint64_t batch_rows = std::min(
      std::clamp(rows == 0 ? kLeastBatchRows : kBatchBytes * rows / std::max<uint64_t>(bytes, 1),
                 kLeastBatchRows, kMostBatchRows),
      options_.most_batch_rows);
  decoding_ = nullptr;  // the reader has one at a time
  auto decoding = reader_->Read(together, projection_, batch_rows, /*dictionaries=*/true);
  if (!decoding.ok()) return Named(decoding.status());
  decoding_ = *std::move(decoding);
  next_row_ = begins_[group];
  decoding_end_ = next_row_ + rows;
  return absl::OkStatus();
}

absl::Status ParquetFile::DecodeNext() {
  auto array = decoding_->Next();
  if (!array.ok()) {
    decoding_ = nullptr;
    return Named(array.status());
  }
  if (array->empty() || (*array)->length < 0 ||
      next_row_ + static_cast<uint64_t>((*array)->length) > decoding_end_) {
    decoding_ = nullptr;
    return absl::DataLossError(absl::StrCat("data file ", path_, ": from row ", next_row_ + 1,
                                            " on, there are not the rows that its end tells of"));
  }
  if ((*array)->length == 0) return absl::OkStatus();
  Kept kept;
  auto columns = ArrowColumns::Create(decoding_->schema(), sources_);
  if (!columns.ok()) return Named(columns.status());
  kept.rows.columns = *std::move(columns);
  kept.rows.begin = next_row_;
  kept.rows.end = next_row_ += static_cast<uint64_t>((*array)->length);
  // Dictionaries and runs take less in the file than in memory.
  kept.bytes = ArrowBytes(decoding_->schema(), **array);
  kept.rows.batch = std::make_shared<ArrowBatch>(*std::move(array));
  kept.used = ++uses_;
  kept_bytes_ += kept.bytes;
  kept_.push_back(std::move(kept));
  if (next_row_ == decoding_end_) decoding_ = nullptr;
  return absl::OkStatus();
}

int ParquetFile::DistanceTo(uint64_t row) const {
  for (const Kept& kept : kept_) {
    if (row >= kept.rows.begin && row < kept.rows.end) return 0;
  }
  return decoding_ != nullptr && row >= next_row_ && row < decoding_end_ ? 1 : 2;
}

absl::StatusOr<const ParquetFile::Rows*> ParquetFile::RowsAt(uint64_t row, uint64_t end) {
  for (Kept& kept : kept_) {
    if (row < kept.rows.begin || row >= kept.rows.end) continue;
    kept.used = ++uses_;
    return &kept.rows;
  }
  const size_t group = GroupOf(row);
  // Decoding goes on unless the group of the row lies beyond it, so that nothing is decoded in
  // vain.
  if (decoding_ == nullptr || row < next_row_ || row >= decoding_end_ || next_row_ < begins_[group])
    SLUICE_RETURN_IF_ERROR(StartAt(group, end));
  while (kept_.empty() || kept_.back().rows.end <= row || kept_.back().rows.begin > row) {
    if (decoding_ == nullptr) {
      return absl::DataLossError(
          absl::StrCat("data file ", path_, " has no row ", row + 1, ", but its end tells of it"));
    }
    SLUICE_RETURN_IF_ERROR(DecodeNext());
    // Those before the row are kept too, for later calls.
    while (kept_bytes_ > options_.most_kept_bytes && DropOldest()) {
    }
  }
  return &kept_.back().rows;
}

bool ParquetFile::DropOldest() {
  if (kept_.size() < 2) return false;
  const auto oldest = std::min_element(
      kept_.begin(), kept_.end(), [](const Kept& a, const Kept& b) { return a.used < b.used; });
  kept_bytes_ -= oldest->bytes;
  kept_.erase(oldest);
  return true;
}

}  // namespace sluice
