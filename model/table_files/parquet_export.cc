#include "model/table_files/parquet_export.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/arrow/parquet.h"
#include "common/base/status_macros.h"
#include "model/table_files/arrow_batch.h"

namespace sluice {
namespace {

constexpr uint64_t kRowGroupRows = 1 << 18;

// The values of one column of the block.
std::vector<float> Pick(const RowBlock& block, size_t row_floats,
                        const TableColumns::Floats& column) {
  std::vector<float> values(block.size() * column.dim);
  const float* from = block.floats.data() + column.begin;
  float* to = values.data();
  for (size_t i = 0; i < block.size(); ++i, from += row_floats, to += column.dim)
    std::memcpy(to, from, column.dim * sizeof(float));
  return values;
}

ArrowColumn ValuesAt(const std::vector<uint32_t>& lines, const Vocabulary& vocabulary) {
  std::vector<int32_t> offsets = {0};
  std::string text;
  for (const uint32_t line : lines) {
    const absl::string_view value = vocabulary.value(line);
    text.append(value.data(), value.size());
    offsets.push_back(static_cast<int32_t>(text.size()));
  }
  return ArrowTexts(kValueColumn, std::move(offsets), std::move(text));
}

ArrowColumn Repeated(const std::string& name, const std::string& value, size_t n) {
  std::vector<int32_t> offsets = {0};
  std::string text;
  for (size_t i = 0; i < n; ++i) {
    text += value;
    offsets.push_back(static_cast<int32_t>(text.size()));
  }
  return ArrowTexts(name, std::move(offsets), std::move(text));
}

std::vector<ArrowColumn> ColumnsOf(const NamedRows& rows, RowBlock block,
                                   const std::vector<uint32_t>& lines, const std::string& feature) {
  const size_t n = block.size();
  std::vector<ArrowColumn> columns;
  if (rows.vocabulary() == nullptr) {
    columns.push_back(ArrowNumbers(kKeyColumn, std::move(block.keys)));
  } else {
    columns.push_back(ValuesAt(lines, *rows.vocabulary()));
    columns.push_back(Repeated(kFeatureColumn, feature, n));
  }
  const auto& floats = rows.columns().floats();
  if (floats.size() == 1) {  // the whole row, as it is
    columns.push_back(ArrowLists(floats[0].name, floats[0].dim, std::move(block.floats)));
  } else {
    block.keys.resize(n);  // moved away; Pick needs the number of rows
    for (const TableColumns::Floats& column : floats) {
      columns.push_back(
          ArrowLists(column.name, column.dim, Pick(block, rows.columns().row_floats(), column)));
    }
  }
  if (!rows.state()) return columns;
  columns.push_back(ArrowNumbers(kCountColumn, std::move(block.count)));
  columns.push_back(ArrowNumbers(kLastSeenColumn, std::move(block.last_seen)));
  return columns;
}

}  // namespace

absl::Status CheckParquet() { return OpenArrow(); }

absl::Status WriteParquet(NamedRows* rows, const std::string& feature,
                          std::unique_ptr<NewFile> file) {
  // A row group is in memory until it is complete.
  ParquetWriterOptions options;
  options.row_group_rows = kRowGroupRows;
  SLUICE_ASSIGN_OR_RETURN(
      const auto writer,
      ParquetWriter::Create(std::move(file),
                            ArrowSchemaOf(ColumnsOf(*rows, RowBlock(), {}, feature)), options));
  rows->Rewind();
  RowBlock block;
  std::vector<uint32_t> lines;
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, rows->Next(&block, &lines));
    if (!more) return writer->Finish();
    const size_t n = block.size();
    SLUICE_RETURN_IF_ERROR(
        writer->Write(ArrowRowsOf(ColumnsOf(*rows, std::move(block), lines, feature), n)));
    block = RowBlock();
  }
}

}  // namespace sluice
