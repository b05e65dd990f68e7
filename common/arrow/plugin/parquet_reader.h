// SluiceParquetReader: a Parquet file whose footer has been read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/arrow/arrow_plugin.h"

namespace sluice_arrow {

// SluiceArrowPlugin says what each of them does.
int OpenParquet(const SluiceArrowInput* input, SluiceParquetReader** reader, char* error,
                size_t error_size);
void CloseParquet(SluiceParquetReader* reader);
int ParquetSchema(SluiceParquetReader* reader, ArrowSchema* schema, char* error, size_t error_size);
int64_t ParquetRowGroups(SluiceParquetReader* reader);
int ParquetRowGroup(SluiceParquetReader* reader, int64_t group, const int32_t* columns,
                    size_t num_columns, SluiceRowGroup* info, char* error, size_t error_size);
int ReadParquet(SluiceParquetReader* reader, const int64_t* groups, size_t num_groups,
                const int32_t* columns, size_t num_columns, int64_t batch_rows, int dictionaries,
                ArrowArrayStream* stream, char* error, size_t error_size);

}  // namespace sluice_arrow
