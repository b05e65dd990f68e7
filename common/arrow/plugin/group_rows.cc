#include "common/arrow/plugin/group_rows.h"

#include <algorithm>
#include <string>
#include <utility>

#include "arrow/array/array_base.h"
#include "arrow/array/data.h"
#include "arrow/array/util.h"
#include "parquet/arrow/schema.h"
#include "parquet/file_reader.h"
#include "parquet/properties.h"

namespace sluice_arrow {
namespace {

constexpr int64_t kLeastBufferBytes = 64 << 10, kMostBufferBytes = 8 << 20;

void AddLeaves(const parquet::arrow::SchemaField& field, std::vector<int>* leaves) {
  if (field.is_leaf()) leaves->push_back(field.column_index);
  for (const auto& child : field.children) AddLeaves(child, leaves);
}

// Every data page is encoded with the dictionary: a chunk whose dictionary grew too large has plain
// pages at its end, for which a dictionary would have to be made.
bool HasDictionaryOnly(const parquet::ColumnChunkMetaData& chunk) {
  const auto is_dictionary = [](parquet::Encoding::type encoding) {
    return encoding == parquet::Encoding::PLAIN_DICTIONARY ||
           encoding == parquet::Encoding::RLE_DICTIONARY;
  };
  if (!chunk.has_dictionary_page()) return false;
  if (chunk.encoding_stats().empty()) {
    // Version 1 of the format, where PLAIN is not the encoding of a dictionary.
    const auto& encodings = chunk.encodings();
    return std::all_of(encodings.begin(), encodings.end(), [&](parquet::Encoding::type encoding) {
      return is_dictionary(encoding) || encoding == parquet::Encoding::RLE ||
             encoding == parquet::Encoding::BIT_PACKED;
    });
  }
  for (const auto& pages : chunk.encoding_stats()) {
    const bool is_data = pages.page_type == parquet::PageType::DATA_PAGE ||
                         pages.page_type == parquet::PageType::DATA_PAGE_V2;
    if (is_data && pages.count > 0 && !is_dictionary(pages.encoding)) return false;
  }
  return true;
}

// libparquet hands on the indices of a dictionary array as they are stored.
arrow::Status CheckIndices(const arrow::ArrayData& data) {
  if (data.type->id() == arrow::Type::DICTIONARY && data.length > 0) {
    const auto& type = static_cast<const arrow::DictionaryType&>(*data.type);
    if (type.index_type()->id() != arrow::Type::INT32)
      return arrow::MakeArray(data.Copy())->ValidateFull();
    const int32_t* indices = data.GetValues<int32_t>(1);
    const uint32_t size = std::min<int64_t>(data.dictionary->length, INT32_MAX);
    uint32_t greatest = 0;
    for (int64_t i = 0; i < data.length; ++i)
      greatest = std::max(greatest, static_cast<uint32_t>(indices[i]));
    // The index of a null value is not used, so it may be out of range.
    if (greatest >= size) {
      for (int64_t i = 0; i < data.length; ++i)
        if (static_cast<uint32_t>(indices[i]) >= size && data.IsValid(i))
          return arrow::Status::Invalid("index ", indices[i], " is outside of its dictionary of ",
                                        size, " values");
    }
  }
  for (const auto& child : data.child_data) ARROW_RETURN_NOT_OK(CheckIndices(*child));
  return arrow::Status::OK();
}

}  // namespace

std::vector<int> LeavesOf(const parquet::arrow::SchemaManifest& manifest, int32_t column) {
  std::vector<int> leaves;
  AddLeaves(manifest.schema_fields[column], &leaves);
  return leaves;
}

arrow::Result<std::unique_ptr<GroupRows>> GroupRows::Make(const OpenedFile& opened,
                                                          RowsChoice choice) {
  std::unique_ptr<GroupRows> rows(new GroupRows(opened, std::move(choice)));
  ARROW_RETURN_NOT_OK(rows->Prepare());
  return rows;
}

arrow::Status GroupRows::Prepare() {
  std::vector<int32_t> distinct = choice_.columns;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  num_distinct_ = distinct.size();
  for (const int32_t column : distinct)
    for (const int leaf : LeavesOf(*opened_.manifest, column)) leaves_.push_back(leaf);
  for (const int32_t column : choice_.columns)
    positions_.push_back(std::lower_bound(distinct.begin(), distinct.end(), column) -
                         distinct.begin());
  if (choice_.dictionaries && !choice_.groups.empty()) {
    dictionaries_ = leaves_;
    const auto& schema = *opened_.metadata->schema();
    for (const int64_t group : choice_.groups) {
      const auto chunks = opened_.metadata->RowGroup(group);
      std::erase_if(dictionaries_, [&](int leaf) {
        return schema.Column(leaf)->physical_type() != parquet::Type::BYTE_ARRAY ||
               !HasDictionaryOnly(*chunks->ColumnChunk(leaf));
      });
    }
  }
  ARROW_ASSIGN_OR_RAISE(whole_, NewReader(false));
  std::shared_ptr<arrow::Schema> all;
  ARROW_RETURN_NOT_OK(whole_->GetSchema(&all));
  arrow::FieldVector fields;
  for (const int32_t column : choice_.columns) fields.push_back(all->field(column));
  schema_ = arrow::schema(std::move(fields));
  return arrow::Status::OK();
}

arrow::Result<std::unique_ptr<parquet::arrow::FileReader>> GroupRows::NewReader(
    bool buffered) const {
  parquet::ReaderProperties stored;
  stored.set_page_checksum_verification(true);
  if (buffered) {
    stored.enable_buffered_stream();
    stored.set_buffer_size(
        std::clamp<int64_t>(kMostWholeBytes / std::max<size_t>(1, leaves_.size()),
                            kLeastBufferBytes, kMostBufferBytes));
  }
  parquet::ArrowReaderProperties properties(/*use_threads=*/false);
  properties.set_batch_size(choice_.batch_rows);
  properties.set_pre_buffer(false);  // it would keep all groups in memory
  properties.set_coerce_int96_timestamp_unit(kInt96Unit);
  for (const int leaf : dictionaries_) properties.set_read_dictionary(leaf, true);
  return parquet::arrow::FileReader::Make(
      arrow::default_memory_pool(),
      parquet::ParquetFileReader::Open(opened_.file, stored, opened_.metadata), properties);
}

arrow::Status GroupRows::OpenGroup(int64_t group) {
  const auto chunks = opened_.metadata->RowGroup(group);
  rows_left_ = chunks->num_rows();
  int64_t stored_bytes = 0;
  for (const int leaf : leaves_) {
    const int64_t bytes = chunks->ColumnChunk(leaf)->total_compressed_size();
    if (bytes < 0 || __builtin_add_overflow(stored_bytes, bytes, &stored_bytes))
      return arrow::Status::Invalid("row group ", group, " has a column of ", bytes, " bytes");
  }
  const std::vector<int> groups = {static_cast<int>(group)};
  if (stored_bytes > kMostWholeBytes) {
    opened_.file->Plan({});
    if (buffered_ == nullptr) {
      ARROW_ASSIGN_OR_RAISE(buffered_, NewReader(true));
    }
    ARROW_ASSIGN_OR_RAISE(rows_, buffered_->GetRecordBatchReader(groups, leaves_));
  } else {
    ARROW_ASSIGN_OR_RAISE(auto ranges, whole_->parquet_reader()->GetReadRanges(
                                           groups, leaves_, kMostHoleBytes, kMostRangeBytes));
    opened_.file->Plan(ranges);
    ARROW_ASSIGN_OR_RAISE(rows_, whole_->GetRecordBatchReader(groups, leaves_));
  }
  return arrow::Status::OK();
}

arrow::Status GroupRows::CloseGroup() {
  rows_.reset();
  opened_.file->Plan({});
  // Positions in the data are numbers of rows.
  if (rows_left_ != 0)
    return arrow::Status::Invalid("a row group has ", rows_left_,
                                  " rows fewer than the footer says");
  return arrow::Status::OK();
}

arrow::Status GroupRows::Check(const arrow::RecordBatch& batch) const {
  if (batch.num_columns() != num_distinct_)
    return arrow::Status::Invalid("a row group lacks columns of the schema");
  if (batch.num_rows() > rows_left_)
    return arrow::Status::Invalid("a row group has more rows than the footer says");
  ARROW_RETURN_NOT_OK(batch.Validate());
  for (const auto& column : batch.column_data()) ARROW_RETURN_NOT_OK(CheckIndices(*column));
  return arrow::Status::OK();
}

arrow::Result<std::shared_ptr<arrow::RecordBatch>> GroupRows::Next() {
  while (true) {
    if (rows_ == nullptr) {
      if (next_group_ == choice_.groups.size()) return nullptr;
      ARROW_RETURN_NOT_OK(OpenGroup(choice_.groups[next_group_++]));
    }
    std::shared_ptr<arrow::RecordBatch> batch;
    ARROW_RETURN_NOT_OK(rows_->ReadNext(&batch));
    if (batch == nullptr) {
      ARROW_RETURN_NOT_OK(CloseGroup());
      continue;
    }
    if (batch->num_rows() == 0) continue;
    ARROW_RETURN_NOT_OK(Check(*batch));
    rows_left_ -= batch->num_rows();
    std::vector<std::shared_ptr<arrow::Array>> columns;
    for (const int position : positions_) columns.push_back(batch->column(position));
    return arrow::RecordBatch::Make(schema_, batch->num_rows(), std::move(columns));
  }
}

}  // namespace sluice_arrow
