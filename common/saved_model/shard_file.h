// The name and the front (magic and header) of a shard file.
//
// Format: proto/model.proto.
//
// Thread safety: free functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/model.pb.h"

namespace sluice {

// True when `text` consists of 16 lower-case hexadecimal digits.
bool IsSaveId(const std::string& text);
// The file's name within the model's folder. `save_id` is empty or passes IsSaveId.
std::string ShardFileName(const std::string& table, uint32_t shard,
                          const std::string& save_id = "");
// False when `name` is not the name of a shard file of `table`, in any save.
bool ParseShardFileName(const std::string& name, const std::string& table, uint32_t* shard);
// ShardFileName gives such names: copies that people make, such as a-0.old.shard, are none.
bool IsShardFileName(const std::string& name);
// By the extension alone.
bool IsShardFile(const std::string& name);

// The magic of the format that is written, and of the older one that is also read.
inline constexpr absl::string_view kShardFileMagic = "SLSHARD2", kShardFileMagic1 = "SLSHARD1";

// The front of a file, before its body: magic, length and header.
std::string EncodeShardFileHeader(const ShardFileHeader& header);

// The number of elements of a dense table's tensor. DATA_LOSS when the shape's product overflows.
absl::StatusOr<uint64_t> CountElements(const TableConfig& table);

}  // namespace sluice
