#include "server/copies/shard_image_reader.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/saved_model/shard_file.h"

namespace sluice {

absl::Status ShardImageReader::Wrong(absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat("the image of shard ", shard_->index(),
                                                 " of table '", shard_->table().name(), "' ", what,
                                                 "; use the same version of sluice on all hosts"));
}

absl::Status ShardImageReader::Add(const std::string& piece) {
  switch (stage_) {
    case kHeader:
      return TakeHeader(piece);
    case kBlocks:
      return taken_ < records_ ? TakeBlock(piece) : TakeIndex(piece);
    case kDone:
      break;
  }
  return Wrong("has bytes after its end");
}

absl::Status ShardImageReader::TakeHeader(const std::string& piece) {
  const size_t preamble = kShardFileMagic.size() + sizeof(uint32_t);
  uint32_t length = 0;
  if (piece.size() >= preamble) {
    std::memcpy(&length, piece.data() + kShardFileMagic.size(), sizeof(length));
  }
  if (!absl::StartsWith(piece, kShardFileMagic) || piece.size() != preamble + length ||
      !header_.ParseFromArray(piece.data() + preamble, static_cast<int>(length))) {
    return Wrong("does not begin with a header");
  }
  // The blocks are written straight into the shard, so the header must fit the job's own table.
  const TableLayout& table = shard_->table();
  const bool sparse = table.sparse();
  if (header_.table() != table.name() || header_.kind() != table.config().kind() ||
      header_.shard() != shard_->index() || !header_.has_facts() ||
      header_.state_floats() != shard_->saved_state_floats() ||
      (sparse ? header_.dim() != table.dim()
              : header_.elements() != table.ShardElements(shard_->index()) ||
                    header_.first_element() != shard_->index() * table.block_elements())) {
    return Wrong("belongs to another table or shard");
  }
  record_bytes_ = sizeof(float);
  records_ = header_.elements() * (1 + header_.state_floats());
  if (sparse) {
    record_bytes_ = sizeof(uint64_t) + kRowHistoryBytes +
                    sizeof(float) * (table.dim() + header_.state_floats());
    records_ = header_.rows();
  }
  stage_ = kBlocks;
  return absl::OkStatus();
}

absl::Status ShardImageReader::TakeBlock(const std::string& piece) {
  const size_t n = piece.size() / record_bytes_;
  // No more records than announced: a peer cannot make the shard grow beyond its header.
  if (n == 0 || piece.size() % record_bytes_ != 0 || n > records_ - taken_) {
    return Wrong(absl::StrCat("has a block of ", piece.size(), " bytes, where ", records_ - taken_,
                              " records of ", record_bytes_, " are left"));
  }
  seen_.add_records(static_cast<uint32_t>(n));
  seen_.add_crc32c(Crc32c(piece.data(), piece.size()));
  if (shard_->table().sparse()) {
    keys_.resize(n);
    values_.resize(n);
    for (size_t i = 0; i < n; ++i) {
      const char* const record = piece.data() + i * record_bytes_;
      std::memcpy(&keys_[i], record, sizeof(uint64_t));
      // No pull would find such a row, but checkpoints would save it and a load would move it.
      if (shard_->table().ShardOf(keys_[i]) != shard_->index()) {
        return Wrong(absl::StrCat("has key ", keys_[i], ", which belongs to another shard"));
      }
      values_[i] = record + sizeof(uint64_t);
    }
    shard_->RestoreRows(keys_.data(), values_.data(), n);
  } else {
    // Copied, because floats in a piece are not aligned.
    elements_.resize(n);
    std::memcpy(elements_.data(), piece.data(), piece.size());
    for (size_t at = 0; at < n;) {
      const uint64_t array = (taken_ + at) / header_.elements();  // 0: the weights
      const uint64_t element = (taken_ + at) % header_.elements();
      const size_t some = std::min<uint64_t>(n - at, header_.elements() - element);
      shard_->RestoreElements(static_cast<uint32_t>(array), header_.first_element() + element,
                              elements_.data() + at, some);
      at += some;
    }
  }
  taken_ += n;
  return absl::OkStatus();
}

absl::Status ShardImageReader::TakeIndex(const std::string& piece) {
  ShardFileIndex index;
  if (piece.size() < sizeof(uint32_t) ||
      !index.ParseFromArray(piece.data(), static_cast<int>(piece.size() - sizeof(uint32_t)))) {
    return Wrong("does not end with an index");
  }
  // The checksums come last, because the sender computes them while it reads the shard.
  const bool same = std::equal(index.records().begin(), index.records().end(),
                               seen_.records().begin(), seen_.records().end()) &&
                    std::equal(index.crc32c().begin(), index.crc32c().end(), seen_.crc32c().begin(),
                               seen_.crc32c().end());
  if (!same) {
    return absl::DataLossError(absl::StrCat(
        "the image of shard ", shard_->index(), " of table '", shard_->table().name(),
        "' was damaged in transit: its blocks do not match the checksums in its index"));
  }
  // Only a shard whose contents are verified continues at the position of the original.
  shard_->RestorePosition(header_.facts());
  stage_ = kDone;
  return absl::OkStatus();
}

}  // namespace sluice
