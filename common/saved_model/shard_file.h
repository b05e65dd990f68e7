// One shard file: its name and its front. Format: proto/model.proto.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/model.pb.h"

namespace sluice {

// Lower-case letters and digits.
bool IsSaveId(const std::string& text);
// Name within the model's folder. `save_id`: IsSaveId, or none.
std::string ShardFileName(const std::string& table, uint32_t shard,
                          const std::string& save_id = "");
// False when `name` is no shard file of `table`, of any save.
bool ParseShardFileName(const std::string& name, const std::string& table, uint32_t* shard);
bool IsShardFile(const std::string& name);

// Of the format that is written, and of the one that is read as well.
inline constexpr absl::string_view kShardFileMagic = "SLSHARD2", kShardFileMagic1 = "SLSHARD1";

// Magic, length and header: what stands before the body.
std::string EncodeShardFileHeader(const ShardFileHeader& header);

// Elements of a dense table's tensor; DATA_LOSS when the shape cannot be.
absl::StatusOr<uint64_t> CountElements(const TableConfig& table);

}  // namespace sluice
