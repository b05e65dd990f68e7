// SluiceParquetWriter: a Parquet file in the making.
#pragma once

#include <cstddef>

#include "common/arrow/arrow_plugin.h"

namespace sluice_arrow {

// SluiceArrowPlugin says what each of them does.
int CreateParquet(const SluiceArrowOutput* output, ArrowSchema* schema,
                  const SluiceParquetWriterOptions* options, SluiceParquetWriter** writer,
                  char* error, size_t error_size);
int WriteParquet(SluiceParquetWriter* writer, ArrowArray* batch, char* error, size_t error_size);
int FinishParquet(SluiceParquetWriter* writer, char* error, size_t error_size);
void DestroyParquet(SluiceParquetWriter* writer);

}  // namespace sluice_arrow
