#include "common/saved_model/shard_file.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are written from memory as it is");

constexpr absl::string_view kMagic = "SLSHARD1";
constexpr absl::string_view kExtension = ".shard";
constexpr size_t kPreambleBytes = 8 + sizeof(uint32_t);
// A header holds a name and a few numbers.
constexpr uint32_t kMaxHeaderBytes = 64 << 10;

}  // namespace

std::string ShardFileName(const std::string& table, uint32_t shard) {
  return absl::StrCat(absl::StrReplaceAll(table, {{"/", "."}}), "-", shard, kExtension);
}

bool ParseShardFileName(const std::string& name, const std::string& table, uint32_t* shard) {
  const size_t dash = name.rfind('-');
  if (dash == std::string::npos || !absl::EndsWith(name, kExtension)) return false;
  const std::string digits = name.substr(dash + 1, name.size() - dash - 1 - kExtension.size());
  return absl::SimpleAtoi(digits, shard) && ShardFileName(table, *shard) == name;
}

bool IsShardFile(const std::string& name) { return absl::EndsWith(name, kExtension); }

std::string EncodeShardFileHeader(const ShardFileHeader& header) {
  const std::string body = header.SerializeAsString();
  const uint32_t length = static_cast<uint32_t>(body.size());
  return absl::StrCat(
      kMagic, absl::string_view(reinterpret_cast<const char*>(&length), sizeof(length)), body);
}

absl::StatusOr<uint64_t> CountElements(const TableConfig& table) {
  uint64_t elements = 1;
  for (uint64_t extent : table.shape()) {
    if (__builtin_mul_overflow(elements, extent, &elements)) {
      return absl::DataLossError(absl::StrCat("the shape of table '", table.name(),
                                              "' overflows: the manifest is damaged"));
    }
  }
  return elements;
}

absl::StatusOr<std::unique_ptr<ShardFileReader>> ShardFileReader::Open(Env* env,
                                                                       const std::string& dir,
                                                                       const TableConfig& table,
                                                                       const SavedFile& file) {
  std::unique_ptr<ShardFileReader> reader(new ShardFileReader);
  reader->env_ = env;
  reader->path_ = absl::StrCat(dir, "/", file.name());
  reader->bytes_ = file.bytes();
  reader->expected_crc_ = file.crc32c();
  // Also keeps a damaged manifest from leading out of the folder: table names hold no '/' here.
  uint32_t shard = 0;
  if (!ParseShardFileName(file.name(), table.name(), &shard)) {
    return absl::DataLossError(absl::StrCat("'", file.name(), "' in the manifest of ", dir,
                                            " is no shard file of table '", table.name(),
                                            "': the manifest is damaged"));
  }
  const absl::StatusOr<uint64_t> size = env->FileSize(reader->path_);
  if (absl::IsNotFound(size.status())) return reader->Damaged("it is missing");
  if (!size.ok()) return size.status();
  if (*size != file.bytes()) {
    return reader->Damaged(
        absl::StrCat("it has ", *size, " bytes, the manifest says ", file.bytes()));
  }
  SLUICE_RETURN_IF_ERROR(reader->ReadHeader(table, shard));
  return reader;
}

absl::Status ShardFileReader::Damaged(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(path_, " is damaged: ", what,
                                          "; restore the file, or use another copy of the model"));
}

absl::StatusOr<std::string> ShardFileReader::ReadExactly(uint64_t n) {
  SLUICE_ASSIGN_OR_RETURN(std::string bytes, env_->ReadRange(path_, position_, n));
  if (bytes.size() != n) return Damaged(absl::StrCat("it ends before byte ", position_ + n));
  crc_ = ExtendCrc32c(crc_, bytes.data(), bytes.size());
  position_ += n;
  return bytes;
}

absl::Status ShardFileReader::ReadHeader(const TableConfig& table, uint32_t shard) {
  if (bytes_ < kPreambleBytes) return Damaged(absl::StrCat("it has only ", bytes_, " bytes"));
  SLUICE_ASSIGN_OR_RETURN(const std::string preamble, ReadExactly(kPreambleBytes));
  if (!absl::StartsWith(preamble, kMagic)) {
    return Damaged(absl::StrCat("it does not begin with ", kMagic));
  }
  uint32_t length;
  std::memcpy(&length, preamble.data() + kMagic.size(), sizeof(length));
  if (length > kMaxHeaderBytes || length > bytes_ - position_) {
    return Damaged(absl::StrCat("its header would have ", length, " bytes"));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string header, ReadExactly(length));
  if (!header_.ParseFromString(header)) return Damaged("its header cannot be parsed");
  SLUICE_RETURN_IF_ERROR(CheckHeader(table, shard, bytes_ - position_));
  return position_ == bytes_ ? CheckSum() : absl::OkStatus();
}

absl::Status ShardFileReader::CheckHeader(const TableConfig& table, uint32_t shard,
                                          uint64_t body_bytes) {
  if (header_.table() != table.name() || header_.kind() != table.kind() ||
      header_.shard() != shard) {
    return Damaged(
        absl::StrCat("its header does not say shard ", shard, " of table '", table.name(), "'"));
  }
  if (header_.state_floats() != 0)
    return Damaged("it holds optimizer state, a saved model does not");
  uint64_t records = 0;
  if (table.kind() == TableConfig::DENSE) {
    SLUICE_ASSIGN_OR_RETURN(const uint64_t elements, CountElements(table));
    records = header_.elements();
    record_bytes_ = sizeof(float);
    if (header_.first_element() > elements || records > elements - header_.first_element()) {
      return Damaged(absl::StrCat("its ", records, " elements from ", header_.first_element(),
                                  " on lie outside of the tensor's ", elements));
    }
  } else {
    uint64_t dim = 0;
    for (const ColumnGroup& group : table.columns()) dim += group.dim();
    if (header_.dim() != dim) {
      return Damaged(
          absl::StrCat("its rows have ", header_.dim(), " weights, those of the table ", dim));
    }
    records = header_.rows();
    record_bytes_ = sizeof(uint64_t) + sizeof(float) * dim;
  }
  if (body_bytes % record_bytes_ != 0 || body_bytes / record_bytes_ != records) {
    return Damaged(absl::StrCat("its header promises ", records, " records of ", record_bytes_,
                                " bytes, there are ", body_bytes, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status ShardFileReader::CheckSum() const {
  if (crc_ == expected_crc_) return absl::OkStatus();
  return Damaged(
      absl::StrFormat("its CRC-32C is %08x, the manifest says %08x", crc_, expected_crc_));
}

absl::StatusOr<std::string> ShardFileReader::NextRecords(size_t max_bytes) {
  const uint64_t wanted = std::max<uint64_t>(1, max_bytes / record_bytes_) * record_bytes_;
  const uint64_t n = std::min<uint64_t>(wanted, bytes_ - position_);
  if (n == 0) return std::string();
  SLUICE_ASSIGN_OR_RETURN(std::string records, ReadExactly(n));
  if (position_ == bytes_) SLUICE_RETURN_IF_ERROR(CheckSum());
  return records;
}

}  // namespace sluice
