// Reads a shard file back as the values that a save was given.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file_reader.h"

namespace sluice {

// Reads a whole shard, with its rows in the order of the file, and sets *shard to its number.
// Statuses as ShardFileReader.
inline absl::StatusOr<ShardValues> ReadShardFile(const std::string& dir, const TableConfig& table,
                                                 const SavedFile& file, uint32_t* shard, Env* env) {
  SLUICE_ASSIGN_OR_RETURN(const auto reader, ShardFileReader::Open(env, dir, table, file));
  *shard = reader->header().shard();
  ShardValues values;
  values.first_element = reader->header().first_element();
  ValueReader runs(reader.get(), 0, reader->runs());
  const size_t key_bytes = reader->sparse() ? sizeof(uint64_t) : 0;
  const size_t floats = (runs.record_bytes() - key_bytes) / sizeof(float);
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(const std::string records, runs.Next(1 << 20));
    if (records.empty()) return values;
    for (size_t at = 0; at < records.size(); at += runs.record_bytes()) {
      if (reader->sparse()) {
        values.keys.emplace_back();
        std::memcpy(&values.keys.back(), records.data() + at, sizeof(uint64_t));
      }
      const size_t end = values.weights.size();
      values.weights.resize(end + floats);
      std::memcpy(values.weights.data() + end, records.data() + at + key_bytes,
                  floats * sizeof(float));
    }
  }
}

}  // namespace sluice
