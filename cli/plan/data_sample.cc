#include "cli/plan/data_sample.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/arrow/parquet.h"
#include "common/base/status_macros.h"
#include "common/config/data_format.h"
#include "common/places/places_env.h"
#include "model/data/data_files.h"
#include "model/data/expand_files.h"
#include "model/data/line_format.h"
#include "model/data/line_reader.h"
#include "model/data/parquet_file.h"
#include "model/data/partition_folders.h"
#include "model/data/row_copy.h"
#include "model/data/text_reader.h"

namespace sluice::plan {
namespace {

constexpr double kCompression = 3;      // about that of text
constexpr uint64_t kCopiedRows = 4096;  // at once

std::string Coded(const std::string& text) {
  std::string coded;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.') {
      coded += c;
    } else {
      absl::StrAppendFormat(&coded, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return coded;
}

// Adds the copy of the file at `path`, in folders of their own if `path` has columns in its
// folders. Returns its name.
std::string AddCopy(const DataConfig& data, const std::string& path, const std::string& folder,
                    DataSample* sample) {
  // Numbers of the same length keep the order of the files when they are sorted by name.
  const std::string part = absl::StrCat(folder, "/part-", 100000 + sample->files.size());
  std::string below;
  for (const auto& [name, value] : PartitionColumns(data, path))
    absl::StrAppend(&below, "/", Coded(name), "=", Coded(value));
  if (!below.empty()) {
    std::error_code error;  // which the file's own tells
    std::filesystem::create_directories(part + below, error);
    absl::StrAppend(&below, "/data");
  }
  sample->files.push_back(part + below);
  sample->sources.push_back(path);
  sample->patterns.push_back(
      absl::StrCat(part.substr(0, part.size() - 1), "[", part.substr(part.size() - 1), "]", below));
  return sample->files.back();
}

// The places of the columns of a file, or of the structs around them, that the job uses.
std::vector<int32_t> UsedColumns(const JobConfig& job, const ArrowSchema& schema) {
  std::set<std::string> used = {job.data().label().column(), job.data().weight_column()};
  for (const Feature& feature : job.features()) {
    const std::string& column =
        feature.has_numeric() ? feature.numeric().column() : feature.categorical().column();
    used.insert(column.empty() ? feature.name() : column);
  }
  std::vector<int32_t> places;
  for (int64_t i = 0; i < schema.n_children; ++i) {
    const std::string name = schema.children[i]->name == nullptr ? "" : schema.children[i]->name;
    const auto field = used.lower_bound(name + ".");
    const bool has_fields =
        field != used.end() && field->compare(0, name.size() + 1, name + ".") == 0;
    if (used.count(name) > 0 || has_fields) places.push_back(static_cast<int32_t>(i));
  }
  // Rows without columns could not be counted.
  if (places.empty() && schema.n_children > 0) places.push_back(0);
  return places;
}

absl::Status InFile(const std::string& path, const absl::Status& status) {
  return status.ok() ? status
                     : absl::Status(status.code(),
                                    absl::StrCat("data file ", path, ": ", status.message()));
}

struct CopiedRows {
  uint64_t rows = 0, all_rows = 0;
  double bytes = 0;  // uncompressed
};

// Copies rows from the front of the file until they have `bytes` bytes.
absl::StatusOr<CopiedRows> CopyRows(const JobConfig& job, const std::string& path,
                                    const std::string& name, double bytes) {
  SLUICE_ASSIGN_OR_RETURN(const auto reader, ParquetFile::OpenReader(path, AllPlaces()));
  const std::vector<int32_t> columns = UsedColumns(job, reader->schema());
  std::vector<uint64_t> groups(reader->row_groups());
  std::iota(groups.begin(), groups.end(), 0);
  CopiedRows copied;
  double all_bytes = 0;
  uint64_t group_rows = 1;
  for (const uint64_t g : groups) {
    const auto group = reader->RowGroup(g, columns);
    if (!group.ok()) return InFile(path, group.status());
    copied.all_rows += group->rows;
    all_bytes += static_cast<double>(group->bytes);
    group_rows = std::max(group_rows, group->rows);
  }
  const double row_bytes = std::max(1.0, all_bytes / std::max<double>(1, copied.all_rows));
  const uint64_t wanted = std::min<uint64_t>(
      copied.all_rows, static_cast<uint64_t>(std::max(1.0, std::ceil(bytes / row_bytes))));
  auto rows = reader->Read(groups, columns, kCopiedRows, /*dictionaries=*/false);
  if (!rows.ok()) return InFile(path, rows.status());
  SLUICE_ASSIGN_OR_RETURN(auto file, Env::Real()->StartFile(name));
  ParquetWriterOptions options;
  options.row_group_rows = group_rows;
  SLUICE_ASSIGN_OR_RETURN(
      const auto writer,
      ParquetWriter::Create(std::move(file), CopyOfSchema((*rows)->schema()), options));
  while (copied.rows < wanted) {
    auto next = (*rows)->Next();
    if (!next.ok()) return InFile(path, next.status());
    if (next->empty()) break;
    const auto batch = std::make_shared<ArrowOwner<ArrowArray>>(*std::move(next));
    const int64_t n =
        std::min<int64_t>((*batch)->length, static_cast<int64_t>(wanted - copied.rows));
    SLUICE_RETURN_IF_ERROR(InFile(name, writer->Write(SliceOfRows(batch, 0, n))));
    copied.rows += static_cast<uint64_t>(n);
  }
  SLUICE_RETURN_IF_ERROR(InFile(name, writer->Finish()));
  copied.bytes = static_cast<double>(copied.rows) * row_bytes;
  return copied;
}

absl::StatusOr<DataSample> CopyFirstRows(const JobConfig& job, const std::string& folder,
                                         uint64_t bytes) {
  SLUICE_RETURN_IF_ERROR(OpenArrow());
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                          ExpandFiles(job.data().train_files(), AllPlaces()));
  DataSample sample;
  double left = static_cast<double>(bytes), all = 0, copied = 0;  // the last two: as stored
  for (const std::string& path : paths) {
    SLUICE_ASSIGN_OR_RETURN(const FileIdentity identity, IdentifyFile(path, AllPlaces()));
    const double size = static_cast<double>(identity.size);
    all += size;
    // Later files count for the share only; they are not read.
    if (left <= 0) {
      sample.whole = false;
      continue;
    }
    const std::string name = AddCopy(job.data(), path, folder, &sample);
    SLUICE_ASSIGN_OR_RETURN(const CopiedRows rows, CopyRows(job, path, name, left));
    left -= rows.bytes;
    sample.lines += static_cast<double>(rows.rows);
    sample.whole = sample.whole && rows.rows == rows.all_rows;
    copied += size * static_cast<double>(rows.rows) / std::max<double>(1, rows.all_rows);
  }
  if (all > 0) sample.share = std::min(1.0, copied / all);
  return sample;
}

}  // namespace

absl::StatusOr<DataSample> CopyBeginning(const JobConfig& job, const std::string& folder,
                                         uint64_t bytes) {
  if (FormatOf(job.data()).rows) return CopyFirstRows(job, folder, bytes);
  return CopyFirstLines(job.data(), folder, bytes);
}

absl::StatusOr<DataSample> CopyFirstLines(const DataConfig& data, const std::string& folder,
                                          uint64_t bytes) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                          ExpandFiles(data.train_files(), AllPlaces()));
  // Cells with line ends stay whole.
  SLUICE_ASSIGN_OR_RETURN(const RecordRule rule, RecordRuleOf(data));
  DataSample sample;
  double copied = 0, all = 0;  // bytes of text
  for (const std::string& path : paths) {
    SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<TextReader> text, OpenText(data, path, AllPlaces()));
    const double size = static_cast<double>(text->identity().size);
    // Decompressing the rest only to know its length would take longer than the measurement.
    const double estimate = size * (text->compressed() ? kCompression : 1);
    // Later files count for the share only; they are not read.
    if (copied >= static_cast<double>(bytes)) {
      sample.whole = false;
      all += estimate;
      continue;
    }
    const std::string name = AddCopy(data, path, folder, &sample);
    std::ofstream out(name, std::ios::binary);
    LineReader reader(std::move(text), rule);
    LineReader::Line line;
    double here = 0;
    bool more = true;
    while (copied + here < static_cast<double>(bytes)) {
      SLUICE_ASSIGN_OR_RETURN(more, reader.Next(&line));
      if (!more) break;
      // Training skips such a line as malformed. It would only count against max_bad_lines here, so
      // blank lines take its place.
      if (line.too_long) {
        out << std::string(line.line_ends, '\n');
        continue;
      }
      out << line.text() << '\n';
      here += static_cast<double>(line.size) + 1;
      ++sample.lines;
    }
    out.close();
    if (!out) {
      return absl::InternalError(
          absl::StrCat("cannot write ", name, "; is the disk full? (TMPDIR names another folder)"));
    }
    sample.whole = sample.whole && !more;
    copied += here;
    // The length of a file that was read to its end is known; elsewhere at least what was copied.
    all += more ? std::max(estimate, here) : here;
  }
  if (all > 0) sample.share = std::min(1.0, copied / all);
  return sample;
}

absl::Status WithSourceNames(const absl::Status& status, const DataSample& sample) {
  std::vector<std::pair<std::string, std::string>> names;
  for (size_t i = 0; i < sample.files.size(); ++i)
    names.emplace_back(sample.files[i], sample.sources[i]);
  return absl::Status(status.code(), absl::StrReplaceAll(status.message(), names));
}

}  // namespace sluice::plan
