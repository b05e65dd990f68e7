#include "worker/step/geo_state_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/file_origin.h"
#include "common/base/status_macros.h"
#include "common/saved_model/saved_model.h"

namespace sluice {
namespace {

constexpr size_t kBlockBytes = 256 << 10;
constexpr size_t kMagicBytes = sizeof(kOwnGeoStateMagic) - 1;

struct BlockHeader {
  uint32_t length = 0;
  uint32_t crc = 0;
};

std::string Bytes(const BlockHeader& header) {
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header));
}

}  // namespace

absl::StatusOr<std::unique_ptr<GeoStateWriter>> GeoStateWriter::Create(Env* env,
                                                                       const std::string& directory,
                                                                       uint32_t rank,
                                                                       const std::string& save_id) {
  std::unique_ptr<GeoStateWriter> writer(new GeoStateWriter());
  writer->file_.set_name(WorkerFileName(rank, save_id));
  SLUICE_ASSIGN_OR_RETURN(writer->out_, StartFileIn(directory, writer->file_.name(), env));
  SLUICE_RETURN_IF_ERROR(writer->Write(kOwnGeoStateMagic));
  writer->block_.reserve(kBlockBytes);
  return writer;
}

absl::Status GeoStateWriter::Append(const void* bytes, size_t n) {
  const char* from = static_cast<const char*>(bytes);
  while (n > 0) {
    const size_t part = std::min(n, kBlockBytes - block_.size());
    block_.append(from, part);
    from += part;
    n -= part;
    if (block_.size() == kBlockBytes) SLUICE_RETURN_IF_ERROR(EndBlock());
  }
  return absl::OkStatus();
}

absl::Status GeoStateWriter::EndBlock() {
  if (block_.empty()) return absl::OkStatus();
  // The block's own checksum lets the reader refuse a damaged block before any of it is used. The
  // checksum of all blocks finds intact blocks that are missing, repeated or out of order.
  const BlockHeader header{static_cast<uint32_t>(block_.size()),
                           Crc32c(block_.data(), block_.size())};
  crc_ = ExtendCrc32c(crc_, block_.data(), block_.size());
  SLUICE_RETURN_IF_ERROR(Write(Bytes(header)));
  SLUICE_RETURN_IF_ERROR(Write(block_));
  block_.clear();
  return absl::OkStatus();
}

absl::Status GeoStateWriter::Write(const std::string& bytes) {
  file_.set_bytes(file_.bytes() + bytes.size());
  file_.set_crc32c(ExtendCrc32c(file_.crc32c(), bytes.data(), bytes.size()));
  return out_->Append(bytes);
}

absl::StatusOr<SavedFile> GeoStateWriter::Finish() {
  SLUICE_RETURN_IF_ERROR(EndBlock());
  // A block of length 0 is the end. A file that was cut at a block's border lacks it.
  SLUICE_RETURN_IF_ERROR(Write(Bytes({0, crc_})));
  SLUICE_RETURN_IF_ERROR(out_->Finish());
  return file_;
}

absl::StatusOr<std::unique_ptr<GeoStateReader>> GeoStateReader::Open(Env* env,
                                                                     const std::string& directory,
                                                                     const SavedFile& file) {
  std::unique_ptr<GeoStateReader> reader(
      new GeoStateReader(env, absl::StrCat(directory, "/", file.name()), file.crc32c()));
  const absl::StatusOr<uint64_t> size = env->FileSize(reader->path_);
  if (absl::IsNotFound(size.status())) return reader->Damaged("it is missing");
  if (!size.ok()) return size.status();
  // Cheap, and before anything is read.
  if (*size != file.bytes()) {
    return reader->Damaged(absl::StrCat("it has ", *size, " of ", file.bytes(), " bytes"));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string magic, reader->NextBytes(kMagicBytes));
  if (magic != kOwnGeoStateMagic) return reader->Damaged("it does not begin like such a file");
  return reader;
}

absl::Status GeoStateReader::Damaged(const std::string& what) const {
  return absl::DataLossError(absl::StrCat(
      path_, " is damaged: ", what, "; --allow_older resumes from the newest intact checkpoint"));
}

absl::StatusOr<std::string> GeoStateReader::NextBytes(size_t n) {
  SLUICE_ASSIGN_OR_RETURN(std::string bytes, env_->ReadRange(path_, at_, n));
  at_ += bytes.size();
  // The file is read once and in order, so this checksum needs no second reading.
  file_crc_ = ExtendCrc32c(file_crc_, bytes.data(), bytes.size());
  return bytes;
}

absl::Status GeoStateReader::NextBlock() {
  BlockHeader header;
  SLUICE_ASSIGN_OR_RETURN(const std::string head, NextBytes(sizeof(header)));
  if (head.size() < sizeof(header)) return Damaged("it ends early");
  std::memcpy(&header, head.data(), sizeof(header));
  block_.clear();
  taken_ = 0;
  if (header.length == 0) {
    if (header.crc != crc_) return Damaged("the checksum of its contents is wrong");
    ended_ = true;
    return absl::OkStatus();
  }
  // Before anything is allocated: a damaged length could name gigabytes.
  if (header.length > kBlockBytes)
    return Damaged(absl::StrCat("it has a block of ", header.length, " bytes"));
  SLUICE_ASSIGN_OR_RETURN(block_, NextBytes(header.length));
  if (block_.size() < header.length) return Damaged("it ends early");
  if (Crc32c(block_.data(), block_.size()) != header.crc)
    return Damaged(
        absl::StrCat("the block at byte ", at_ - header.length, " has a wrong checksum"));
  crc_ = ExtendCrc32c(crc_, block_.data(), block_.size());
  return absl::OkStatus();
}

absl::Status GeoStateReader::Read(void* to, size_t n) {
  char* into = static_cast<char*>(to);
  while (n > 0) {
    if (taken_ == block_.size()) {
      if (!ended_) SLUICE_RETURN_IF_ERROR(NextBlock());
      if (ended_) return Damaged("it ends early");
    }
    const size_t part = std::min(n, block_.size() - taken_);
    std::memcpy(into, block_.data() + taken_, part);
    taken_ += part;
    into += part;
    n -= part;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> GeoStateReader::HasMore() {
  if (taken_ == block_.size() && !ended_) SLUICE_RETURN_IF_ERROR(NextBlock());
  return taken_ < block_.size();
}

absl::Status GeoStateReader::Finish() {
  SLUICE_ASSIGN_OR_RETURN(const bool more, HasMore());
  if (more) return Damaged("it holds more than was expected");
  // The blocks are intact, but they may be those of another rank or checkpoint.
  if (file_crc_ == expected_crc_) return absl::OkStatus();
  return Damaged(absl::StrCat("its checksum is ", absl::Hex(file_crc_, absl::kZeroPad8),
                              " and not ", absl::Hex(expected_crc_, absl::kZeroPad8),
                              " as in the checkpoint's MANIFEST; it may be the file of another "
                              "rank or checkpoint"));
}

}  // namespace sluice
