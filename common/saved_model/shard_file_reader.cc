#include "common/saved_model/shard_file_reader.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/crc32c.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/optimizer/update_rule.h"
#include "common/saved_model/shard_file.h"
#include "common/saved_model/shard_image.h"

namespace sluice {
namespace {

constexpr size_t kPreambleBytes = 8 + sizeof(uint32_t);
// Far more than a header needs, which holds a name and, in a checkpoint, a few numbers for each
// rank.
constexpr uint32_t kMaxHeaderBytes = 20 << 20;  // with the sketch of a table with admit
// Bounds the number of parts, and the memory that a forged index can claim.
constexpr uint32_t kMaxRunsRead = 1 << 10;

uint32_t LoadU32(const char* from) {
  uint32_t value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// Returns what is wrong with the gone keys of a delta's header, or nothing. They must ascend and
// belong to the shard.
std::string GoneProblem(const ShardFileHeader& header, uint32_t num_shards) {
  for (int i = 0; i < header.gone_size(); ++i) {
    const uint64_t key = header.gone(i);
    if (i > 0 && key <= header.gone(i - 1))
      return absl::StrCat("gone key ", key, " follows key ", header.gone(i - 1));
    if (ShardOfKey(key, num_shards) != header.shard())
      return absl::StrCat("gone key ", key, " does not belong to shard ", header.shard());
  }
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardFileReader>> ShardFileReader::Open(Env* env,
                                                                       const std::string& dir,
                                                                       const TableConfig& table,
                                                                       const SavedFile& file) {
  std::unique_ptr<ShardFileReader> reader(new ShardFileReader);
  reader->env_ = env;
  reader->path_ = absl::StrCat(dir, "/", file.name());
  reader->bytes_ = file.bytes();
  // This also keeps a damaged manifest from leading out of the folder: ShardFileName replaces every
  // '/' of a table's name.
  uint32_t shard = 0;
  if (!ParseShardFileName(file.name(), table.name(), &shard)) {
    return absl::DataLossError(absl::StrCat("'", file.name(), "' in the manifest of ", dir,
                                            " is not a shard file of table '", table.name(),
                                            "': the manifest is damaged"));
  }
  // Cheap, and finds files that were cut off before anything of them is believed.
  const absl::StatusOr<uint64_t> size = env->FileSize(reader->path_);
  if (absl::IsNotFound(size.status())) return reader->Damaged("it is missing");
  if (!size.ok()) return size.status();
  if (*size != file.bytes()) {
    return reader->Damaged(
        absl::StrCat("it has ", *size, " bytes; the manifest says ", file.bytes()));
  }
  SLUICE_RETURN_IF_ERROR(reader->ReadHeader(table, shard));
  SLUICE_RETURN_IF_ERROR(reader->indexed_ ? reader->ReadIndex(file.crc32c())
                                          : reader->MakeOneBlock(file.crc32c()));
  return reader;
}

absl::Status ShardFileReader::Damaged(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(path_, " is damaged: ", what,
                                          "; restore the file, or use another copy of its folder"));
}

absl::StatusOr<std::string> ShardFileReader::ReadExactly(uint64_t offset, uint64_t n) const {
  absl::StatusOr<std::string> bytes = env_->ReadRange(path_, offset, n);
  if (!bytes.ok()) {
    return absl::Status(
        bytes.status().code(),
        absl::StrCat(bytes.status().message(), " (bytes ", offset, " to ", offset + n,
                     "); check the disk or the store, or use another copy of the model"));
  }
  if (bytes->size() != n) {
    return Damaged(
        absl::StrCat("it ends at byte ", offset + bytes->size(), ", before byte ", offset + n));
  }
  return bytes;
}

absl::Status ShardFileReader::ReadHeader(const TableConfig& table, uint32_t shard) {
  if (bytes_ < kPreambleBytes) return Damaged(absl::StrCat("it has only ", bytes_, " bytes"));
  SLUICE_ASSIGN_OR_RETURN(const std::string preamble, ReadExactly(0, kPreambleBytes));
  indexed_ = absl::StartsWith(preamble, kShardFileMagic);
  if (!indexed_ && !absl::StartsWith(preamble, kShardFileMagic1)) {
    return Damaged(absl::StrCat("it does not begin with ", kShardFileMagic));
  }
  const uint32_t length = LoadU32(preamble.data() + kShardFileMagic.size());
  // The length comes from the file, so it is bounded before memory is taken for it.
  if (length > kMaxHeaderBytes || length > bytes_ - kPreambleBytes) {
    return Damaged(absl::StrCat("its header would have ", length, " bytes"));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string header, ReadExactly(kPreambleBytes, length));
  body_offset_ = overhead_bytes_ = kPreambleBytes + length;
  front_crc_ = ExtendCrc32c(Crc32c(preamble.data(), preamble.size()), header.data(), header.size());
  if (!header_.ParseFromString(header)) return Damaged("its header cannot be parsed");
  return CheckHeader(table, shard);
}

absl::Status ShardFileReader::CheckHeader(const TableConfig& table, uint32_t shard) {
  // A file that was put in the place of another has a right checksum, but another header.
  if (header_.table() != table.name() || header_.kind() != table.kind() ||
      header_.shard() != shard) {
    return Damaged(
        absl::StrCat("its header does not say shard ", shard, " of table '", table.name(), "'"));
  }
  if (header_.state_floats() != 0 && !has_state())
    return Damaged("it holds optimizer state, which a saved model does not have");
  const uint32_t runs = indexed_ ? header_.runs() : 1;
  if (runs == 0 || runs > kMaxRunsRead || (runs > 1 && !sparse()))
    return Damaged(absl::StrCat("its header says ", runs, " runs"));
  first_block_.assign(runs + 1, 0);
  if (!sparse()) {
    SLUICE_ASSIGN_OR_RETURN(const uint64_t elements, CountElements(table));
    record_bytes_ = sizeof(float);
    if (header_.state_floats() > UpdateRule::kMaxState)
      return Damaged(absl::StrCat("its header says ", header_.state_floats(), " state arrays"));
    // Compared by subtraction, because the sum of two numbers of the file may wrap around.
    if (header_.first_element() > elements ||
        header_.elements() > elements - header_.first_element()) {
      return Damaged(absl::StrCat("its ", header_.elements(), " elements, starting at element ",
                                  header_.first_element(), ", exceed the tensor's ", elements,
                                  " elements"));
    }
    return absl::OkStatus();
  }
  uint64_t dim = 0;
  for (const ColumnGroup& group : table.columns()) dim += group.dim();
  if (header_.dim() != dim) {
    return Damaged(
        absl::StrCat("its rows have ", header_.dim(), " weights; the table's rows have ", dim));
  }
  if (header_.state_floats() > UpdateRule::kMaxState * dim) {
    return Damaged(absl::StrCat("its rows would have ", header_.state_floats(),
                                " floats of optimizer state for ", dim, " weights"));
  }
  weights_offset_ = sizeof(uint64_t) + (has_state() ? kRowHistoryBytes : 0);
  record_bytes_ = weights_offset_ + sizeof(float) * (dim + header_.state_floats());
  // Refuse numbers whose product overflows: CheckKeys would compare keys with wrong parts.
  if (shard >= table.num_shards() || uint64_t{table.num_shards()} * runs > UINT32_MAX) {
    return Damaged(absl::StrCat("the manifest says ", table.num_shards(),
                                " shards, but the file has ", runs, " runs of shard ", shard));
  }
  parts_ = table.num_shards() * runs;
  const std::string gone = GoneProblem(header_, table.num_shards());
  return gone.empty() ? absl::OkStatus() : Damaged(gone);
}

absl::Status ShardFileReader::MakeOneBlock(uint32_t file_crc) {
  const uint64_t body = bytes_ - body_offset_;
  if (body % record_bytes_ != 0 || body / record_bytes_ != records()) {
    return Damaged(absl::StrCat("its header promises ", records(), " records of ", record_bytes_,
                                " bytes, but its body has ", body, " bytes"));
  }
  // The manifest has only the checksum of the whole file. From it follows the checksum that the
  // body must have, so that RunReader can check the body while reading it.
  const uint32_t crc = CombineCrc32c(front_crc_, file_crc, ShiftCrc32c(body));
  if (body == 0 && crc != 0)
    return Damaged("the CRC-32C of its header is not the one in the manifest");
  if (body > 0) {
    blocks_.push_back({body_offset_, body, crc});
    first_block_.back() = 1;
  }
  return absl::OkStatus();
}

absl::Status ShardFileReader::ReadIndex(uint32_t file_crc) {
  const uint64_t room = bytes_ - body_offset_;
  if (room < sizeof(uint32_t)) return Damaged("it ends before its index");
  SLUICE_ASSIGN_OR_RETURN(const std::string last, ReadExactly(bytes_ - 4, 4));
  const uint64_t length = LoadU32(last.data());
  if (length > room - 4) return Damaged(absl::StrCat("its index would have ", length, " bytes"));
  const uint64_t offset = bytes_ - 4 - length;
  SLUICE_ASSIGN_OR_RETURN(const std::string bytes, ReadExactly(offset, length));
  overhead_bytes_ += length + 4;
  ShardFileIndex index;
  if (!index.ParseFromString(bytes)) return Damaged("its index cannot be parsed");
  SLUICE_RETURN_IF_ERROR(PlaceBlocks(index, offset));
  // The index must agree with the checksum of the whole file, so that its block checksums, which
  // RunReader uses, can be trusted without reading the body here.
  uint32_t crc = front_crc_, shift = 0;
  uint64_t shift_bytes = 0;
  for (const Block& block : blocks_) {
    if (block.bytes != shift_bytes) shift = ShiftCrc32c(shift_bytes = block.bytes);
    crc = CombineCrc32c(crc, block.crc, shift);
  }
  crc = ExtendCrc32c(ExtendCrc32c(crc, bytes.data(), bytes.size()), last.data(), last.size());
  if (crc == file_crc) return absl::OkStatus();
  return Damaged(absl::StrFormat(
      "its header and index give the CRC-32C %08x; the manifest says %08x", crc, file_crc));
}

absl::Status ShardFileReader::PlaceBlocks(const ShardFileIndex& index, uint64_t index_offset) {
  if (index.crc32c_size() != index.records_size() ||
      index.run_blocks_size() != static_cast<int>(runs())) {
    return Damaged(absl::StrCat("its index has ", index.records_size(), " blocks, ",
                                index.crc32c_size(), " checksums and ", index.run_blocks_size(),
                                " runs; its header says ", runs(), " runs"));
  }
  uint64_t blocks = 0;
  for (uint32_t r = 0; r < runs(); ++r) {
    blocks += index.run_blocks(static_cast<int>(r));
    if (blocks > static_cast<uint64_t>(index.records_size()))
      return Damaged("the runs of its index have more blocks than the index");
    first_block_[r + 1] = static_cast<uint32_t>(blocks);
  }
  uint64_t offset = body_offset_, sum = 0;
  for (int b = 0; b < index.records_size(); ++b) {
    const uint32_t records = index.records(b);
    // By division: a forged number of records could make the product small again.
    if (records == 0 || records > (index_offset - offset) / record_bytes_) {
      return Damaged(absl::StrCat("block ", b, " of its index, at byte ", offset, ", would have ",
                                  records, " records of ", record_bytes_, " bytes"));
    }
    const uint64_t bytes = records * uint64_t{record_bytes_};
    blocks_.push_back({offset, bytes, index.crc32c(b)});
    offset += bytes;
    sum += records;
  }
  if (blocks == blocks_.size() && offset == index_offset && sum == this->records())
    return absl::OkStatus();
  return Damaged(absl::StrCat("its header promises ", this->records(), " records in ", runs(),
                              " runs up to byte ", index_offset, ", but its index lists ", sum,
                              " records up to byte ", offset));
}

uint64_t ShardFileReader::RunBytes(uint32_t run) const {
  uint64_t bytes = 0;
  for (uint32_t b = first_block_[run]; b < first_block_[run + 1]; ++b) bytes += blocks_[b].bytes;
  return bytes;
}

RunReader::RunReader(const ShardFileReader* file, uint32_t begin, uint32_t end)
    : file_(file),
      end_block_(file->first_block_[end]),
      run_(begin),
      block_(file->first_block_[begin]) {}

absl::StatusOr<std::string> RunReader::Next(size_t max_bytes) {
  if (block_ == end_block_) return std::string();
  // Keys ascend within a run. The next run begins anew.
  for (; file_->first_block_[run_ + 1] <= block_; ++run_) has_last_ = false;
  const ShardFileReader::Block& block = file_->blocks_[block_];
  const uint64_t most =
      std::max<uint64_t>(1, max_bytes / file_->record_bytes_) * file_->record_bytes_;
  const uint64_t n = std::min(most, block.bytes - done_);
  SLUICE_ASSIGN_OR_RETURN(std::string records, file_->ReadExactly(block.offset + done_, n));
  // Records are handed out before their block's checksum is known, so that memory stays small. The
  // caller must not rely on them before the block has ended.
  crc_ = ExtendCrc32c(crc_, records.data(), records.size());
  done_ += n;
  if (done_ == block.bytes) {
    if (crc_ != block.crc) {
      return file_->Damaged(
          absl::StrFormat("its bytes %d to %d have the CRC-32C %08x; its index says %08x",
                          block.offset, block.offset + block.bytes, crc_, block.crc));
    }
    ++block_;
    done_ = crc_ = 0;
  }
  if (file_->sparse()) SLUICE_RETURN_IF_ERROR(CheckKeys(records));
  return records;
}

absl::Status RunReader::CheckKeys(const std::string& records) {
  const uint32_t part = file_->first_part() + run_;
  for (size_t offset = 0; offset < records.size(); offset += file_->record_bytes_) {
    uint64_t key;
    std::memcpy(&key, records.data() + offset, sizeof(key));
    // Readers merge runs by key, so the order must hold. Equal keys would be two rows for one.
    if (has_last_ && key <= last_key_)
      return file_->Damaged(absl::StrCat("key ", key, " follows key ", last_key_));
    if (ShardOfKey(key, file_->parts_) != part) {
      return file_->Damaged(absl::StrCat("key ", key, " does not belong to run ", run_,
                                         " of shard ", file_->header_.shard()));
    }
    has_last_ = true;
    last_key_ = key;
  }
  return absl::OkStatus();
}

ValueReader::ValueReader(const ShardFileReader* file, uint32_t begin, uint32_t end)
    : file_(file),
      record_bytes_(file->sparse() ? sizeof(uint64_t) + sizeof(float) * file->header().dim()
                                   : sizeof(float)),
      runs_(file, begin, end),
      left_(file->values() * sizeof(float)) {}

absl::StatusOr<std::string> ValueReader::Next(size_t max_bytes) {
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(std::string records, runs_.Next(max_bytes));
    if (!file_->has_state() || records.empty()) return records;
    if (!file_->sparse()) {
      records.resize(std::min<uint64_t>(records.size(), left_));
      left_ -= records.size();
      if (records.empty()) continue;  // state
      return records;
    }
    const size_t step = file_->record_bytes();
    char* to = records.data();
    for (size_t from = 0; from < records.size(); from += step, to += record_bytes_) {
      // Moved together in place: the history and the optimizer's state between the weights are left
      // out.
      std::memmove(to, records.data() + from, sizeof(uint64_t));
      std::memmove(to + sizeof(uint64_t), records.data() + from + file_->weights_offset(),
                   record_bytes_ - sizeof(uint64_t));
    }
    records.resize(static_cast<size_t>(to - records.data()));
    return records;
  }
}

}  // namespace sluice
