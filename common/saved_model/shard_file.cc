#include "common/saved_model/shard_file.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace sluice {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "files hold little-endian values as they lie in memory");

constexpr absl::string_view kExtension = ".shard";

}  // namespace

bool IsSaveId(const std::string& text) {
  return text.size() == 16 && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

std::string ShardFileName(const std::string& table, uint32_t shard, const std::string& save_id) {
  return absl::StrCat(absl::StrReplaceAll(table, {{"/", "."}}), "-", shard,
                      save_id.empty() ? "" : ".", save_id, kExtension);
}

bool ParseShardFileName(const std::string& name, const std::string& table, uint32_t* shard) {
  // A save_id has no dash, so the shard follows the last dash, even when the table's name has some.
  const size_t dash = name.rfind('-');
  if (dash == std::string::npos || !absl::EndsWith(name, kExtension)) return false;
  const std::string number = name.substr(dash + 1, name.size() - dash - 1 - kExtension.size());
  const size_t dot = number.find('.');
  const std::string save_id = dot == std::string::npos ? "" : number.substr(dot + 1);
  if (dot != std::string::npos && !IsSaveId(save_id)) return false;
  return absl::SimpleAtoi(number.substr(0, dot), shard) &&
         ShardFileName(table, *shard, save_id) == name;
}

bool IsShardFileName(const std::string& name) {
  // The text before the last dash is the name of the table, in any spelling.
  const size_t dash = name.rfind('-');
  uint32_t shard = 0;
  return dash != std::string::npos && dash > 0 &&
         ParseShardFileName(name, name.substr(0, dash), &shard);
}

bool IsShardFile(const std::string& name) { return absl::EndsWith(name, kExtension); }

std::string EncodeShardFileHeader(const ShardFileHeader& header) {
  const std::string body = header.SerializeAsString();
  const uint32_t length = static_cast<uint32_t>(body.size());
  return absl::StrCat(kShardFileMagic,
                      absl::string_view(reinterpret_cast<const char*>(&length), sizeof(length)),
                      body);
}

absl::StatusOr<uint64_t> CountElements(const TableConfig& table) {
  uint64_t elements = 1;
  for (uint64_t extent : table.shape()) {
    // The shape may come from a damaged manifest, and a small product that wrapped around would
    // pass every later check.
    if (__builtin_mul_overflow(elements, extent, &elements)) {
      return absl::DataLossError(absl::StrCat("the shape of table '", table.name(),
                                              "' overflows: the manifest is damaged"));
    }
  }
  return elements;
}

}  // namespace sluice
