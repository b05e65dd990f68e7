// The table of functions of sluice-arrow.so.
#include "arrow/util/config.h"
#include "common/arrow/arrow_plugin.h"
#include "common/arrow/plugin/parquet_reader.h"
#include "common/arrow/plugin/parquet_writer.h"

extern "C" __attribute__((visibility("default"))) const SluiceArrowPlugin* SluiceArrowPluginOf(
    int version) {
  static constexpr SluiceArrowPlugin kPlugin = {
      SLUICE_ARROW_PLUGIN_VERSION,   ARROW_VERSION_STRING,        sluice_arrow::OpenParquet,
      sluice_arrow::CloseParquet,    sluice_arrow::ParquetSchema, sluice_arrow::ParquetRowGroups,
      sluice_arrow::ParquetRowGroup, sluice_arrow::ReadParquet,   sluice_arrow::CreateParquet,
      sluice_arrow::WriteParquet,    sluice_arrow::FinishParquet, sluice_arrow::DestroyParquet};
  return version == SLUICE_ARROW_PLUGIN_VERSION ? &kPlugin : nullptr;
}
