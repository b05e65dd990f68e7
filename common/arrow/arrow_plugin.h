// The interface of sluice-arrow.so: a table of C functions over libarrow and libparquet.
//
// The library is opened with dlopen and never linked, since libparquet exports the functions of
// OpenSSL. Only plain C types and the Arrow C data interface cross this border: the library is
// C++20 and has a C++ library of its own choice.
//
// Errors: a function returns 0, or a SluiceArrowError, and then writes the reason with its
// terminating 0 to `error` [error_size]. The reason does not name the file.
//
// Thread safety: a reader or writer belongs to one thread at a time. The library makes no threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/arrow/arrow_c_data.h"

extern "C" {

// Raised with each change of this file. Both sides must have the same one.
#define SLUICE_ARROW_PLUGIN_VERSION 2

enum SluiceArrowError {
  SLUICE_ARROW_OK = 0,
  SLUICE_ARROW_INVALID = 1,      // damaged, or not Parquet
  SLUICE_ARROW_UNSUPPORTED = 2,  // a type, codec or encryption that the library does not read
  SLUICE_ARROW_IO = 3,           // a callback returned an error
  SLUICE_ARROW_NO_MEMORY = 4,
};

// Bytes [begin, begin + bytes) of a file.
struct SluiceArrowRange {
  int64_t begin, bytes;
};

// The bytes of a file. `read_at` reads all n bytes at `offset` to `to`; 0 when it did. The caller
// keeps its own error. `plan` says that the ranges [num_ranges], by begin, will be read, and
// forgets those of the call before. A damaged footer may name any ranges.
struct SluiceArrowInput {
  void* context;
  int64_t size;
  int (*read_at)(void* context, int64_t offset, int64_t n, void* to);
  void (*plan)(void* context, const SluiceArrowRange* ranges, size_t num_ranges);
};

// Where a file goes, from front to back.
struct SluiceArrowOutput {
  void* context;
  int (*append)(void* context, const void* bytes, int64_t n);
};

struct SluiceParquetReader;
struct SluiceParquetWriter;

struct SluiceRowGroup {
  int64_t rows;
  int64_t bytes;         // of the chosen columns, uncompressed
  int64_t stored_bytes;  // of the chosen columns, as stored
  int64_t begin;         // offset in the file of the first byte of the chosen columns
};

struct SluiceParquetWriterOptions {
  int64_t row_group_rows;
  const char* compression;  // "none", "snappy", "zstd", "gzip", "lz4"
};

struct SluiceArrowPlugin {
  int version;                // SLUICE_ARROW_PLUGIN_VERSION
  const char* arrow_version;  // "18.1.0"

  // Reads the footer. `input` outlives the reader.
  int (*open)(const SluiceArrowInput* input, SluiceParquetReader** reader, char* error,
              size_t error_size);
  void (*close)(SluiceParquetReader* reader);
  // The top-level columns, in the file's order, as the children of a struct ("+s").
  int (*schema)(SluiceParquetReader* reader, ArrowSchema* schema, char* error, size_t error_size);
  int64_t (*row_groups)(SluiceParquetReader* reader);
  // REQUIRES: 0 <= group < row_groups. `columns` [num_columns]: indices of top-level columns.
  int (*row_group)(SluiceParquetReader* reader, int64_t group, const int32_t* columns,
                   size_t num_columns, SluiceRowGroup* info, char* error, size_t error_size);
  // Reads rows of the groups `groups` [num_groups], one after another, as structs of at most
  // `batch_rows` rows with the chosen columns in the order of `columns`. Where `dictionaries` is
  // not 0, string columns that are stored with dictionaries come as dictionary arrays. The stream
  // must be released before the reader is closed.
  int (*read)(SluiceParquetReader* reader, const int64_t* groups, size_t num_groups,
              const int32_t* columns, size_t num_columns, int64_t batch_rows, int dictionaries,
              ArrowArrayStream* stream, char* error, size_t error_size);

  // Takes over *schema, a struct of the columns. `output` outlives the writer.
  int (*create)(const SluiceArrowOutput* output, ArrowSchema* schema,
                const SluiceParquetWriterOptions* options, SluiceParquetWriter** writer,
                char* error, size_t error_size);
  // Takes over *batch, rows of the schema.
  int (*write)(SluiceParquetWriter* writer, ArrowArray* batch, char* error, size_t error_size);
  // Writes the footer.
  int (*finish)(SluiceParquetWriter* writer, char* error, size_t error_size);
  // Frees the writer, finished or not.
  void (*destroy)(SluiceParquetWriter* writer);
};

// The only symbol of the library. Null when `version` is not its own.
typedef const SluiceArrowPlugin* (*SluiceArrowPluginFunction)(int version);
#define SLUICE_ARROW_PLUGIN_SYMBOL "SluiceArrowPluginOf"

}  // extern "C"
