#include "common/arrow/plugin/parquet_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "arrow/c/bridge.h"
#include "arrow/record_batch.h"
#include "arrow/type.h"
#include "common/arrow/plugin/errors.h"
#include "common/arrow/plugin/group_rows.h"
#include "common/arrow/plugin/ranged_file.h"
#include "parquet/arrow/reader.h"
#include "parquet/arrow/schema.h"
#include "parquet/file_reader.h"
#include "parquet/metadata.h"

struct SluiceParquetReader {
  std::shared_ptr<sluice_arrow::RangedFile> file;
  std::unique_ptr<parquet::arrow::FileReader> reader;
  std::shared_ptr<arrow::Schema> schema;

  sluice_arrow::OpenedFile Opened() const {
    return {file, reader->parquet_reader()->metadata(), &reader->manifest()};
  }
  int Report(const arrow::Status& status, char* error, size_t error_size) const {
    return sluice_arrow::Report(sluice_arrow::Classified(status, file->failed()), error,
                                error_size);
  }
};

namespace sluice_arrow {
namespace {

// A reader of GroupRows as the C stream interface has it.
struct RowsStream {
  std::shared_ptr<RangedFile> file;
  std::unique_ptr<GroupRows> rows;
  std::string error;

  int Note(const arrow::Status& status) {
    const arrow::Status classified = Classified(status, file->failed());
    if (classified.ok()) return 0;
    error = classified.message();
    if (classified.IsIOError()) return EIO;
    if (classified.IsNotImplemented()) return ENOSYS;
    return classified.IsOutOfMemory() ? ENOMEM : EINVAL;
  }
};

RowsStream* StreamOf(ArrowArrayStream* stream) {
  return static_cast<RowsStream*>(stream->private_data);
}

int StreamSchema(ArrowArrayStream* stream, ArrowSchema* out) {
  RowsStream* const self = StreamOf(stream);
  return self->Note(Caught([&] { return arrow::ExportSchema(*self->rows->schema(), out); }));
}

int StreamNext(ArrowArrayStream* stream, ArrowArray* out) {
  RowsStream* const self = StreamOf(stream);
  return self->Note(Caught([&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(auto batch, self->rows->Next());
    if (batch == nullptr) {
      std::memset(out, 0, sizeof(*out));
      return arrow::Status::OK();
    }
    return arrow::ExportRecordBatch(*batch, out);
  }));
}

const char* StreamError(ArrowArrayStream* stream) { return StreamOf(stream)->error.c_str(); }

void ReleaseStream(ArrowArrayStream* stream) {
  RowsStream* const self = StreamOf(stream);
  self->file->Plan({});
  delete self;
  stream->release = nullptr;
}

arrow::Status CheckColumns(const SluiceParquetReader& reader, const int32_t* columns,
                           size_t num_columns) {
  const int all = reader.schema->num_fields();
  for (size_t i = 0; i < num_columns; ++i)
    if (columns[i] < 0 || columns[i] >= all)
      return arrow::Status::Invalid("there is no column ", columns[i], " of ", all);
  return arrow::Status::OK();
}

arrow::Status CheckGroup(const SluiceParquetReader& reader, int64_t group) {
  const int all = reader.reader->num_row_groups();
  if (group >= 0 && group < all) return arrow::Status::OK();
  return arrow::Status::Invalid("there is no row group ", group, " of ", all);
}

arrow::Status Open(SluiceParquetReader* reader) {
  parquet::ReaderProperties stored;
  stored.set_page_checksum_verification(true);
  auto file = parquet::ParquetFileReader::Open(reader->file, stored);
  if (file->metadata()->is_encryption_algorithm_set())
    return arrow::Status::NotImplemented("the file is encrypted");
  parquet::ArrowReaderProperties properties(/*use_threads=*/false);
  properties.set_pre_buffer(false);
  properties.set_coerce_int96_timestamp_unit(kInt96Unit);
  ARROW_ASSIGN_OR_RAISE(
      reader->reader,
      parquet::arrow::FileReader::Make(arrow::default_memory_pool(), std::move(file), properties));
  return reader->reader->GetSchema(&reader->schema);
}

// libparquet calls a file with an encrypted footer invalid.
bool HasEncryptedFooter(RangedFile* file) {
  constexpr char kMark[] = "PARE";
  constexpr int64_t kBytes = sizeof(kMark) - 1;
  const int64_t size = *file->GetSize();
  char end[kBytes];
  if (size < kBytes) return false;
  const auto read = file->ReadAt(size - kBytes, kBytes, end);
  return read.ok() && *read == kBytes && std::memcmp(end, kMark, kBytes) == 0;
}

}  // namespace

int OpenParquet(const SluiceArrowInput* input, SluiceParquetReader** reader, char* error,
                size_t error_size) {
  *reader = nullptr;
  const auto open = [&]() -> arrow::Status {
    auto opened = std::make_unique<SluiceParquetReader>();
    opened->file = std::make_shared<RangedFile>(*input);
    RangedFile* const file = opened->file.get();
    arrow::Status status = Caught([&] { return Open(opened.get()); });
    if (!status.ok() && !file->failed() && HasEncryptedFooter(file))
      status = arrow::Status::NotImplemented("the file is encrypted");
    if (!status.ok()) return Classified(status, file->failed());
    *reader = opened.release();
    return status;
  };
  return sluice_arrow::Report(Caught(open), error, error_size);
}

void CloseParquet(SluiceParquetReader* reader) { delete reader; }

int ParquetSchema(SluiceParquetReader* reader, ArrowSchema* schema, char* error,
                  size_t error_size) {
  return reader->Report(Caught([&] { return arrow::ExportSchema(*reader->schema, schema); }), error,
                        error_size);
}

int64_t ParquetRowGroups(SluiceParquetReader* reader) { return reader->reader->num_row_groups(); }

int ParquetRowGroup(SluiceParquetReader* reader, int64_t group, const int32_t* columns,
                    size_t num_columns, SluiceRowGroup* info, char* error, size_t error_size) {
  const auto look = [&]() -> arrow::Status {
    ARROW_RETURN_NOT_OK(CheckGroup(*reader, group));
    ARROW_RETURN_NOT_OK(CheckColumns(*reader, columns, num_columns));
    const OpenedFile opened = reader->Opened();
    const auto chunks = opened.metadata->RowGroup(group);
    *info = {chunks->num_rows(), 0, 0, 0};
    bool sound = info->rows >= 0;
    for (size_t i = 0; i < num_columns; ++i) {
      for (const int leaf : LeavesOf(*opened.manifest, columns[i])) {
        const auto chunk = chunks->ColumnChunk(leaf);
        const int64_t bytes = chunk->total_uncompressed_size();
        const int64_t stored = chunk->total_compressed_size();
        int64_t begin = chunk->data_page_offset();
        if (chunk->has_dictionary_page()) begin = std::min(begin, chunk->dictionary_page_offset());
        sound = sound && bytes >= 0 && stored >= 0 && begin >= 0 &&
                !__builtin_add_overflow(info->bytes, bytes, &info->bytes) &&
                !__builtin_add_overflow(info->stored_bytes, stored, &info->stored_bytes);
        info->begin = info->begin == 0 ? begin : std::min(info->begin, begin);
      }
    }
    if (!sound) return arrow::Status::Invalid("row group ", group, " has impossible sizes");
    return arrow::Status::OK();
  };
  return reader->Report(Caught(look), error, error_size);
}

int ReadParquet(SluiceParquetReader* reader, const int64_t* groups, size_t num_groups,
                const int32_t* columns, size_t num_columns, int64_t batch_rows, int dictionaries,
                ArrowArrayStream* stream, char* error, size_t error_size) {
  std::memset(stream, 0, sizeof(*stream));
  const auto read = [&]() -> arrow::Status {
    ARROW_RETURN_NOT_OK(CheckColumns(*reader, columns, num_columns));
    for (size_t i = 0; i < num_groups; ++i) ARROW_RETURN_NOT_OK(CheckGroup(*reader, groups[i]));
    if (batch_rows < 1) return arrow::Status::Invalid("batches of ", batch_rows, " rows");
    auto state = std::make_unique<RowsStream>();
    state->file = reader->file;
    ARROW_ASSIGN_OR_RAISE(state->rows,
                          GroupRows::Make(reader->Opened(), {{groups, groups + num_groups},
                                                             {columns, columns + num_columns},
                                                             batch_rows,
                                                             dictionaries != 0}));
    *stream = {StreamSchema, StreamNext, StreamError, ReleaseStream, state.release()};
    return arrow::Status::OK();
  };
  return reader->Report(Caught(read), error, error_size);
}

}  // namespace sluice_arrow
