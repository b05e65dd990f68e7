#include "common/arrow/plugin/parquet_writer.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "arrow/buffer.h"
#include "arrow/c/bridge.h"
#include "arrow/io/buffered.h"
#include "arrow/io/interfaces.h"
#include "arrow/record_batch.h"
#include "arrow/type.h"
#include "common/arrow/plugin/errors.h"
#include "parquet/arrow/schema.h"
#include "parquet/arrow/writer.h"
#include "parquet/properties.h"
#include "parquet/schema.h"

namespace sluice_arrow {
namespace {

// Hands on what is written to the caller of the library.
class AppendedFile : public arrow::io::OutputStream {
 public:
  explicit AppendedFile(const SluiceArrowOutput& output) : output_(output) {}
  bool failed() const { return failed_; }
  // Drops what is written from now on.
  void GiveUp() { given_up_ = true; }

  arrow::Status Write(const void* data, int64_t nbytes) override {
    if (nbytes == 0 || given_up_) return arrow::Status::OK();
    if (output_.append(output_.context, data, nbytes) != 0) {
      failed_ = true;
      return arrow::Status::IOError("the file could not be written");
    }
    written_ += nbytes;
    return arrow::Status::OK();
  }
  arrow::Result<int64_t> Tell() const override { return written_; }
  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }

 private:
  const SluiceArrowOutput output_;
  int64_t written_ = 0;
  bool failed_ = false;
  bool given_up_ = false;
  bool closed_ = false;
};

arrow::Result<parquet::Compression::type> CompressionOf(const char* name) {
  constexpr struct {
    const char* name;
    parquet::Compression::type type;
  } kAll[] = {{"none", parquet::Compression::UNCOMPRESSED},
              {"snappy", parquet::Compression::SNAPPY},
              {"zstd", parquet::Compression::ZSTD},
              {"gzip", parquet::Compression::GZIP},
              {"lz4", parquet::Compression::LZ4}};
  for (const auto& known : kAll)
    if (std::strcmp(name, known.name) == 0) return known.type;
  return arrow::Status::Invalid("compression is none, snappy, zstd, gzip or lz4, not '", name, "'");
}

}  // namespace
}  // namespace sluice_arrow

struct SluiceParquetWriter {
  explicit SluiceParquetWriter(const SluiceArrowOutput& output)
      : appended(std::make_shared<sluice_arrow::AppendedFile>(output)) {}

  arrow::Status Open(ArrowSchema* taken, const SluiceParquetWriterOptions& options) {
    ARROW_ASSIGN_OR_RAISE(schema, arrow::ImportSchema(taken));
    if (options.row_group_rows < 1)
      return arrow::Status::Invalid("row groups of ", options.row_group_rows, " rows");
    ARROW_ASSIGN_OR_RAISE(const auto compression, sluice_arrow::CompressionOf(options.compression));
    parquet::ArrowWriterProperties::Builder arrow_properties;
    arrow_properties.set_use_threads(false);
    arrow_properties.store_schema();  // keeps lists of a fixed size
    parquet::WriterProperties::Builder properties;
    properties.compression(compression);
    properties.max_row_group_length(options.row_group_rows);
    properties.enable_page_checksum();
    // Weights and keys hardly ever repeat: a dictionary of them is work for nothing.
    std::shared_ptr<parquet::SchemaDescriptor> stored;
    const auto arrow_built = arrow_properties.build();
    ARROW_RETURN_NOT_OK(
        parquet::arrow::ToParquetSchema(schema.get(), *properties.build(), *arrow_built, &stored));
    for (int i = 0; i < stored->num_columns(); ++i) {
      const auto type = stored->Column(i)->physical_type();
      if (type == parquet::Type::FLOAT || type == parquet::Type::DOUBLE ||
          type == parquet::Type::INT64)
        properties.disable_dictionary(stored->Column(i)->path());
    }
    // libparquet writes page headers of a few bytes.
    constexpr int64_t kBufferBytes = 1 << 20;
    ARROW_ASSIGN_OR_RAISE(sink, arrow::io::BufferedOutputStream::Create(
                                    kBufferBytes, arrow::default_memory_pool(), appended));
    ARROW_ASSIGN_OR_RAISE(
        writer, parquet::arrow::FileWriter::Open(*schema, arrow::default_memory_pool(), sink,
                                                 properties.build(), arrow_built));
    return arrow::Status::OK();
  }
  int Report(const arrow::Status& status, char* error, size_t error_size) const {
    return sluice_arrow::Report(sluice_arrow::Classified(status, appended->failed()), error,
                                error_size);
  }

  std::shared_ptr<sluice_arrow::AppendedFile> appended;
  std::shared_ptr<arrow::Schema> schema;
  std::shared_ptr<arrow::io::BufferedOutputStream> sink;
  std::unique_ptr<parquet::arrow::FileWriter> writer;
  // A call has failed: the rest of the file would not fit what is there.
  bool broken = false;
};

namespace sluice_arrow {

int CreateParquet(const SluiceArrowOutput* output, ArrowSchema* schema,
                  const SluiceParquetWriterOptions* options, SluiceParquetWriter** writer,
                  char* error, size_t error_size) {
  *writer = nullptr;
  const auto create = [&]() -> arrow::Status {
    *writer = new SluiceParquetWriter(*output);
    return (*writer)->Open(schema, *options);
  };
  arrow::Status status = Caught(create);
  if (schema->release != nullptr) schema->release(schema);
  if (!status.ok() && *writer != nullptr) {
    status = Classified(status, (*writer)->appended->failed());
    DestroyParquet(std::exchange(*writer, nullptr));
  }
  return Report(Classified(status, status.IsIOError()), error, error_size);
}

int WriteParquet(SluiceParquetWriter* writer, ArrowArray* batch, char* error, size_t error_size) {
  const auto write = [&]() -> arrow::Status {
    if (writer->broken) return arrow::Status::Invalid("an earlier part could not be written");
    ARROW_ASSIGN_OR_RAISE(auto rows, arrow::ImportRecordBatch(batch, writer->schema));
    ARROW_RETURN_NOT_OK(rows->Validate());
    return writer->writer->WriteRecordBatch(*rows);
  };
  const arrow::Status status = Caught(write);
  if (batch->release != nullptr) batch->release(batch);
  writer->broken = writer->broken || !status.ok();
  return writer->Report(status, error, error_size);
}

int FinishParquet(SluiceParquetWriter* writer, char* error, size_t error_size) {
  const auto finish = [&]() -> arrow::Status {
    if (writer->broken) return arrow::Status::Invalid("an earlier part could not be written");
    ARROW_RETURN_NOT_OK(writer->writer->Close());
    return writer->sink->Flush();
  };
  const arrow::Status status = Caught(finish);
  writer->broken = true;
  return writer->Report(status, error, error_size);
}

void DestroyParquet(SluiceParquetWriter* writer) {
  // libparquet's writer writes what it still has when it is destroyed.
  if (writer != nullptr) writer->appended->GiveUp();
  delete writer;
}

}  // namespace sluice_arrow
